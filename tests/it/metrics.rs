//! The metrics: every name that dashboards rely on, in a format that a strict scraper takes, and no label that a
//! client chooses.

use crate::harness::prometheus::Scrape;
use crate::harness::{Fleet, Gateway, RedisServer, Upstream, until};

const FILE: &str = "limits:\n  few: {key: api_key, rate: 3/day}\n  queue: {key: global, rate: 50/s, algorithm: leaky_bucket}\n\
                    upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes:\n  \
                    - {name: queued, match: {path: /queued}, upstream: api, limits: [queue]}\n  \
                    - {name: api, match: {path: /v1/*}, upstream: api, limits: [few]}\n";

/// A gateway that has had a request of every kind.
fn used(upstream: &Upstream) -> Gateway {
    let gateway = Gateway::before(upstream, FILE);
    gateway.statuses(5, "/v1/x", &[("x-api-key", "k")]);
    gateway.statuses(3, "/queued", &[]);
    assert_eq!(gateway.get("/nowhere").status, 404);
    assert_eq!(gateway.get("/v1/%00").status, 400);
    gateway
}

/// Waits until an exchange that has ended for the client is counted too.
fn settled(gateway: &Gateway, requests: f64) -> Scrape {
    until("all requests are counted", || {
        let scrape = gateway.metrics();
        let family = scrape.families.get("sluicegate_requests_total")?;
        (family.samples.iter().map(|sample| sample.value).sum::<f64>() >= requests).then_some(scrape)
    })
}

