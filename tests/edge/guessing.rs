//! Guessing keys is limited: requests that the gateway answers 401 are charged like others, and are refused before a
//! credential is verified.

use crate::harness::issuer::{Signer, soon};
use crate::harness::{Fleet, Gateway, RedisServer, Response, Setup, gated_upstream, in_parallel, until};
use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const RIGHT: [(&str, &str); 1] = [("x-api-key", "right")];
const WRONG: [(&str, &str); 1] = [("x-api-key", "wrong")];
const FAILURES: &str = "cost: {status: [401, 403]}";
const ABNORMAL_USAGE: &str = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";

/// Each test runs over local counters and over Redis.
fn stores() -> [Option<RedisServer>; 2] {
    [None, Some(RedisServer::start())]
}

/// The files of a gateway that knows one key, `right`.
fn known() -> Setup {
    let digest: String =
        digest(&SHA256, b"right").as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Setup::default().file("consumers.yaml", &format!("- {{name: acme, key: sha256:{digest}}}\n"))
}

/// A gateway with these limits, all of one route, that wants a known key.
fn start(store: Option<&RedisServer>, limits: &[(&str, &str)]) -> Gateway {
    let names: Vec<&str> = limits.iter().map(|(name, _)| *name).collect();
    let limits: String = limits.iter().map(|(name, limit)| format!("  {name}: {{{limit}}}\n")).collect();
    let text = store.map_or_else(String::new, RedisServer::store)
        + &format!(
            "auth: {{api_key: {{consumers: consumers.yaml, required: true}}}}\nlimits:\n{limits}routes:\n  \
             - {{name: all, respond: {{status: 200}}, limits: [{}]}}\n",
            names.join(", ")
        );
    let gateway = known().start(&text);
    if store.is_some() {
        Fleet::up_of(&gateway);
    }
    gateway
}

fn ask(gateway: &Gateway, key: &str) -> Response {
    gateway.ask("GET", "/", &[("x-api-key", key)])
}

/// Another wrong key with each request.
fn guess(gateway: &Gateway, count: usize) -> Vec<u16> {
    (0..count).map(|number| ask(gateway, &format!("guess-{number}")).status).collect()
}

/// Waits until so much is left: what is given back is given back behind the answer.
#[track_caller]
fn left(gateway: &Gateway, limit: &str, key: &str, remaining: u64) {
    until(&format!("{remaining} are left of {limit}"), || {
        (gateway.remaining(limit, key) == remaining).then_some(())
    });
}

/// So many failures, then 429 for wrong keys and for right ones; what succeeds gives back what it took.
#[test]
fn only_failures_count() {
    for store in stores() {
        for algorithm in ["token_bucket", "fixed_window", "sliding_log", "sliding_window"] {
            let limit = format!("key: ip, algorithm: {algorithm}, rate: 5/366d, {FAILURES}");
            let gateway = start(store.as_ref(), &[(&format!("failures-{algorithm}"), &limit)]);
            let name = format!("failures-{algorithm}");
            for _ in 0..8 {
                assert_eq!(gateway.ask("GET", "/", &RIGHT).status, 200);
                left(&gateway, &name, "127.0.0.1", 5);
            }
            for remaining in (0..5).rev() {
                let failed = gateway.ask("GET", "/", &WRONG);
                assert_eq!((failed.status, failed.number("x-ratelimit-remaining")), (401, remaining));
                assert!(failed.header("www-authenticate").is_some() && failed.header("ratelimit").is_some());
            }
            for headers in [&WRONG[..], &RIGHT, &[]] {
                let refused = gateway.ask("GET", "/", headers);
                assert_eq!(refused.status, 429, "{algorithm} {headers:?}");
                assert!(refused.number("retry-after") >= 1);
                assert_eq!(refused.problem()["violated-policies"], json!([name]));
            }
            let decided = |outcome| {
                let labels = [("limit", name.as_str()), ("outcome", outcome)];
                gateway.metric("sluicegate_limit_decisions_total", &labels)
            };
            assert_eq!((decided("admitted"), decided("refused")), (13.0, 3.0), "each once");
        }
    }
}

