//! The real Envoy, whose filter `ratelimit` asks the gateway.

use std::net::SocketAddr;
use std::path::Path;

use super::page::Page;
use super::proxy::{Kind, Proxy};
use super::{api, gateway_file};
use crate::harness::load::{Load, admitted, slowest};
use crate::harness::{Client, Fleet, Gateway, RedisServer, Setup, patience, until};

/// A file of envoyproxy/ratelimit with 12 descriptors.
const LIMITS: &str = include_str!("ratelimit.yaml");

/// Files are beside the configuration here.
fn setup(limits: &str) -> Setup {
    Setup::default().file("ratelimit-web.yaml", limits)
}

fn file(more: &str) -> String {
    gateway_file(&Page::read(Kind::EnvoyRateLimit.page()), more).replace("ratelimit/*", "ratelimit-*")
}

/// Envoy with a descriptor for the header X-Tenant. It waits longer than usual, because a test may have a busy machine, and an
/// error of the gateway would be seen as 500.
fn envoy(program: &Path, gateways: &[SocketAddr], api: SocketAddr) -> Proxy {
    let of_tenant = "- actions: [{request_headers: {header_name: x-tenant, descriptor_key: tenant, skip_if_absent: true}}]";
    let change = |text: String| {
        let (head, tail) = text.split_once("              - actions: [{remote_address").unwrap();
        let text =
            format!("{head}              {of_tenant}\n              - actions: [{{remote_address{tail}");
        text.replace("timeout: 0.02s", "timeout: 10s")
            .replace("failure_mode_deny: false", "failure_mode_deny: true")
    };
    Proxy::start(Kind::EnvoyRateLimit, program, gateways, api, &change)
}

/// The page with its own limits.
pub(super) fn try_page() {
    let Some(program) = Kind::EnvoyRateLimit.program() else { return };
    let page = Page::read(Kind::EnvoyRateLimit.page());
    let (api, gateway) = (api(), setup(&page.file("ratelimit/web.yaml")).start(&file("")));
    // 20 ms are too short for a busy machine.
    let change = |text: String| text.replace("timeout: 0.02s", "timeout: 2s");
    let proxy = Proxy::start(Kind::EnvoyRateLimit, &program, &[gateway.edge], api.address, &change);
    page.try_it(&[(8080, proxy.address), (8081, gateway.edge), (9090, gateway.admin)]);
    drop(gateway);
    until("requests are admitted without an answer", || {
        (Client::connect(proxy.address).get("/login").status == 200).then_some(())
    });
}

#[test]
fn a_file_of_ratelimit_decides_exactly() {
    let Some(program) = Kind::EnvoyRateLimit.program() else { return };
    let (api, gateway) = (api(), setup(LIMITS).start(&file("")));
    let proxy = envoy(&program, &[gateway.edge], api.address);
    let load = || Load::at(proxy.address, 50);
    assert_eq!(admitted(&load().target("/limited").send(10_000)), 2_000);
    assert_eq!(api.seen().len(), 2_000, "no other request reaches the API");
    let ask = |target: &str, tenant: &str| {
        Client::connect(proxy.address).ask("GET", target, &[("x-tenant", tenant)])
    };
    let statuses = |target: &str, tenant: &str, count: usize| -> Vec<u16> {
        (0..count).map(|_| ask(target, tenant).status).collect()
    };
    assert_eq!(statuses("/limited", "internal", 1), [429], "another descriptor refuses");
    assert_eq!(statuses("/other", "internal", 20), [200; 20]);
    assert_eq!(statuses("/tried", "internal", 3), [200; 3]);
    assert_eq!(statuses("/closed", "internal", 1), [429]);
    let trial = statuses("/other", "trial", 12);
    assert_eq!((&trial[..10], &trial[10..]), (&[200; 10][..], &[429; 2][..]));
    let logins: Vec<u16> = (0..4).map(|at| ask(&format!("/login?try={at}"), "internal").status).collect();
    assert_eq!(logins, [200, 200, 200, 429]);
    let refused = ask("/login", "internal");
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert!(refused.number("retry-after") > 0 && refused.number("x-ratelimit-remaining") == 0, "{refused:?}");
    assert_eq!(refused.json()["status"], 429);
    let forged = Client::connect(proxy.address).ask("GET", "/limited", &[("x-forwarded-for", "203.0.113.9")]);
    assert_eq!(forged.status, 429);
    let decisions = |outcome: &str| {
        let labels = [("limit", "rls.web.remote_address"), ("outcome", outcome)];
        gateway.metric("sluicegate_limit_decisions_total", &labels)
    };
    assert!(decisions("admitted") > 10_000.0 && decisions("refused") == 0.0);
}

