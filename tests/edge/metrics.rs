//! The metrics: every name that dashboards use, in a format that a strict parser accepts, and no label value chosen
//! by a client.

use crate::harness::prometheus::Scrape;
use crate::harness::tls::Authority;
use crate::harness::{Fleet, Gateway, RedisServer, Setup, Upstream, until};

const FILE: &str = "limits:\n  few: {key: api_key, rate: 3/day}\n  queue: {key: global, rate: 50/s, algorithm: leaky_bucket, queue: {file: queue.db}}\n\
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

/// The families of docs/metrics.md: name, type, labels.
fn documented() -> Vec<(String, String, Vec<String>)> {
    let text = std::fs::read_to_string("docs/metrics.md").unwrap();
    let rows =
        text.lines().filter(|line| line.starts_with("| `sluicegate_") || line.starts_with("| `process_"));
    let rows = rows.map(|row| {
        let cells: Vec<String> =
            row.split(" | ").map(|cell| cell.replace(['`', '|'], "").trim().to_owned()).collect();
        let labels = cells[2].split(", ").filter(|label| !label.is_empty()).map(str::to_owned);
        (cells[0].clone(), cells[1].clone(), labels.collect())
    });
    rows.collect()
}

/// A gateway that uses all there is has every documented family before the first request, with its type and its
/// labels, and no other.
#[test]
fn every_documented_family_is_there_from_the_start() {
    let (redis, pair) = (RedisServer::start(), Authority::new().sign(&["api.test"]));
    let gateway = Setup::default().file("own.pem", &pair.cert).file("own.key", &pair.key).start(
        &(redis.store()
            + "listen:\n  - {name: edge, address: \"{edge}\"}\n  \
               - {name: tls, address: \"{edge2}\", tls: {certificates: [{cert: own.pem, key: own.key}]}}\n\
               telemetry: {otlp: {url: \"http://127.0.0.1:1\"}}\n\
               regions: {name: a, floors: {a: 40%, b: 40%}, home: {redis: {url: \"redis://127.0.0.1:1\"}}}\n\
               overload: {}\nauth: {check: {url: \"http://127.0.0.1:1\"}}\nmetrics: {by_consumer: 5}\nrules: {file: rules.db}\n\
               limits:\n  few: {key: api_key, rate: 3/day, ban: 1h}\n  all: {key: global, rate: 10/s, fair: {by: ip}}\n  \
               queue: {key: global, rate: 50/s, algorithm: leaky_bucket, queue: {file: queue.db}}\n  \
               many: {key: ip, rate: 10000/s, sync: leased}\n\
               upstreams: {api: {servers: [\"http://127.0.0.1:1\"], overload: {}, fair: {}}}\n\
               routes: [{name: api, upstream: api, limits: [few, queue, many, all]}]\n"),
    );
    // The gateway is ready when the first worker is.
    let scrape = until("the workers have begun", || {
        let scrape = gateway.metrics();
        scrape.families.contains_key("sluicegate_requests_total").then_some(scrape)
    });
    let documented = documented();
    for (name, kind, labels) in &documented {
        let family = scrape.families.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(&family.kind, kind, "{name}");
        for sample in &family.samples {
            let found: Vec<&String> =
                sample.labels.iter().map(|(name, _)| name).filter(|name| *name != "le").collect();
            assert_eq!(found, labels.iter().collect::<Vec<_>>(), "{name}");
        }
    }
    let mut foreign =
        scrape.families.keys().filter(|name| !documented.iter().any(|(known, ..)| known == *name));
    assert_eq!(foreign.next(), None);
    let series = scrape.series();
    for (name, labels) in [
        ("sluicegate_requests_total", &[("route", "api"), ("code", "200")][..]),
        ("sluicegate_requests_total", &[("route", "api"), ("code", "429")]),
        ("sluicegate_requests_total", &[("route", ""), ("code", "404")]),
        ("sluicegate_refusals_total", &[("route", "api"), ("reason", "limit")]),
        ("sluicegate_refusals_total", &[("route", "api"), ("reason", "ban")]),
        ("sluicegate_refusals_total", &[("route", "api"), ("reason", "upstream")]),
        ("sluicegate_refusals_total", &[("route", ""), ("reason", "no_route")]),
        ("sluicegate_limit_decisions_total", &[("limit", "few"), ("outcome", "admitted")]),
        ("sluicegate_limit_decisions_total", &[("limit", "few"), ("outcome", "refused")]),
        ("sluicegate_upstream_requests_total", &[("upstream", "api"), ("outcome", "connect_failed")]),
        ("sluicegate_store_operations_total", &[("outcome", "timeout")]),
        ("sluicegate_store_fallback_total", &[("limit", "few"), ("policy", "local")]),
        ("sluicegate_request_duration_seconds_count", &[("route", "api")]),
    ] {
        let labels: Vec<(String, String)> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert!(series.contains(&format!("{name}{labels:?}")), "{name} {labels:?} in {series:#?}");
    }
    // A route without lists or bodies to refuse has no such series.
    assert!(!series.iter().any(|series| series.contains("\"list\"")), "{series:#?}");
    let cpu = scrape.value("process_cpu_seconds_total", &[]);
    assert!(cpu > 0.0 && cpu.fract() > 0.0, "{cpu}");
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
fn clients_cannot_create_series() {
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
    let odd: Vec<&String> =
        codes.iter().filter(|code| !["200", "400", "404"].contains(&code.as_str())).collect();
    assert_eq!(odd, ["other"], "{codes:?}");
}

/// A renamed route or limit leaves no series behind.
#[test]
fn series_of_removed_objects_disappear() {
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