/// Every request is charged once by every limit that has its key, whether it proves itself or not; those that need a
/// proof hear nothing of one that has none.
#[test]
fn each_request_is_charged_once() {
    for store in stores() {
        let limits = [
            ("address", "key: ip, rate: 9/366d"),
            ("consumer", "key: consumer, rate: 7/366d"),
            ("both", "key: '[api_key, ip]', rate: 6/366d"),
            ("either", "key: api_key | ip, rate: 5/366d"),
            ("all", "key: global, algorithm: sliding_log, rate: 8/366d"),
        ]
        .map(|(name, limit)| (name, limit.replace("'[api_key, ip]'", "[api_key, ip]")));
        let limits: Vec<(&str, &str)> = limits.iter().map(|(name, limit)| (*name, limit.as_str())).collect();
        let gateway = start(store.as_ref(), &limits);
        let remain = |limit, key| gateway.remaining(limit, key);
        assert_eq!(gateway.statuses(2, "/", &RIGHT), [200; 2]);
        assert_eq!(guess(&gateway, 3), [401; 3]);
        assert_eq!(gateway.statuses(2, "/", &[]), [401; 2]);
        assert_eq!((remain("address", "127.0.0.1"), remain("all", "")), (2, 1));
        assert_eq!((remain("consumer", "acme"), remain("both", "right,127.0.0.1")), (5, 4));
        assert_eq!((remain("either", "api_key:right"), remain("either", "ip:127.0.0.1")), (3, 0));
        // `either` refuses the address, not the key; and takes nothing from the others.
        assert_eq!(guess(&gateway, 3), [429; 3]);
        assert_eq!((remain("address", "127.0.0.1"), remain("all", "")), (2, 1));
        assert_eq!(ask(&gateway, "right").status, 200);
        assert_eq!((remain("address", "127.0.0.1"), remain("all", "")), (1, 0));
        // Now `all` refuses, before the key is looked up: the limit of the consumer is not even asked.
        let refused = ask(&gateway, "right");
        assert_eq!((refused.status, refused.problem()["violated-policies"].clone()), (429, json!(["all"])));
        assert_eq!(remain("consumer", "acme"), 4);
    }
}

/// A client that sends junk keys is limited by its address, also where known keys have counters of their own.
#[test]
fn unknown_keys_count_for_their_address() {
    for store in stores() {
        let gateway = start(store.as_ref(), &[("l", "key: api_key | ip, rate: 3/366d")]);
        assert_eq!(guess(&gateway, 6), [401, 401, 401, 429, 429, 429]);
        assert_eq!(gateway.statuses(4, "/", &RIGHT), [200, 200, 200, 429]);
    }
}

/// Failures begin bans, and then the right key does not help.
#[test]
fn guessing_is_banned() {
    for store in stores() {
        let ban = "ban: {after: 2, within: 1h, for: 1h}";
        let limit = format!("key: ip, algorithm: sliding_log, rate: 3/min, {FAILURES}, {ban}");
        let gateway = start(store.as_ref(), &[("l", &limit)]);
        assert_eq!(guess(&gateway, 4), [401, 401, 401, 429]);
        for key in ["wrong", "right"] {
            let banned = ask(&gateway, key);
            assert_eq!((banned.status, banned.problem()["type"].as_str()), (429, Some(ABNORMAL_USAGE)));
            assert!((3_590..=3_600).contains(&banned.number("retry-after")), "{key}");
        }
        assert_eq!(gateway.metric("sluicegate_limit_bans_total", &[("limit", "l")]), 1.0);
    }
}

/// However many guesses come at once, on however many threads.
#[test]
fn concurrent_guesses_are_bounded() {
    for store in stores() {
        let gateway = start(store.as_ref(), &[("l", &format!("key: ip, rate: 10/366d, {FAILURES}"))]);
        let mut statuses = in_parallel(40, |number| ask(&gateway, &format!("guess-{number}")).status);
        statuses.sort_unstable();
        assert_eq!(statuses, [vec![401; 10], vec![429; 30]].concat());
    }
}

/// A call over gRPC is refused in its own words.
#[test]
fn a_call_is_charged_too() {
    let gateway = start(None, &[("l", &format!("key: ip, rate: 1/366d, {FAILURES}"))]);
    let call = || gateway.ask("POST", "/s/M", &[("content-type", "application/grpc"), ("x-api-key", "no")]);
    let [first, second] = [call(), call()];
    assert_eq!((first.header("grpc-status"), second.header("grpc-status")), (Some("16"), Some("8")));
}

