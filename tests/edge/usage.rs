//! Clients can ask for their own limits without being charged.

use crate::harness::{Fleet, RedisServer, Setup};

const TEXT: &str = "limits:\n  \
    per-key: {key: api_key, rate: 10/366d}\n  \
    everyone: {key: global, rate: 1000/366d, algorithm: fixed_window}\n  \
    tried: {key: api_key, rate: 1/d, mode: shadow}\n\
    routes:\n  \
    - {name: usage, match: {path: /.well-known/ratelimit}, respond: usage, limits: [per-key, everyone, tried]}\n  \
    - {name: all, match: {path: /*}, respond: {status: 200}, limits: [per-key, everyone, tried]}\n";

#[test]
fn a_client_sees_what_it_has_left() {
    for store in [None, Some(RedisServer::start())] {
        let gateway =
            Setup::default().start(&(store.as_ref().map_or_else(String::new, RedisServer::store) + TEXT));
        if store.is_some() {
            Fleet::up_of(&gateway);
        }
        let key = [("x-api-key", "k")];
        assert_eq!(gateway.statuses(4, "/", &key), [200; 4]);
        for _ in 0..20 {
            let usage = gateway.ask("GET", "/.well-known/ratelimit", &key);
            assert_eq!((usage.status, usage.header("cache-control")), (200, Some("no-store")));
            assert_eq!(usage.number("x-ratelimit-remaining"), 6);
            let shown = usage.json();
            let limits: Vec<(&str, u64, u64)> = shown["limits"]
                .as_array()
                .unwrap()
                .iter()
                .map(|limit| {
                    let number = |field: &str| limit[field].as_u64().unwrap();
                    (limit["name"].as_str().unwrap(), number("limit"), number("remaining"))
                })
                .collect();
            assert_eq!(
                limits,
                [("per-key", 10, 6), ("everyone", 1_000, 996)],
                "not those that are only tried"
            );
            assert_eq!(shown["limits"][1]["window"], 31_622_400.0);
        }
        let other = gateway.ask("GET", "/.well-known/ratelimit", &[("x-api-key", "other")]);
        assert_eq!(other.json()["limits"][0]["remaining"], 10);
        assert_eq!(gateway.statuses(7, "/", &key), [200, 200, 200, 200, 200, 200, 429]);
        assert_eq!(gateway.ask("GET", "/.well-known/ratelimit", &key).json()["limits"][0]["remaining"], 0);
    }
}

/// Of a bucket that is larger than the rate's count, the window is the time that fills it.
#[test]
fn a_large_bucket_is_shown_with_its_fill_time() {
    let text = "limits: {l: {key: ip, rate: 4/min, burst: 10}}\nroutes:\n  \
                - {name: usage, match: {path: /*}, respond: usage, limits: [l]}\n";
    let gateway = Setup::default().start(text);
    let answer = gateway.get("/");
    let shown = answer.json();
    assert_eq!((&shown["limits"][0]["limit"], &shown["limits"][0]["window"]), (&10.into(), &150.0.into()));
    assert_eq!(answer.header("ratelimit-policy"), Some("\"l\";q=10;w=150"));
}

/// A replay spends nothing for it either.
#[test]
fn a_replay_does_not_charge_it() {
    let folder = tempfile::tempdir().unwrap();
    let (file, log, shown) =
        (folder.path().join("gateway.yaml"), folder.path().join("log"), folder.path().join("decisions"));
    let text = "listen: [127.0.0.1:0]\nlimits: {two: {key: ip, algorithm: fixed_window, rate: 2/day}}\nroutes:\n\
                - {name: left, match: {path: /left}, respond: usage, limits: [two]}\n\
                - {name: all, match: {path: /*}, respond: {status: 200}, limits: [two]}\n";
    std::fs::write(&file, text).unwrap();
    let paths = ["/left", "/left", "/left", "/a", "/a", "/a"];
    let line =
        |path: &&str| format!("{{\"time\": 1, \"client_ip\": \"203.0.113.9\", \"path\": \"{path}\"}}\n");
    std::fs::write(&log, paths.iter().map(line).collect::<String>()).unwrap();
    let mut replay = crate::harness::program();
    replay.arg("replay").arg(&log).arg("--config").arg(&file).arg("--decisions").arg(&shown);
    assert!(replay.output().unwrap().status.success());
    let shown = std::fs::read_to_string(&shown).unwrap();
    let outcome =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["outcome"].to_string();
    let refused: Vec<bool> = shown.lines().map(|line| outcome(line).contains("refused")).collect();
    assert_eq!(refused, [false, false, false, false, false, true]);
}
