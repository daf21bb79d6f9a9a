//! A service outside checks requests: what it says of them counts, and nobody else says it.

use std::sync::{Arc, Mutex};

use crate::harness::{
    Exchange, Gate, Gateway, ReservedPort, Setup, Upstream, deadline, in_parallel, measure, until,
};
use serde_json::json;

const RULES: &str = "
auth: {check: {url: 'http://{checker}/check?x=1', timeout: 9s, MORE}}
limits: {per-consumer: {key: consumer | ip, rate: 1000/h}}
upstreams: {api: {servers: ['http://{upstream}']}}
routes:
- {name: public, match: {path: /public}, upstream: api, check: off}
- {name: api, upstream: api, limits: [per-consumer]}
";

/// The answer of the service.
#[derive(Clone)]
enum Answer {
    Says(u16, Vec<(&'static str, &'static str)>),
    Hangs,
    Waits(Gate),
}

struct Checker {
    server: Upstream,
    answer: Arc<Mutex<Answer>>,
}

impl Checker {
    fn new(status: u16, headers: &[(&'static str, &'static str)]) -> Self {
        let answer = Arc::new(Mutex::new(Answer::Says(status, headers.to_vec())));
        let shown = Arc::clone(&answer);
        let server = Upstream::scripted(move |exchange: &mut Exchange<'_>| {
            let answer = shown.lock().unwrap().clone();
            match answer {
                Answer::Says(204, headers) => exchange.answer(204, &headers, b""),
                Answer::Says(status, headers) => exchange.answer(status, &headers, b"secret words"),
                Answer::Hangs => exchange.silence(),
                Answer::Waits(gate) => {
                    gate.wait();
                    exchange.answer(200, &[], b"");
                }
            }
        });
        Self { server, answer }
    }

    fn says(&self, status: u16, headers: &[(&'static str, &'static str)]) {
        *self.answer.lock().unwrap() = Answer::Says(status, headers.to_vec());
    }

    fn now(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    fn calls(&self) -> usize {
        self.server.seen().len()
    }
}

fn rules(more: &str) -> String {
    RULES.replace(", MORE", more)
}

fn start(upstream: &Upstream, checker: &Checker, more: &str) -> Gateway {
    Setup::default().upstream(upstream).value("checker", checker.server.address).start(&rules(more))
}

fn status(gateway: &Gateway, token: &str) -> u16 {
    gateway.ask("GET", "/", &[("authorization", token)]).status
}

