//! Other proxies in front: the configurations of docs/integrations and the commands of their pages, with the real nginx, Traefik,
//! Caddy, HAProxy and Envoy. A program that is not on the PATH is reported, and its tests do nothing.

mod envoy;
mod page;
mod proxy;

use std::collections::BTreeSet;
use std::path::Path;

use self::page::{Page, folder};
use self::proxy::{Kind, Proxy};
use crate::harness::load::{Load, admitted};
use crate::harness::{Client, Fleet, Gateway, RedisServer, Setup, Upstream, until};

/// The configuration of a page with the addresses of a gateway of the harness, and more sections.
fn gateway_file(page: &Page, more: &str) -> String {
    let text =
        page.file("gateway.yaml").replace("127.0.0.1:8081", "{edge}").replace("127.0.0.1:9090", "{admin}");
    text + more
}

/// An API that answers 200, and 403 to requests for /forbidden.
fn api() -> Upstream {
    Upstream::scripted(|exchange| {
        let status = if exchange.seen.target == "/forbidden" { 403 } else { 200 };
        let reason = if status == 200 { "OK" } else { "Forbidden" };
        if exchange.body().is_ok() {
            exchange.write(format!("HTTP/1.1 {status} {reason}\r\ncontent-length: 2\r\n\r\nok"));
        }
    })
}

/// Runs what a page says, and then without the gateway, when clients get this status.
fn try_page(kind: Kind, without: u16) {
    let page = Page::read(kind.page());
    let Some(program) = kind.program() else { return };
    let (api, gateway) = (api(), Gateway::start(&gateway_file(&page, "")));
    let proxy = Proxy::start(kind, &program, &[gateway.edge], api.address, &|text| text);
    page.try_it(&[(8080, proxy.address), (8081, gateway.edge), (9090, gateway.admin)]);
    assert!(!api.seen().is_empty(), "admitted requests reach the API");
    drop(gateway);
    until("the proxy notices that the gateway is away", || {
        (Client::connect(proxy.address).get("/").status == without).then_some(())
    });
}

#[test]
fn nginx() {
    try_page(Kind::Nginx, 200);
}

#[test]
fn traefik() {
    try_page(Kind::Traefik, 500);
}

#[test]
fn caddy() {
    try_page(Kind::Caddy, 502);
}

#[test]
fn haproxy() {
    try_page(Kind::Haproxy, 200);
}

#[test]
fn envoy_asks_by_external_authorization() {
    try_page(Kind::EnvoyAuthz, 200);
}

#[test]
fn envoy_asks_the_rate_limit_service() {
    envoy::try_page();
}

/// `error_page 403` of the page catches only refusals of limits.
#[test]
fn other_refusals_of_nginx_stay_403() {
    let Some(program) = Kind::Nginx.program() else { return };
    let page = Page::read(Kind::Nginx.page());
    let (api, gateway) = (api(), Gateway::start(&gateway_file(&page, "")));
    let change = |text: String| {
        text.replace(
            "        error_page 403 = @limited;\n",
            "        error_page 403 = @limited;\n        location /closed/ { deny all; }\n",
        )
    };
    let proxy = Proxy::start(Kind::Nginx, &program, &[gateway.edge], api.address, &change);
    for target in ["/closed/x", "/forbidden"] {
        let answer = Client::connect(proxy.address).get(target);
        assert_eq!((answer.status, answer.header("retry-after")), (403, None), "{target}");
    }
}

#[test]
fn clients_of_one_proxy_have_a_limit_in_two_gateways() {
    let Some(program) = Kind::Nginx.program() else { return };
    let redis = RedisServer::start();
    let file = gateway_file(&Page::read(Kind::Nginx.page()), &redis.store());
    let fleet =
        Fleet::start(2, &file.replace("rate: 60/h, burst: 3", "rate: 300/day, algorithm: fixed_window"));
    // The question has no other timeout than that of the harness, which a busy machine needs.
    let patient = |text: String| text.replace("100ms", "10s").replace("200ms", "10s");
    let addresses = [fleet[0].edge, fleet[1].edge];
    let api = api();
    let proxy = Proxy::start(Kind::Nginx, &program, &addresses, api.address, &patient);
    assert_eq!(admitted(&Load::at(proxy.address, 20).send(1000)), 300);
    let refused = fleet.iter().map(|gateway| {
        gateway.metric("sluicegate_limit_decisions_total", &[("limit", "per-client"), ("outcome", "refused")])
    });
    let refused: Vec<f64> = refused.collect();
    assert!(refused.iter().sum::<f64>() == 700.0 && refused.iter().all(|count| *count > 0.0), "{refused:?}");
}

/// The page of limitador has no program: its commands ask the gateway.
#[test]
fn limitador() {
    let page = Page::read("limitador");
    let setup = Setup::default().file("limits.yaml", &page.file("limits.yaml"));
    let gateway = setup.start(&gateway_file(&page, ""));
    page.try_it(&[(8081, gateway.edge), (9090, gateway.admin)]);
}

/// The overview names each page, and each is run or says that it is not.
#[test]
fn every_page_is_tried_or_says_that_it_was_not() {
    let overview = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let entries =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages: BTreeSet<String> = entries.filter(|name| name != "README.md").collect();
    for page in &pages {
        assert!(overview.contains(&format!("]({page})")), "{page} is not in the overview");
        let is_tried =
            page == "limitador.md" || Kind::ALL.iter().any(|kind| *page == format!("{}.md", kind.page()));
        let text = std::fs::read_to_string(folder().join(page)).unwrap();
        assert!(is_tried != text.contains("This page was not tried"), "{page}");
    }
    for kind in Kind::ALL {
        assert!(Path::new(&folder().join(format!("{}.md", kind.page()))).exists());
    }
}
