//! What a running gateway tells of the last hour: the busiest keys, and the traffic by second.

use serde_json::{Value, json};

use crate::harness::folder::text;
use crate::harness::{Fleet, Gateway, RedisServer, patience, program, until, within};

const LIMITS: &str = "limits:\n  per-key: {key: api_key, rate: 2/day}\n  \
    per-ip: {key: ip, rate: 1000/day}\n  quiet: {key: ip, rate: 1/day, mode: shadow}\n\
    routes:\n  - {name: all, match: {path: /v1/*}, respond: {status: 200}, limits: [per-key, per-ip, quiet]}\n  \
    - {name: broken, match: {path: /broken}, respond: {status: 503}}\n";

fn top(gateway: &Gateway, query: &str) -> Vec<(Option<String>, u64)> {
    let shown = gateway.admin_get(&format!("/limits/{query}")).json();
    let all = shown["keys"].as_array().unwrap_or_else(|| panic!("{shown}")).iter();
    all.map(|one| (one["key"].as_str().map(str::to_owned), one["count"].as_u64().unwrap())).collect()
}

/// The first 16 digits of the SHA-256 of a key, as `replay` and `explain` show it.
fn digest(name: &str) -> Option<String> {
    Some(format!("api_key:sha256:{name}"))
}

#[test]
fn the_busiest_and_the_most_refused_keys_are_told() {
    let gateway = Gateway::start(LIMITS);
    for (key, requests) in [("one", 5), ("two", 7), ("three", 2)] {
        gateway.statuses(requests, "/v1/x", &[("x-api-key", key)]);
    }
    gateway.statuses(1, "/v1/x", &[]);
    let (one, two) = (digest("7692c3ad3540bb80"), digest("3fc4ccfe745870e2"));
    assert_eq!(top(&gateway, "per-key/top"), [(two.clone(), 5), (one.clone(), 3)]);
    let three = digest("8b5b9db0c13db24256c8"[..16].as_ref());
    let busiest = top(&gateway, "per-key/top?by=requests&most=3");
    assert_eq!(busiest, [(two.clone(), 7), (one, 5), (three, 2)]);
    assert_eq!(top(&gateway, "per-key/top?by=requests")[3], (None, 1), "requests without the key");
    assert_eq!(top(&gateway, "quiet/top"), [(Some("ip:127.0.0.1".to_owned()), 14)], "what would be refused");
    assert!(top(&gateway, "per-ip/top").is_empty());

    let admin = gateway.admin.to_string();
    let run = |arguments: &[&str]| {
        let done = program().args(["top", "--admin", &admin, "--once"]).args(arguments).output().unwrap();
        assert!(done.status.success(), "{}", text(&done));
        String::from_utf8(done.stdout).unwrap()
    };
    let lines = run(&["--json"]);
    let shown: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(shown.len(), 3, "a line for each limit");
    assert_eq!((&shown[0]["limit"], &shown[0]["gateways"]), (&json!("per-key"), &json!(1)));
    assert_eq!(shown[0]["keys"][0], json!({ "key": two, "count": 5, "error": 0 }));
    assert!(run(&["--limit", "per-key", "--by", "requests"]).contains("7  api_key:sha256:3fc4ccfe745870e2"));
}

#[test]
fn keys_are_shown_in_full_if_that_is_allowed() {
    let gateway = Gateway::start(&format!("admin: {{address: \"{{admin}}\", show_keys: true}}\n{LIMITS}"));
    gateway.statuses(3, "/v1/x", &[("x-api-key", "one\u{9b}2J")]);
    assert_eq!(top(&gateway, "per-key/top"), [(Some("api_key:one\u{9b}2J".to_owned()), 1)]);
    let done = program().args(["top", "--admin", &gateway.admin.to_string(), "--once"]).output().unwrap();
    assert!(text(&done).contains("one\\u{9b}2J"), "nothing of a key controls the terminal: {}", text(&done));
}

