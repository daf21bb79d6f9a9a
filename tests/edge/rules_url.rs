//! Rules in a service of the user's: what it says is in force, and it may be slow, wrong or away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::harness::load::count;
use crate::harness::{Client, Gateway, Load, Response, Stopwatch, TOKEN, Upstream, measure, sleep, until};

/// A limit of 5 that does not fill up again.
const FIVE: &str = "limits: {per-key: {key: api_key, rate: 5/366d}}\n\
                    routes: [{name: api, respond: {status: 200}, limits: [per-key]}]\n";

fn with_rules(rules: &str) -> String {
    format!("rules: {rules}\n{FIVE}")
}

#[track_caller]
fn put(gateway: &Gateway, id: &str, key: &str, rate: &str) -> Response {
    let bearer = format!("Bearer {TOKEN}");
    let body = json!({ "limit": "per-key", "key": key, "rate": rate }).to_string();
    let length = body.len().to_string();
    let mut client = Client::connect(gateway.admin);
    let headers = [("host", "localhost"), ("authorization", &bearer), ("content-length", &length)];
    client.request("PUT", &format!("/rules/{id}"), &headers).send(&body);
    client.response()
}

/// The limit of a key, by one more request.
#[track_caller]
fn limit(gateway: &Gateway, key: &str) -> u64 {
    let response = gateway.ask("GET", "/", &[("x-api-key", key)]);
    assert!(matches!(response.status, 200 | 429), "{response:?}");
    response.number("x-ratelimit-limit")
}

#[track_caller]
fn in_force(gateway: &Gateway, key: &str, expected: u64) {
    until("the rule is in force", || (limit(gateway, key) == expected).then_some(()));
}

/// Asserts that a key has this limit from its first request on, unless that waited for the rule as long as a request may.
#[track_caller]
fn in_force_at_first(gateway: &Gateway, key: &str, expected: u64) {
    let (found, took) = measure(|| limit(gateway, key));
    assert!(found == expected || took >= Duration::from_secs(1), "{found}, not {expected}, after {took:?}");
    in_force(gateway, key, expected);
}

fn trouble(gateway: &Gateway) -> Option<String> {
    gateway.admin_get("/status").json()["rules"]["trouble"].as_str().map(str::to_owned)
}

/// A gateway can be the service of others: keys, patterns and changes.
#[test]
fn a_gateway_has_the_rules_for_others() {
    let keeper = Gateway::start(&with_rules("{file: rules.db, wait: 1s}"));
    put(&keeper, "all", "merchant-*", "20/366d");
    let text = format!("{{url: \"http://{}/rules\", token: {TOKEN}, timeout: 10s, wait: 1s}}", keeper.admin);
    let gateway = Gateway::start(&with_rules(&text));
    in_force_at_first(&gateway, "merchant-1", 20);
    assert_eq!(limit(&gateway, "k 1"), 5);
    put(&keeper, "one", "k 1", "30/366d");
    in_force(&gateway, "k 1", 30);
    put(&keeper, "one", "k 1", "40/366d");
    in_force(&gateway, "k 1", 40);
    put(&keeper, "all", "merchant-*", "50/366d");
    in_force(&gateway, "merchant-1", 50);
    assert_eq!(gateway.admin_change("DELETE", "/rules/one").status, 501);
    let listed = gateway.admin_get("/rules");
    assert!(
        listed.status == 501 && listed.text().contains("are read and changed there"),
        "{}",
        listed.text()
    );
    let status = gateway.admin_get("/status").json();
    assert_eq!(status["rules"]["source"], format!("http://{}/rules", keeper.admin));
    let dump = gateway.admin_get("/config").text();
    assert!(!dump.contains(TOKEN), "{dump}");
}

/// What the service of the next test does.
const RIGHT: u8 = 0;
const FAILS: u8 = 1;
const TALKS: u8 = 2;
const HANGS: u8 = 3;
const CLOSES: u8 = 4;

/// A service that is wrong or away refuses nobody, and what it said before stays in force.
#[test]
fn a_service_may_be_away() {
    let mode = Arc::new(AtomicU8::new(RIGHT));
    let shown = Arc::clone(&mode);
    let service = Upstream::scripted(move |exchange| {
        let target = exchange.seen.target.to_owned();
        if target.starts_with("/v1/rules:changes") {
            return exchange.answer(404, &[], b"");
        }
        match shown.load(Ordering::SeqCst) {
            RIGHT if target.contains("key=k1&") => {
                let rules = br#"{"rules":[{"id":"a","limit":"per-key","key":"k1","rate":"50/366d"}]}"#;
                exchange.answer(200, &[], rules);
            }
            RIGHT => exchange.answer(404, &[], b""),
            FAILS => exchange.answer(500, &[], b"oops"),
            TALKS => exchange.answer(200, &[], b"<html>hello</html>"),
            HANGS => exchange.silence(),
            _ => exchange.close(),
        }
    });
    let text = format!(
        "{{url: \"http://{}/v1/rules\", token: s3cret, ttl: 1s, timeout: 100ms, wait: 1s}}",
        service.address
    );
    let gateway = Gateway::start(&with_rules(&text));
    in_force(&gateway, "k1", 50);
    assert_eq!(limit(&gateway, "k2"), 5);
    let asked = service.seen().into_iter().find(|seen| seen.target.contains("key=k1")).unwrap();
    assert_eq!(asked.target, "/v1/rules?limit=per-key&key=k1&patterns=1");
    assert_eq!(asked.head.one("authorization"), Some("Bearer s3cret"));
    for wrong in [FAILS, HANGS, CLOSES] {
        mode.store(wrong, Ordering::SeqCst);
        let mut asked = 0;
        until("the trouble is seen", || {
            asked += 1;
            assert_eq!(limit(&gateway, &format!("new-{wrong}-{asked}")), 5);
            assert_eq!((limit(&gateway, "k1"), limit(&gateway, "k2")), (50, 5));
            trouble(&gateway)
        });
        mode.store(RIGHT, Ordering::SeqCst);
        until("it is over", || {
            assert_eq!(limit(&gateway, "k1"), 50);
            trouble(&gateway).is_none().then_some(())
        });
    }
    mode.store(TALKS, Ordering::SeqCst);
    (0..20).for_each(|number| assert_eq!(limit(&gateway, &format!("odd-{number}")), 5));
    until("it is logged", || gateway.log().contains("is not {\"rules\"").then_some(()));
    until("it is there", || {
        assert_eq!(limit(&gateway, "k2"), 5);
        trouble(&gateway).is_none().then_some(())
    });
    assert!(!gateway.log().contains("s3cret"));
}