/// Envoy asks a listener of limitador as it asks limitador.
#[test]
fn a_file_of_limitador_decides_exactly() {
    let Some(program) = Kind::EnvoyRateLimit.program() else { return };
    let limits = "\
- {namespace: web, max_value: 500, seconds: 86400, conditions: [\"descriptors[1].path == '/limited'\"]}
- {namespace: web, max_value: 3, seconds: 86400, variables: [\"descriptors[0].tenant\"]}
";
    let text = "listen: [{address: '{edge}', serve: limitador, callers: [127.0.0.1]}]\n\
                limitador: {files: [limits.yaml], response_headers: draft_version_03}\n";
    let (api, gateway) = (api(), Setup::default().file("limits.yaml", limits).start(text));
    let without_headers = |text: String| {
        text.replace("timeout: 0.02s", "timeout: 10s")
            .replace("failure_mode_deny: false", "failure_mode_deny: true")
            .replace("              enable_x_ratelimit_headers: DRAFT_VERSION_03\n", "")
    };
    let proxy = Proxy::start(Kind::EnvoyRateLimit, &program, &[gateway.edge], api.address, &without_headers);
    let samples = Load::at(proxy.address, 50).target("/limited").send(2_000);
    assert_eq!((admitted(&samples), api.seen().len()), (500, 500));
    let refused = Client::connect(proxy.address).get("/limited");
    assert_eq!((refused.status, refused.header("x-ratelimit-remaining")), (429, Some("0")));
    assert!(refused.number("retry-after") > 0 && refused.json()["status"] == 429, "{refused:?}");
    drop(proxy);
    let proxy = envoy(&program, &[gateway.edge], api.address);
    let statuses = |tenant: &str| {
        [1, 2, 3, 4].map(|_| Client::connect(proxy.address).ask("GET", "/", &[("x-tenant", tenant)]).status)
    };
    assert_eq!([statuses("a"), statuses("b")], [[200, 200, 200, 429]; 2]);
}

#[test]
fn two_gateways_decide_exactly_and_outlive_their_store() {
    let Some(program) = Kind::EnvoyRateLimit.program() else { return };
    let mut redis = RedisServer::start();
    let fleet = Fleet::of(vec![setup(LIMITS), setup(LIMITS)], &file(&redis.store()));
    fleet.up();
    let api = api();
    let proxy = envoy(&program, &[fleet[0].edge, fleet[1].edge], api.address);
    let load = |tenant: &str| Load::at(proxy.address, 50).target("/other").header("x-tenant", tenant);
    assert_eq!(admitted(&load("acme").send(3_000)), 1_000);
    let decided = |gateway: &Gateway| {
        gateway.metric(
            "sluicegate_limit_decisions_total",
            &[("limit", "rls.web.tenant"), ("outcome", "admitted")],
        )
    };
    assert!(fleet.iter().all(|gateway| decided(gateway) > 0.0), "both are asked");
    let before = admitted(&load("beta").send(400));
    assert_eq!(before, 400);
    redis.kill();
    // Without the store each gateway admits up to its half of the limit.
    let samples = load("beta").send(3_000);
    let after = admitted(&samples);
    assert!((1..=1_000).contains(&after), "{after} after {before}");
    assert!(slowest(&samples) < patience(2), "{:?}", slowest(&samples));
    redis.restart();
    fleet.up();
    assert_eq!(admitted(&load("gamma").send(2_000)), 1_000);
}

/// Without gRPC, with the part of the page of external authorization.
#[test]
fn external_authorization_works_over_http() {
    let Some(program) = Kind::EnvoyAuthz.program() else { return };
    let page = Page::read(Kind::EnvoyAuthz.page());
    let file = gateway_file(&page, "").replace("serve: ext_authz", "serve: ext_authz_http");
    let (api, gateway) = (api(), Gateway::start(&file));
    let change = |text: String| {
        let grpc = "grpc_service: {envoy_grpc: {cluster_name: sluicegate}, timeout: 0.2s}";
        let indented = page.part("http_service:").trim_end().replace('\n', "\n              ");
        assert!(text.contains(grpc));
        text.replace(grpc, &indented).replace("timeout: 0.2s", "timeout: 5s")
    };
    let proxy = Proxy::start(Kind::EnvoyAuthz, &program, &[gateway.edge], api.address, &change);
    let ask = || Client::connect(proxy.address).ask("GET", "/?x=1", &[("x-forwarded-for", "203.0.113.9")]);
    for remaining in [2, 1, 0] {
        let answer = ask();
        assert_eq!((answer.status, answer.number("x-ratelimit-remaining")), (200, remaining));
    }
    let refused = ask();
    assert_eq!((refused.status, &refused.json()["reason"]), (429, &"limit".into()));
    assert!(refused.number("retry-after") > 0);
    assert_eq!(gateway.remaining("per-client", "203.0.113.9"), 3, "a client does not choose its address");
    assert_eq!(Client::connect(proxy.address).ask("POST", "/login", &[]).status, 200);
}