/// Every family of the documentation is there under its name, with its type and its labels.
#[test]
fn every_documented_family_is_there() {
    let upstream = Upstream::answering("done");
    let gateway = used(&upstream);
    let scrape = settled(&gateway, 10.0);
    for (name, kind, labels) in [
        ("sluicegate_requests_total", "counter", &["route", "code"][..]),
        ("sluicegate_request_duration_seconds", "histogram", &["route"]),
        ("sluicegate_limit_decisions_total", "counter", &["limit", "outcome"]),
        ("sluicegate_limit_keys", "gauge", &["limit"]),
        ("sluicegate_limit_entries", "gauge", &["limit"]),
        ("sluicegate_limit_overflow_total", "counter", &["limit"]),
        ("sluicegate_limit_delay_seconds", "histogram", &["limit"]),
        ("sluicegate_upstream_requests_total", "counter", &["upstream", "outcome"]),
        ("sluicegate_upstream_duration_seconds", "histogram", &["upstream"]),
        ("sluicegate_connections", "gauge", &["listener"]),
        ("sluicegate_config_last_reload_successful", "gauge", &[]),
        ("sluicegate_config_last_reload_success_timestamp_seconds", "gauge", &[]),
        ("sluicegate_config_generation", "gauge", &[]),
        ("sluicegate_build_info", "gauge", &["version"]),
        ("process_cpu_seconds_total", "counter", &[]),
        ("process_resident_memory_bytes", "gauge", &[]),
        ("process_open_fds", "gauge", &[]),
        ("process_start_time_seconds", "gauge", &[]),
    ] {
        let family = scrape.families.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(family.kind, kind, "{name}");
        for sample in &family.samples {
            let mut found: Vec<&str> = sample.labels.iter().map(|(name, _)| name.as_str()).collect();
            found.retain(|name| *name != "le");
            found.sort_unstable();
            let mut wanted = labels.to_vec();
            wanted.sort_unstable();
            assert_eq!(found, wanted, "{name}");
        }
    }
    let foreign: Vec<&String> = scrape
        .families
        .keys()
        .filter(|name| !name.starts_with("sluicegate_") && !name.starts_with("process_"))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

/// The numbers are those of the requests that were sent.
#[test]
fn the_numbers_are_right() {
    let upstream = Upstream::answering("done");
    let gateway = used(&upstream);
    let scrape = settled(&gateway, 10.0);
    let value = |name: &str, labels: &[(&str, &str)]| scrape.value(name, labels);
    assert_eq!(value("sluicegate_requests_total", &[("route", "api"), ("code", "200")]), 3.0);
    assert_eq!(value("sluicegate_requests_total", &[("route", "api"), ("code", "429")]), 2.0);
    assert_eq!(value("sluicegate_requests_total", &[("route", "queued"), ("code", "200")]), 3.0);
    assert_eq!(value("sluicegate_requests_total", &[("route", ""), ("code", "404")]), 1.0);
    assert_eq!(value("sluicegate_requests_total", &[("route", ""), ("code", "400")]), 1.0);
    assert_eq!(value("sluicegate_request_duration_seconds_count", &[("route", "api")]), 5.0);
    assert_eq!(value("sluicegate_limit_decisions_total", &[("limit", "few"), ("outcome", "admitted")]), 3.0);
    assert_eq!(value("sluicegate_limit_decisions_total", &[("limit", "few"), ("outcome", "refused")]), 2.0);
    assert_eq!(value("sluicegate_limit_keys", &[("limit", "few")]), 1.0);
    assert_eq!(value("sluicegate_limit_overflow_total", &[("limit", "few")]), 0.0);
    assert_eq!(value("sluicegate_upstream_duration_seconds_count", &[("upstream", "api")]), 6.0);
    assert_eq!(value("sluicegate_config_generation", &[]), 1.0);
    assert_eq!(value("sluicegate_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
    let upstream_requests = scrape.families["sluicegate_upstream_requests_total"].samples.iter();
    assert_eq!(upstream_requests.map(|sample| sample.value).sum::<f64>(), 6.0);
}

/// Keys are those that owe something; entries are there until others need their places, and the first who does gets one.
#[test]
fn keys_that_owe_nothing_do_not_count() {
    let gateway = Gateway::start(
        "limits: {l: {key: api_key, rate: 20/s, burst: 1, max_keys: 2}}\n\
         routes: [{respond: {status: 200}, limits: [l]}]\n",
    );
    let held = || {
        let limits = gateway.admin_get("/limits").json();
        let number = |field: &str| limits[0][field].as_f64().unwrap();
        let metric = |name: &str| gateway.metric(name, &[("limit", "l")]);
        let scraped = (metric("sluicegate_limit_keys"), metric("sluicegate_limit_entries"));
        // Keys may be paid between the one and the other.
        (scraped == (number("keys"), number("entries"))).then_some(scraped)
    };
    for key in ["a", "b"] {
        gateway.ask("GET", "/", &[("x-api-key", key)]);
    }
    until("nothing is owed", || held().filter(|(keys, entries)| *keys == 0.0 && *entries >= 1.0));
    gateway.ask("GET", "/", &[("x-api-key", "c")]);
    let overflow = gateway.metric("sluicegate_limit_overflow_total", &[("limit", "l")]);
    assert_eq!(overflow, 0.0, "an idle key has given its place");
    until("nothing is owed", || held().filter(|(keys, entries)| *keys == 0.0 && *entries <= 2.0));
}

/// The keys of a shared limit are those that the store told of.
#[test]
fn keys_of_a_shared_limit_count() {
    let redis = RedisServer::start();
    let text = "limits: {l: {key: api_key, rate: 5/day}}\n\
                routes: [{respond: {status: 200}, limits: [l]}]\n";
    let gateway = Gateway::start(&(redis.store() + text));
    Fleet::up_of(&gateway);
    for key in ["a", "b", "a"] {
        gateway.ask("GET", "/", &[("x-api-key", key)]);
    }
    assert_eq!(gateway.metric("sluicegate_limit_keys", &[("limit", "l")]), 2.0);
}

/// Open connections are those that are open.
#[test]
fn connections_are_counted_while_they_are_open() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FILE);
    let open = || gateway.metric("sluicegate_connections", &[("listener", "edge")]);
    until("nobody is connected", || (open() == 0.0).then_some(()));
    let clients: Vec<_> = (0..7).map(|_| gateway.client()).collect();
    until("seven are connected", || (open() == 7.0).then_some(()));
    drop(clients);
    until("nobody is connected any more", || (open() == 0.0).then_some(()));
}

/// Whatever clients send, no new series come of it.
#[test]
fn no_client_makes_a_series() {
    let upstream = Upstream::answering("done");
    let gateway = used(&upstream);
    for method in ["PURGE", "X-ODD", "TRACE", "DELETE"] {
        gateway.ask(method, "/v1/x", &[]);
        gateway.ask(method, "/nowhere", &[]);
    }
    gateway.get("/nowhere");
    let before = settled(&gateway, 19.0).series();
    for turn in 0..200 {
        let odd = format!("odd-{turn}");
        let headers = [("x-api-key", odd.as_str()), ("user-agent", &odd), ("host", &format!("{odd}.test"))];
        gateway.ask(&format!("M{turn}"), &format!("/v1/{odd}?{odd}"), &headers);
        gateway.ask("GET", &format!("/{odd}"), &headers);
    }
    let after = settled(&gateway, 419.0).series();
    let new: Vec<&String> = after.difference(&before).collect();
    assert!(new.is_empty(), "{new:#?}");
}

/// What an API answers is its own choice: odd codes are counted together.
#[test]
fn odd_codes_of_an_api_make_one_series() {
    let upstream = Upstream::scripted(|exchange| {
        let code = exchange.seen.target.rsplit('/').next().unwrap_or_default().parse().unwrap_or(200);
        exchange.answer(code, &[], b"");
    });
    let gateway = Gateway::before(
        &upstream,
        "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{name: api, upstream: api}]\n",
    );
    let mut client = gateway.client();
    for code in 210..=299 {
        assert_eq!(u64::from(client.get(&format!("/{code}")).status), code);
    }
    let codes = settled(&gateway, 90.0).label_values("sluicegate_requests_total", "code");
    assert!(codes.len() <= 2, "{codes:?}");
}

/// A renamed route or limit leaves no series behind.
#[test]
fn what_the_file_no_longer_has_is_no_longer_shown() {
    let upstream = Upstream::answering("done");
    let gateway = used(&upstream);
    gateway.reload(&FILE.replace("few", "many").replace("name: api", "name: other"));
    assert_eq!(gateway.get("/v1/x").status, 200);
    until("the old names are gone", || {
        let scrape = gateway.metrics();
        let text = format!("{:?}", scrape.series());
        (!text.contains("\"few\"") && !text.contains("(\"route\", \"api\")")).then_some(())
    });
}