/// However many requests wait for a key, the service is asked once.
#[test]
fn a_key_is_asked_for_once() {
    let service = Upstream::scripted(|exchange| match exchange.seen.target.starts_with("/rules:changes") {
        true => exchange.answer(404, &[], b""),
        false => exchange.answer(200, &[], br#"{"rules":[]}"#),
    });
    let text = format!("{{url: \"http://{}/rules\", wait: 1s, timeout: 10s}}", service.address);
    let gateways = [Gateway::start(&with_rules(&text))];
    let samples = Load::on(&gateways, 16).keys(&["k1"]).send(200);
    assert_eq!(count(&samples, 200), 5);
    let asked = service.seen().iter().filter(|seen| seen.target.contains("key=")).count();
    assert_eq!(asked, 1);
}

/// An answer that cannot be used for one key changes nothing for the others.
#[test]
fn one_key_says_nothing_about_the_others() {
    let service = Upstream::scripted(|exchange| {
        let target = exchange.seen.target.clone();
        let rate = if target.contains("key=bad") { "5" } else { "\"50/366d\"" };
        let key = target.split("key=").nth(1).and_then(|rest| rest.split('&').next()).unwrap_or_default();
        match target.contains(":changes") {
            true => exchange.answer(404, &[], b""),
            false if key.starts_with("cut") => {
                exchange.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{");
                exchange.close();
            }
            false => {
                let rule =
                    format!("{{\"id\":\"a\",\"limit\":\"per-key\",\"key\":\"{key}\",\"rate\":{rate}}}");
                exchange.answer(200, &[], format!("{{\"rules\":[{rule}]}}").as_bytes());
            }
        }
    });
    let text = format!("{{url: \"http://{}/rules\", wait: 1s, timeout: 10s}}", service.address);
    let gateway = Gateway::start(&with_rules(&text));
    let watch = Stopwatch::start();
    for number in 0..10 {
        assert_eq!(limit(&gateway, &format!("cut{number}")), 5);
    }
    assert_eq!(trouble(&gateway), None, "ten in a row");
    for number in 0..30 {
        assert_eq!(limit(&gateway, &format!("bad{number}")), 5);
        in_force_at_first(&gateway, &format!("good{number}"), 50);
    }
    assert_eq!(trouble(&gateway), None);
    until("it is logged", || gateway.log().contains("stays in force").then_some(()));
    let logged = gateway.times_logged("stays in force");
    assert!(logged as u64 <= 1 + watch.elapsed().as_secs() / 10, "now and then, not {logged} times");
}

/// A rule whose key is written with the name of its part is found for others too.
#[test]
fn a_key_may_be_written_with_its_name() {
    let keeper = Gateway::start(&with_rules("{file: rules.db, wait: 1s}"));
    put(&keeper, "one", "api_key:k1", "30/366d");
    let text = format!("{{url: \"http://{}/rules\", token: {TOKEN}, timeout: 10s, wait: 1s}}", keeper.admin);
    let gateway = Gateway::start(&with_rules(&text));
    in_force_at_first(&keeper, "k1", 30);
    in_force_at_first(&gateway, "k1", 30);
}

/// A request that has waited for its rule is decided at that time, and not at the time at which it came.
#[test]
fn a_request_that_waited_for_its_rule_has_what_its_key_regained() {
    let service = Upstream::scripted(|exchange| {
        if exchange.seen.target.contains("key=slow") {
            sleep(Duration::from_millis(800));
        }
        match exchange.seen.target.contains(":changes") {
            true => exchange.answer(404, &[], b""),
            false => exchange.answer(200, &[], br#"{"rules":[]}"#),
        }
    });
    let gateway = Gateway::start(&format!(
        "rules: {{url: 'http://{}/rules', wait: 1s, timeout: 10s}}\n\
         limits: {{slow: {{key: api_key, rate: 5/d}}, fast: {{key: 'header:x-who', rate: 2/s, burst: 1}}}}\n\
         routes: [{{name: api, respond: {{status: 200}}, limits: [slow, fast]}}]\n",
        service.address
    ));
    let ask = |key| gateway.ask("GET", "/", &[("x-api-key", key), ("x-who", "a")]).status;
    until("the bucket of two per second is spent", || (ask("known") == 200).then_some(()));
    assert_eq!(ask("slow"), 200);
}
