//! Rules that another gateway keeps apply as they do there, and end in time while it is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::harness::client::head;
use serde_json::json;

use crate::harness::{Client, Gateway, Setup, TOKEN, Upstream, until};

const LIMITS: &str = "limits:\n  \
                      one: {key: 'header:x-a', rate: 5/366d, on_missing: skip}\n  \
                      two: {key: ['header:x-b', 'header:x-c'], rate: 6/366d, on_missing: skip}\n\
                      routes: [{name: api, respond: {status: 200}, limits: [one, two]}]\n";

fn keeper() -> Gateway {
    Gateway::start(&format!("rules: {{file: rules.db, wait: 1s}}\n{LIMITS}"))
}

/// Writes rules, a line of JSON for each.
#[track_caller]
fn batch(keeper: &Gateway, lines: &str) {
    let mut client = Client::connect(keeper.admin);
    let (bearer, length) = (format!("Bearer {TOKEN}"), lines.len().to_string());
    let headers = [("host", "localhost"), ("authorization", &bearer), ("content-length", &length)];
    client.request("POST", "/rules:batch", &headers).send(lines);
    let answer = client.response();
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// The limit of a request with these headers, whose values may be any bytes.
#[track_caller]
fn limit(gateway: &Gateway, headers: &[(&str, &[u8])]) -> u64 {
    let mut request = head("GET", "/", &[]);
    request.truncate(request.len() - 2);
    for (name, value) in headers {
        request.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    request.extend(b"\r\n");
    let mut client = gateway.client();
    client.send(request);
    let answer = client.response();
    assert!(matches!(answer.status, 200 | 429), "{answer:?}");
    answer.number("x-ratelimit-limit")
}

/// The gateway that keeps the rules and one that asks it for them apply the same rule to the same request.
#[test]
fn the_same_rule_applies_on_both() {
    let keeper = keeper();
    let text = format!(
        "rules: {{url: \"http://{}/rules\", token: {TOKEN}, timeout: 10s, wait: 1s}}\n",
        keeper.admin
    );
    let other = Gateway::start(&(text + LIMITS));
    let rule = |id: &str, limit: &str, key: &str, more: &str| {
        format!("{{\"id\":\"{id}\",\"limit\":\"{limit}\",\"key\":\"{key}\",{more}}}\n")
    };
    // The later of two rules of a key applies, whatever their ids are.
    batch(&keeper, &rule("a", "one", "twice", "\"rate\":\"10/366d\""));
    batch(&keeper, &rule("b", "one", "twice", "\"rate\":\"20/366d\""));
    batch(&keeper, &rule("c", "one", "vip*", "\"rate\":\"30/366d\""));
    batch(&keeper, &rule("d", "two", "eu*,*", "\"rate\":\"40/366d\""));
    let many = |number| rule(&format!("m{number:04}"), "one", "many", "\"rate\":\"50/366d\"");
    batch(&keeper, &(0..1_100).map(many).collect::<String>());
    batch(&keeper, &rule("m9999", "one", "many", "\"rate\":\"60/366d\",\"priority\":5"));
    type Headers<'a> = &'a [(&'a str, &'a [u8])];
    let cases: [(Headers<'_>, u64); 7] = [
        (&[("x-a", b"twice")], 20),
        (&[("x-a", b"vip-1")], 30),
        (&[("x-a", b"vip-\xff")], 30),
        (&[("x-a", b"vi\xff")], 5),
        (&[("x-b", b"eu-1"), ("x-c", b"x")], 40),
        (&[("x-b", b"eu,1"), ("x-c", b"x,\xffy")], 40),
        (&[("x-a", b"many")], 60),
    ];
    for (headers, expected) in cases {
        for (place, gateway) in [("where they are kept", &keeper), ("elsewhere", &other)] {
            until(&format!("{headers:?} has {expected} {place}"), || {
                (limit(gateway, headers) == expected).then_some(())
            });
        }
    }
}

/// The end of a rule holds while the service that said it is away.
#[test]
fn rules_begin_and_end_while_their_source_is_away() {
    let is_away = Arc::new(AtomicBool::new(false));
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3);
    let shown = Arc::clone(&is_away);
    let service = Upstream::scripted(move |exchange| {
        let target = exchange.seen.target.clone();
        if shown.load(Ordering::SeqCst) {
            return exchange.close();
        }
        match target.contains(":changes") {
            true => exchange.answer(404, &[], b""),
            false => {
                let key =
                    target.split("key=").nth(1).and_then(|rest| rest.split('&').next()).unwrap_or_default();
                let rule = |id: &str, burst: u64, times: &[&str]| {
                    let mut rule =
                        json!({"id": id, "limit": "one", "key": key, "rate": format!("{burst}/366d")});
                    times.iter().for_each(|time| rule[time] = end.to_string().into());
                    rule
                };
                let rules = match key {
                    "ends" => vec![rule("a", 50, &["until"])],
                    "follows" => vec![rule("a", 50, &["until"]), rule("b", 20, &[])],
                    "begins" => vec![rule("a", 70, &["from"])],
                    _ => vec![rule("a", 50, &[])],
                };
                exchange.answer(200, &[], json!({ "rules": rules }).to_string().as_bytes());
            }
        }
    });
    let text =
        format!("rules: {{url: \"http://{}/rules\", ttl: 1s, timeout: 100ms, wait: 1s}}\n", service.address);
    let gateway = Gateway::start(&(text + LIMITS));
    let of = |key: &str| limit(&gateway, &[("x-a", key.as_bytes())]);
    let all = || ["ends", "follows", "begins", "stays"].map(of);
    until("all have their rules", || (all() == [50, 50, 5, 50]).then_some(()));
    is_away.store(true, Ordering::SeqCst);
    until("the rules have ended and begun", || (all() == [5, 20, 70, 50]).then_some(()));
    assert!(jiff::Timestamp::now() >= end - jiff::SignedDuration::from_millis(100), "not before their time");
    for _ in 0..20 {
        assert_eq!(all(), [5, 20, 70, 50]);
    }
}

/// An answer with a rule that cannot be used changes nothing, whatever is wrong with it; the log says what.
#[test]
fn nonsense_of_a_service_keeps_the_rule_that_was_known() {
    let wrong = [
        json!({"rate": "many"}),
        json!({"rate": 5}),
        json!({"rate": "5/366d", "burst": 0}),
        json!({"rate": "5/366d", "colour": "red"}),
        json!({"rate": "5/366d", "until": "soon"}),
        json!({"rate": "5/366d", "priority": 1_000_000_000}),
        json!({"rate": "5/366d", "exempt": true}),
        json!({}),
    ];
    let all = wrong.len();
    let rate = Arc::new(AtomicU64::new(50));
    let now = Arc::clone(&rate);
    let service = Upstream::scripted(move |exchange| {
        let Some((_, key)) = exchange.seen.target.split_once("key=k") else {
            return exchange.answer(404, &[], b"");
        };
        let number: usize = key.split('&').next().unwrap().parse().unwrap();
        let mut rule = json!({"id": "a", "limit": "one", "key": format!("k{number}")});
        let said = match now.load(Ordering::SeqCst) {
            0 => wrong[number].clone(),
            rate => json!({"rate": format!("{rate}/366d")}),
        };
        rule.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        exchange.answer(200, &[], json!({ "rules": [rule] }).to_string().as_bytes());
    });
    let text = format!("rules: {{url: \"http://{}/rules\", ttl: 1s, wait: 1s}}\n", service.address);
    let gateway = Gateway::start(&(text + LIMITS));
    let limits = || -> Vec<u64> {
        (0..all).map(|number| limit(&gateway, &[("x-a", format!("k{number}").as_bytes())])).collect()
    };
    until("all have their rules", || (limits() == vec![50; all]).then_some(()));
    rate.store(0, Ordering::SeqCst);
    let asked = service.seen().len();
    until("each was asked for again, twice", || {
        assert_eq!(limits(), vec![50; all]);
        let asked: Vec<_> = service.seen().split_off(asked).into_iter().map(|seen| seen.target).collect();
        let often =
            |number| asked.iter().filter(|target| target.contains(&format!("key=k{number}&"))).count() > 1;
        (0..all).all(often).then_some(())
    });
    // It says so once in ten seconds, of whichever rule came first.
    let said = "the rule of the key that was read before stays in force";
    assert!(gateway.log().contains(said), "{}", gateway.log());
    rate.store(60, Ordering::SeqCst);
    until("all have their next rules", || (limits() == vec![60; all]).then_some(()));
}

/// What limits make of rules is dropped soon when the rules have other numbers: a process whose rules change all the time does not
/// fill its memory.
#[test]
fn numbers_that_no_rule_has_any_more_are_dropped() {
    const RULES: usize = 11_000;
    let text = format!("rules: {{file: rules.db, max_cached: 1k, wait: 1s}}\n{LIMITS}");
    let keeper = Setup::default().env("RUST_LOG", "sluicegate=debug").start(&text);
    for first in (0..RULES).step_by(1_000) {
        let rule = |number| {
            let rate = number + 10;
            format!(
                "{{\"id\":\"r{number}\",\"limit\":\"one\",\"key\":\"k{number}\",\"rate\":\"{rate}/366d\"}}\n"
            )
        };
        batch(&keeper, &(first..first + 1_000).map(rule).collect::<String>());
    }
    let mut client = keeper.client();
    for number in 0..RULES {
        client.send(head("GET", "/", &[("x-a", &format!("k{number}"))]));
        assert_eq!(client.response().number("x-ratelimit-limit"), number as u64 + 10);
    }
    keeper.times_logged("what is remembered of rules has become too much");
}
