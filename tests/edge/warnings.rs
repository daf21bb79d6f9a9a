//! `warn`: clients hear that a limit will soon refuse, and operators how often that happens.

use crate::harness::{Gateway, RedisServer};

const TEXT: &str = "limits: {soon: {key: api_key, rate: 10/d, warn: 80%}, other: {key: api_key, rate: 1000/d, warn: 0.4%}, \
                    quiet: {key: api_key, rate: 10/d}, seen: {key: api_key, rate: 5/d, mode: shadow, warn: 20%}}\n\
                    routes: [{name: both, match: {path: /both}, respond: {status: 200}, limits: [soon, other, seen]}, \
                    {name: quiet, match: {path: /quiet}, respond: {status: 200}, limits: [quiet]}]\n";

fn warnings(gateway: &Gateway, target: &str, key: &str) -> Vec<String> {
    let answer = gateway.ask("GET", target, &[("x-api-key", key)]);
    answer.head.all("x-ratelimit-warning").into_iter().map(str::to_owned).collect()
}

fn counted(gateway: &Gateway, limit: &str) -> f64 {
    gateway.metric("sluicegate_limit_warnings_total", &[("limit", limit)])
}

/// From the part on that the file says, answers name the limit; each key is counted once when it comes there.
fn warns(gateway: &Gateway) {
    for request in 1..=10 {
        let mut expected = Vec::new();
        if request >= 8 {
            expected.push("soon");
        }
        if request >= 4 {
            expected.push("other");
        }
        assert_eq!(warnings(gateway, "/both", "a"), expected, "request {request}");
    }
    let refused = gateway.ask("GET", "/both", &[("x-api-key", "a")]);
    assert_eq!((refused.status, refused.head.all("x-ratelimit-warning")), (429, vec!["soon", "other"]));
    assert!(warnings(gateway, "/both", "b").is_empty());
    assert!(warnings(gateway, "/quiet", "a").is_empty());
    assert_eq!(["soon", "other", "quiet"].map(|limit| counted(gateway, limit)), [1.0, 1.0, 0.0]);
    // What a limit in shadow mode would say is counted, and not told.
    assert_eq!(counted(gateway, "seen"), 2.0);
}

#[test]
fn clients_are_warned_before_they_are_refused() {
    warns(&Gateway::start(TEXT));
}

#[test]
fn shared_limits_warn_too() {
    let redis = RedisServer::start();
    warns(&Gateway::start(&(redis.store_within("2s") + TEXT)));
}

/// A reload that keeps the counters keeps who was warned.
#[test]
fn a_reload_counts_nobody_again() {
    let text = "limits: {l: {key: api_key, rate: 10/d, warn: 50%}}\n\
                routes: [{name: all, respond: {status: 200}, limits: [l]}]\n";
    let gateway = Gateway::start(text);
    (0..6).for_each(|_| _ = gateway.ask("GET", "/", &[("x-api-key", "a")]));
    assert_eq!(counted(&gateway, "l"), 1.0);
    gateway.reload(&text.replace("status: 200", "status: 204"));
    assert_eq!(gateway.ask("GET", "/", &[("x-api-key", "a")]).status, 204);
    assert_eq!(counted(&gateway, "l"), 1.0);
}