/// What is only tried refuses nobody, and leaves no mark on what is verified.
#[test]
fn a_shadow_limit_refuses_no_guess() {
    for store in stores() {
        let gateway = start(store.as_ref(), &[("l", "key: ip, rate: 2/366d, mode: shadow")]);
        assert_eq!(guess(&gateway, 5), [401; 5]);
        assert_eq!(ask(&gateway, "right").status, 200);
        let labels = [("limit", "l"), ("outcome", "shadow_refused")];
        assert_eq!(gateway.metric("sluicegate_limit_decisions_total", &labels), 4.0);
    }
}

/// Tokens that do not hold are charged like keys that nobody has, and none is verified once the limit refuses.
#[test]
fn refused_tokens_are_not_verified() {
    for store in stores() {
        let text = store.as_ref().map_or_else(String::new, RedisServer::store)
            + &format!(
                "auth: {{jwt: {{secret: {SECRET}}}}}\nlimits:\n  user: {{key: user, rate: 1/366d, on_missing: skip}}\n  \
                 address: {{key: ip, rate: 4/366d, {FAILURES}}}\nroutes:\n  \
                 - {{name: all, respond: {{status: 200}}, limits: [user, address]}}\n"
            );
        let gateway = Setup::default().start(&text);
        if store.is_some() {
            Fleet::up_of(&gateway);
        }
        let claims = json!({ "sub": "ada", "exp": soon() });
        let bearer = |secret: &str| format!("Bearer {}", Signer::hs256(secret.as_bytes()).token(&claims));
        let (good, forged) = (bearer(SECRET), bearer("another"));
        let asked = |token: &str| gateway.ask("GET", "/", &[("authorization", token)]);
        assert_eq!(asked(&good).status, 200);
        left(&gateway, "address", "127.0.0.1", 4);
        assert_eq!(asked(&good).problem()["violated-policies"], json!(["user"]));
        left(&gateway, "address", "127.0.0.1", 4);
        for token in [&forged, "Bearer eyJ9.e30.AAAA", &forged, &forged] {
            let failed = asked(token);
            let challenge = failed.header("www-authenticate").unwrap();
            assert!(failed.status == 401 && challenge.contains("invalid_token"), "{challenge}");
        }
        for token in [&forged, &good] {
            assert_eq!(
                asked(token).problem()["violated-policies"],
                json!(["address"]),
                "nothing of the user"
            );
        }
    }
}

/// A key that a limit wants and a request lacks is a failure too.
#[test]
fn a_missing_key_is_charged() {
    for store in stores() {
        let text = store.as_ref().map_or_else(String::new, RedisServer::store)
            + &format!(
                "limits:\n  key: {{key: api_key, rate: 10/366d, on_missing: deny}}\n  \
                 address: {{key: ip, rate: 2/366d, {FAILURES}}}\nroutes:\n  \
                 - {{name: all, respond: {{status: 200}}, limits: [key, address]}}\n"
            );
        let gateway = Setup::default().start(&text);
        if store.is_some() {
            Fleet::up_of(&gateway);
        }
        assert_eq!(gateway.statuses(3, "/", &RIGHT), [200; 3]);
        left(&gateway, "address", "127.0.0.1", 2);
        assert_eq!(gateway.statuses(3, "/", &[]), [401, 401, 429]);
        assert_eq!(ask(&gateway, "right").status, 429);
        assert_eq!(gateway.remaining("key", "right"), 7);
    }
}

/// A gateway that remembers that a key was used up asks the store before it verifies anything, and takes nothing by
/// asking.
#[test]
fn units_that_others_returned_admit_a_valid_key() {
    let redis = RedisServer::start();
    let (upstream, gate) = gated_upstream();
    let text = redis.store()
        + &format!(
            "auth: {{api_key: {{consumers: consumers.yaml, required: true}}}}\n\
             limits: {{l: {{key: ip, algorithm: sliding_log, rate: 3/366d, {FAILURES}}}}}\n\
             upstreams: {{api: {{servers: [\"http://{{upstream}}\"]}}}}\n\
             routes: [{{name: all, upstream: api, limits: [l]}}]\n"
        );
    let fleet = Fleet::of(vec![known().upstream(&upstream), known().upstream(&upstream)], &text);
    fleet.up();
    assert_eq!(guess(&fleet[0], 2), [401; 2]);
    let mut client = fleet[0].client();
    client.request("GET", "/slow", &RIGHT);
    upstream.wait_for(1);
    assert_eq!(fleet[1].statuses(2, "/", &RIGHT), [429; 2], "the third is taken until it is answered");
    gate.open();
    assert_eq!(client.response().status, 200);
    left(&fleet[0], "l", "127.0.0.1", 1);
    for _ in 0..10 {
        until("the one that is left is admitted", || {
            (fleet[1].ask("GET", "/", &RIGHT).status == 200).then_some(())
        });
    }
    left(&fleet[0], "l", "127.0.0.1", 1);
    assert_eq!(guess(&fleet[1], 2), [401, 429]);
}