/// Waits until something is told. Gateways tell each other every five seconds.
#[track_caller]
fn becomes_true(what: &str, look: impl Fn() -> bool) {
    assert!(within(patience(30), || look().then_some(())).is_some(), "not told: {what}");
}

/// Of shared limits, the keys of all gateways are told, also by one that has had none of the requests.
#[test]
fn gateways_tell_each_other_their_keys() {
    let mut redis = RedisServer::start();
    let file = redis.store()
        + "limits:\n  shared: {key: \"header:x-user\", rate: 2/day}\n  here: {key: ip, rate: 1/day, scope: local}\n\
           routes: [{name: all, respond: {status: 200}, limits: [shared, here]}]\n";
    let fleet = Fleet::start(3, &file);
    let user = |name: &str, count: u64| (Some(format!("x-user:{name}")), count);
    fleet[0].statuses(5, "/", &[("x-user", "a")]);
    fleet[1].statuses(3, "/", &[("x-user", "a")]);
    fleet[1].statuses(4, "/", &[("x-user", "b")]);
    let all = [user("a", 8), user("b", 4)];
    for gateway in &*fleet {
        becomes_true("the keys of all", || top(gateway, "shared/top?by=requests") == all);
        becomes_true("three gateways", || gateway.admin_get("/limits/shared/top").json()["gateways"] == 3);
    }
    assert!(top(&fleet[2], "here/top?by=requests").is_empty(), "this one is not shared");
    redis.kill();
    becomes_true("only its own", || top(&fleet[0], "shared/top?by=requests") == [user("a", 5)]);
}

/// Each second is told once, with what each limit did, and later answers go on where an earlier one has ended.
#[test]
fn the_last_minutes_are_told() {
    let gateway = Gateway::start(LIMITS);
    gateway.statuses(5, "/v1/x", &[("x-api-key", "k")]);
    assert_eq!(gateway.get("/broken").status, 503);
    let sum = |column: &Value| column.as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>();
    let live = until("all are counted", || {
        let live = gateway.admin_get("/live").json();
        let seconds = live["rings"].get(0)?.clone();
        (sum(&seconds["requests"]) == 6).then_some(live)
    });
    for ring in live["rings"].as_array().unwrap() {
        assert_eq!((sum(&ring["requests"]), sum(&ring["refused"]), sum(&ring["errors"])), (6, 3, 1));
        let of = |limit: &str, what: &str| sum(&ring["limits"][limit][what]);
        assert_eq!((of("per-key", "admitted"), of("per-key", "refused")), (2, 3));
        assert_eq!((of("quiet", "shadow_refused"), of("quiet", "refused")), (4, 0));
    }
    let routes = live["routes"].as_array().unwrap();
    let all = routes.iter().find(|route| route["route"] == "all").unwrap();
    assert_eq!((&all["requests"], &all["classes"]), (&json!(5), &json!({ "2xx": 2, "4xx": 3 })));
    assert!(all["sent"]["bytes"].as_u64().unwrap() > 0 && all["p99"].as_f64().unwrap() > 0.0);
    let later = gateway.admin_get(&format!("/live?since={}", live["time"])).json();
    assert!(later["rings"][0]["requests"].as_array().unwrap().len() < 5);
    assert_eq!(later["peak"]["requests"].as_u64().unwrap(), live["peak"]["requests"].as_u64().unwrap());
}

/// A reload that renames a route takes none of its requests out of the second in which it happens.
#[test]
fn renamed_routes_keep_their_requests() {
    let file =
        |name: &str| format!("routes: [{{name: {name}, match: {{path: /*}}, respond: {{status: 503}}}}]\n");
    let gateway = Gateway::start(&file("r0"));
    for round in 1..=8 {
        gateway.statuses(10, "/", &[]);
        gateway.reload(&file(&format!("r{round}")));
    }
    until("all are counted", || {
        let live = gateway.admin_get("/live").json();
        let sum = |column: &str| -> u64 {
            live["rings"][0][column].as_array().into_iter().flatten().filter_map(Value::as_u64).sum()
        };
        ((sum("requests"), sum("errors")) == (80, 80)).then_some(())
    });
}