#[test]
fn each_request_is_checked() {
    let (upstream, checker) = (Upstream::answering("ok"), Checker::new(204, &[]));
    let gateway = start(&upstream, &checker, "");
    let headers = [
        ("host", "api.test:8080"),
        ("authorization", "Bearer x"),
        ("cookie", "s=1"),
        ("x-other", "o"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-uri", "/elsewhere"),
        ("x-forwarded-proto", "https"),
    ];
    assert_eq!(gateway.ask("DELETE", "/items/a%20b?q=%2f", &headers).status, 200);
    let call = checker.server.last();
    assert_eq!((call.method.as_str(), call.target.as_str()), ("GET", "/check?x=1"));
    let address = checker.server.address.to_string();
    for (name, value) in [
        ("host", address.as_str()),
        ("x-forwarded-method", "DELETE"),
        ("x-forwarded-uri", "/items/a%20b?q=%2f"),
        ("x-forwarded-host", "api.test:8080"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-for", "127.0.0.1"),
        ("authorization", "Bearer x"),
        ("cookie", "s=1"),
    ] {
        assert_eq!(call.head.all(name), [value], "{name}");
    }
    let seen = upstream.last().head;
    assert!(call.head.one("x-other").is_none() && seen.one("x-other").is_some());
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.get("/a/../b/%7Ec?d=../e").status, 200);
    assert_eq!(checker.server.last().head.one("x-forwarded-uri"), Some("/b/~c?d=../e"), "as routes see it");
    assert_eq!(
        (checker.calls(), checker.server.connections()),
        (3, 1),
        "nothing is remembered, connections are kept"
    );
    assert_eq!(gateway.get("/public").status, 200);
    assert_eq!(checker.calls(), 3, "a public route is not checked");
    // Another spelling of a path leads to what checks it.
    assert_eq!(gateway.get("/PUBLIC").status, 200);
    assert_eq!(checker.calls(), 4);
}

#[test]
fn the_service_names_consumer_and_plan() {
    let upstream = Upstream::answering("ok");
    let checker = Checker::new(200, &[("X-Sluicegate-Consumer", "acme"), ("X-Sluicegate-Plan", "pro")]);
    let rules = rules("").replace("rate: 1000/h", "rate: 1/day, plans: {pro: 2/day}");
    let setup = Setup::default().upstream(&upstream).value("checker", checker.server.address);
    let gateway = setup.start(&rules);
    let forged = [
        ("x-consumer-name", "root"),
        ("X_Consumer_Plan", "gold"),
        ("x-sluicegate-consumer", "root"),
        ("x-sluicegate-plan", "gold"),
        ("X_Sluicegate_Plan", "gold"),
        ("x-sluicegate-cache", "60"),
        ("x-sluicegate-rate", "1/s"),
        ("x-sluicegate-cost", "0"),
    ];
    assert_eq!(gateway.ask("GET", "/", &forged).status, 200);
    let head = upstream.last().head;
    assert_eq!((head.all("x-consumer-name"), head.all("x-consumer-plan")), (vec!["acme"], vec!["pro"]));
    assert!(
        head.headers.iter().all(|(name, _)| !name.to_ascii_lowercase().contains("sluicegate")),
        "{head:?}"
    );
    assert_eq!([gateway.get("/").status, gateway.get("/").status], [200, 429]);
    assert_eq!(gateway.remaining("per-consumer", "acme"), 0);
    checker.says(200, &[("X-Sluicegate-Consumer", "beta")]);
    assert_eq!(
        [gateway.get("/").status, gateway.get("/").status],
        [200, 429],
        "its own counter, without a plan"
    );
    let head = upstream.last().head;
    assert_eq!((head.all("x-consumer-name"), head.all("x-consumer-plan")), (vec!["beta"], vec![]));
    // A route that is not checked hears nothing of anybody, whatever clients say.
    assert_eq!(gateway.ask("GET", "/public", &forged).status, 200);
    let head = upstream.last().head;
    assert_eq!((head.all("x-consumer-name"), head.all("x-sluicegate-consumer")), (vec![], vec![]));
}

#[test]
fn refusals_of_the_service_are_answered() {
    let (upstream, checker) = (Upstream::answering("ok"), Checker::new(200, &[]));
    let gateway = start(&upstream, &checker, "");
    for (code, headers, detail) in [
        (
            401,
            &[("WWW-Authenticate", "Custom realm=\"r\"")][..],
            "the credentials of the request are not accepted here",
        ),
        (403, &[("X-Reason", "internal")], "this request is not permitted"),
        (429, &[("Retry-After", "17")], "this request is not permitted at the moment"),
    ] {
        checker.says(code, headers);
        let answer = gateway.get("/");
        assert_eq!(answer.status, code);
        let problem = answer.problem();
        assert_eq!((&problem["reason"], &problem["detail"]), (&json!("check"), &json!(detail)));
        assert_eq!(answer.header("www-authenticate").is_some(), code == 401);
        assert_eq!(answer.header("x-reason"), None, "its other headers are its own");
        assert_eq!(answer.header("retry-after"), (code == 429).then_some("17"));
        assert!(!answer.text().contains("secret"));
    }
    checker.says(401, &[("WWW-Authenticate", "Custom realm=\"r\"")]);
    assert_eq!(gateway.get("/").header("www-authenticate"), Some("Custom realm=\"r\""));
    for (code, grpc) in [(401, "16"), (403, "7"), (429, "8")] {
        checker.says(code, &[]);
        let answer = gateway.ask("POST", "/", &[("content-type", "application/grpc")]);
        assert_eq!((answer.status, answer.header("grpc-status")), (200, Some(grpc)), "{code}");
    }
    assert_eq!(upstream.seen().len(), 0);
    assert_eq!(gateway.metric("sluicegate_refusals_total", &[("route", "api"), ("reason", "check")]), 7.0);
}

#[test]
fn a_service_that_is_away_refuses_by_default() {
    let upstream = Upstream::answering("ok");
    let checker = Checker::new(500, &[]);
    let gateway = start(&upstream, &checker, "");
    for (code, headers) in [
        (500, &[][..]),
        (302, &[("location", "/login")]),
        (404, &[]),
        (200, &[("X-Sluicegate-Consumer", "a b")]),
        (200, &[("X-Sluicegate-Plan", "")]),
        (200, &[("X-Sluicegate-Cache", "soon")]),
        (200, &[("X-Sluicegate-Plan", "a"), ("X-Sluicegate-Plan", "b")]),
    ] {
        checker.says(200, &[]);
        until("it is back", || (gateway.get("/").status == 200).then_some(()));
        checker.says(code, headers);
        let answer = gateway.get("/");
        assert_eq!(
            (answer.status, &answer.problem()["reason"]),
            (503, &json!("auth_unavailable")),
            "{code} {headers:?}"
        );
    }
    assert_eq!(gateway.get("/public").status, 200);
    let port = ReservedPort::new();
    let gateway = Setup::default().upstream(&upstream).value("checker", port.address).start(&rules(""));
    assert_eq!(gateway.get("/").status, 503);
    let trouble = gateway.admin_get("/status").json()["check"]["trouble"].clone();
    assert!(trouble.as_str().unwrap().starts_with("cannot connect"), "{trouble}");
}

#[test]
fn a_service_that_is_away_admits_where_configured() {
    let upstream = Upstream::answering("ok");
    let checker = Checker::new(200, &[("X-Sluicegate-Consumer", "acme")]);
    let gateway = start(&upstream, &checker, ", on_failure: anonymous");
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(upstream.last().head.one("x-consumer-name"), Some("acme"));
    checker.says(500, &[]);
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(upstream.last().head.one("x-consumer-name"), None);
    checker.says(403, &[]);
    assert_eq!(gateway.get("/").status, 403, "it is not away");
}

#[test]
fn a_silent_service_delays_no_request_for_long() {
    let (upstream, checker) = (Upstream::answering("ok"), Checker::new(200, &[]));
    checker.now(Answer::Hangs);
    for (policy, wanted) in [("refuse", 503), ("anonymous", 200)] {
        let rules = rules(&format!(", on_failure: {policy}")).replace("timeout: 9s", "timeout: 100ms");
        let setup = Setup::default().upstream(&upstream).value("checker", checker.server.address);
        let gateway = setup.start(&rules);
        let (code, time) = measure(|| gateway.get("/").status);
        assert_eq!(code, wanted);
        assert!(time < deadline(), "{time:?}");
    }
}

#[test]
fn answers_are_remembered_by_the_headers_of_the_key() {
    let upstream = Upstream::answering("ok");
    let checker = Checker::new(200, &[("X-Sluicegate-Consumer", "acme")]);
    let gateway = start(&upstream, &checker, ", headers: Authorization, cache: {ttl: 1h}");
    assert_eq!(["a", "a", "b", "a", "b"].map(|token| status(&gateway, token)), [200; 5]);
    assert_eq!(checker.calls(), 2);
    checker.says(403, &[]);
    assert_eq!(["a", "c", "c", "d"].map(|token| status(&gateway, token)), [200, 403, 403, 403]);
    assert_eq!(checker.calls(), 4, "refusals are remembered too");
    assert_eq!(gateway.get("/").status, 403, "none is another value");
    assert_eq!(checker.calls(), 5);
    checker.says(429, &[]);
    assert_eq!(["e", "e"].map(|token| status(&gateway, token)), [429, 429]);
    assert_eq!(checker.calls(), 7, "what is over soon is not remembered");
    checker.says(200, &[("X-Sluicegate-Cache", "0")]);
    assert_eq!(["f", "f"].map(|token| status(&gateway, token)), [200, 200]);
    assert_eq!(checker.calls(), 9);
}

#[test]
fn an_answer_says_how_long_it_holds() {
    let upstream = Upstream::answering("ok");
    let checker = Checker::new(200, &[("X-Sluicegate-Cache", "3600")]);
    let gateway = start(&upstream, &checker, ", cache: {ttl: 0s}");
    assert_eq!(["a", "a"].map(|token| status(&gateway, token)), [200, 200]);
    assert_eq!(checker.calls(), 1);
    checker.says(200, &[("X-Sluicegate-Cache", "1")]);
    assert_eq!(status(&gateway, "b"), 200);
    checker.says(403, &[]);
    until("it is forgotten", || (status(&gateway, "b") == 403).then_some(()));
    assert_eq!(status(&gateway, "a"), 200);
}

#[test]
fn remembered_answers_are_used_while_the_service_is_away() {
    let (upstream, checker) = (Upstream::answering("ok"), Checker::new(200, &[("X-Sluicegate-Cache", "1")]));
    let gateway = start(&upstream, &checker, ", cache: {ttl: 1h}, on_failure: stale");
    assert_eq!(status(&gateway, "a"), 200);
    checker.says(500, &[]);
    until("it is asked again", || {
        assert_eq!(status(&gateway, "a"), 200);
        (checker.calls() > 1).then_some(())
    });
    assert_eq!(status(&gateway, "b"), 503);
}

#[test]
fn equal_questions_are_asked_once() {
    let (upstream, checker) = (Upstream::answering("ok"), Checker::new(200, &[]));
    let gate = Gate::default();
    checker.now(Answer::Waits(gate.clone()));
    let setup = Setup::default().workers(2).upstream(&upstream).value("checker", checker.server.address);
    let gateway = setup.start(&rules(", cache: {ttl: 1h}"));
    let statuses = std::thread::scope(|scope| {
        let asking = scope.spawn(|| in_parallel(20, |_| status(&gateway, "a")));
        checker.server.wait_for(1);
        until("all requests wait", || {
            let open = gateway.admin_get("/status").json()["connections"].as_u64();
            (open >= Some(20)).then_some(())
        });
        gate.open();
        asking.join().unwrap()
    });
    assert_eq!((statuses, checker.calls()), (vec![200; 20], 1));
}

/// A name from outside makes no API key known: invented keys get no counters.
#[test]
fn the_service_makes_no_key_known() {
    let upstream = Upstream::answering("ok");
    let checker = Checker::new(200, &[("X-Sluicegate-Consumer", "acme")]);
    let rules = rules("")
        .replace("auth: {", "auth: {api_key: {consumers: consumers.yaml}, ")
        .replace("consumer | ip, rate: 1000/h", "api_key | ip, rate: 2/day");
    // The SHA-256 of `k1`.
    let file = "- {name: beta, key: sha256:6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2c446f0e58668b09c08a16dd0, plan: p}\n";
    let setup = Setup::default().upstream(&upstream).value("checker", checker.server.address);
    let gateway = setup.file("consumers.yaml", file).start(&rules);
    let ask = |key: &str| gateway.ask("GET", "/", &[("x-api-key", key)]).status;
    assert_eq!(["a", "b", "c", "k1"].map(ask), [200, 200, 429, 200]);
    let head = upstream.last().head;
    assert_eq!((head.one("x-consumer-name"), head.one("x-consumer-plan")), (Some("acme"), None));
    checker.says(200, &[]);
    assert_eq!(ask("k1"), 200);
    let head = upstream.last().head;
    assert_eq!((head.one("x-consumer-name"), head.one("x-consumer-plan")), (Some("beta"), Some("p")));
}

#[test]
fn limits_by_address_come_first() {
    let (upstream, checker) = (Upstream::answering("ok"), Checker::new(401, &[]));
    let rules = rules("").replace("limits: {", "limits: {per-address: {key: ip, rate: 10/day}, ");
    let rules = rules.replace("[per-consumer]", "[per-address, per-consumer]");
    let setup = Setup::default().upstream(&upstream).value("checker", checker.server.address);
    let gateway = setup.start(&rules);
    let statuses: Vec<u16> = (0..30).map(|token| status(&gateway, &format!("t{token}"))).collect();
    assert_eq!((&statuses[..10], &statuses[10..]), (&[401; 10][..], &[429; 20][..]));
    assert_eq!(checker.calls(), 10);
}

#[test]
fn a_reload_keeps_what_is_remembered_unless_the_check_changes() {
    let (upstream, checker) = (Upstream::answering("ok"), Checker::new(200, &[]));
    let gateway = start(&upstream, &checker, ", cache: {ttl: 1h}");
    assert_eq!(status(&gateway, "a"), 200);
    gateway.reload(&rules(", cache: {ttl: 1h}").replace("1000/h", "2000/h"));
    assert_eq!(status(&gateway, "a"), 200);
    assert_eq!(checker.calls(), 1);
    gateway.reload(&rules(", cache: {ttl: 2h}"));
    assert_eq!(status(&gateway, "a"), 200);
    assert_eq!(checker.calls(), 2);
    assert_eq!(
        gateway.admin_get("/config").json()["auth"]["check"]["cache"]["key"],
        json!(["authorization", "cookie"])
    );
}