/// The same where a key was pardoned, whatever counts it: what the question took is given back to the unit.
#[test]
fn a_pardon_admits_a_valid_key() {
    for algorithm in ["token_bucket", "fixed_window", "sliding_log", "sliding_window"] {
        let redis = RedisServer::start();
        let ban = "ban: {after: 1000, within: 1h, for: 1h}"; // of which the store hears every refusal
        let text = redis.store()
            + &format!(
                "auth: {{api_key: {{consumers: consumers.yaml, required: true}}}}\nlimits:\n  \
                 {algorithm}: {{key: ip, algorithm: {algorithm}, rate: 3/366d, {ban}}}\n  \
                 here: {{key: ip, rate: 50/366d, scope: local}}\nroutes:\n  \
                 - {{name: all, respond: {{status: 200}}, limits: [{algorithm}, here]}}\n"
            );
        let fleet = Fleet::of(vec![known(), known()], &text);
        fleet.up();
        assert_eq!(guess(&fleet[1], 5), [401, 401, 401, 429, 429]);
        assert_eq!(fleet[1].remaining("here", "127.0.0.1"), 47);
        let path = format!("/limits/{algorithm}/keys/127.0.0.1");
        assert_eq!(fleet[0].admin_change("DELETE", &path).status / 100, 2);
        assert_eq!(fleet[1].ask("GET", "/", &RIGHT).status, 200, "{algorithm}");
        left(&fleet[1], algorithm, "127.0.0.1", 2);
        assert_eq!(fleet[1].remaining("here", "127.0.0.1"), 46);
    }
}

/// Without the store a limit follows its policy for wrong keys as for right ones.
#[test]
fn an_outage_does_not_disable_the_limit() {
    for (policy, outcome) in [("local", [401, 401, 429]), ("open", [401; 3]), ("closed", [503; 3])] {
        let mut redis = RedisServer::start();
        let limit = format!("key: ip, rate: 2/366d, {FAILURES}, on_store_failure: {policy}");
        let gateway = start(Some(&redis), &[("l", &limit)]);
        assert_eq!(ask(&gateway, "right").status, 200);
        left(&gateway, "l", "127.0.0.1", 2);
        redis.kill();
        until("the store is down", || (gateway.metric("sluicegate_store_up", &[]) == 0.0).then_some(()));
        assert_eq!(guess(&gateway, 3), outcome, "{policy}");
    }
}

/// A replay decides as the gateway does.
#[test]
fn a_replay_charges_failures() {
    let folder = tempfile::tempdir().unwrap();
    let (file, log) = (folder.path().join("gateway.yaml"), folder.path().join("log.jsonl"));
    std::fs::write(folder.path().join("consumers.yaml"), "[]\n").unwrap();
    let text = format!(
        "listen: [127.0.0.1:0]\nauth: {{api_key: {{consumers: consumers.yaml, required: true}}}}\n\
         limits: {{l: {{key: ip, rate: 2/day, {FAILURES}}}}}\nroutes: [{{respond: {{status: 200}}, limits: [l]}}]\n"
    );
    std::fs::write(&file, text).unwrap();
    let line = |second: u32| {
        json!({ "time": 1_719_850_000 + second, "client_ip": "203.0.113.9", "method": "GET", "host": "a",
                "path": "/", "headers": { "x-api-key": "wrong" }, "status": 200 })
    };
    std::fs::write(&log, (0..4).map(|second| line(second).to_string() + "\n").collect::<String>()).unwrap();
    let decisions = folder.path().join("decisions");
    let mut replay = crate::harness::program();
    replay.arg("replay").arg(&log).arg("--config").arg(&file).arg("--decisions").arg(&decisions);
    assert!(replay.output().unwrap().status.success());
    let rows = std::fs::read_to_string(&decisions).unwrap();
    let rows: Vec<serde_json::Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let limits: Vec<_> = rows.iter().map(|row| (row["outcome"].clone(), row["limit"].clone())).collect();
    let (by_key, by_limit) = ((json!("refused"), json!(null)), (json!("refused"), json!("l")));
    assert_eq!(limits, [by_key.clone(), by_key, by_limit.clone(), by_limit]);
}
