//! Requests above a limit with a queue: who is answered 202, who may see what became of the request, and what is refused.

use serde_json::Value;

use crate::harness::folder::outcomes;
use crate::harness::{Folder, Gateway, RedisServer, Response, Setup, Stopwatch, Upstream, sleep, until};
use std::time::Duration;

/// A gateway with a limit `l` before an upstream. `{store}` in the text of the limit is left out.
pub(crate) fn before(upstream: &Upstream, top: &str, limit: &str) -> Gateway {
    Setup::default().upstream(upstream).handover().start(&file(top, limit))
}

/// Its file.
pub(crate) fn file(top: &str, limit: &str) -> String {
    format!(
        "{top}\nlimits:\n  l: {{{limit}}}\nupstreams:\n  api: {{servers: [\"http://{{upstream}}\"]}}\nroutes:\n  \
         - {{name: api, match: {{path: /*}}, upstream: api, limits: [l]}}\n"
    )
}

/// Sends a POST with this body.
pub(crate) fn post(gateway: &Gateway, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
    gateway.client().post(target, headers, body)
}

/// The address where the outcome of a queued request can be read.
#[track_caller]
pub(crate) fn location(response: &Response) -> String {
    assert_eq!(response.status, 202, "{}", response.text());
    response.header("location").expect("a 202 has a Location").to_owned()
}

/// Waits until a queued request is in this state.
#[track_caller]
pub(crate) fn outcome(gateway: &Gateway, at: &str, headers: &[(&str, &str)], state: &str) -> Value {
    until(&format!("{at} is {state}"), || {
        let document = gateway.ask("GET", at, headers).json();
        (document["state"] == state).then_some(document)
    })
}

/// For each algorithm and place of counting and form of cost: one request is answered at once, the others are queued, and are
/// delivered one after the other at the pace of the limit.
#[test]
fn what_is_above_a_limit_is_delivered_at_its_pace() {
    let redis = RedisServer::start();
    let shared = redis.store();
    let (token, leaky) = ("burst: 1", "algorithm: leaky_bucket, burst: 1, max_delay: 1ms");
    let cases = [
        ("", token, "cost: 1"),
        ("", leaky, "cost: 1"),
        ("", "burst: 2", "cost: 2"),
        ("", token, "cost: header:X-Cost"),
        ("", token, "cost: {response_header: X-Used, request: 1}"),
        (&shared, token, "cost: 1"),
        (&shared, leaky, "cost: 1"),
        (&shared, "burst: 1, scope: local", "cost: 1"),
        (&shared, "burst: 2", "cost: 2"),
    ];
    for (store, algorithm, cost) in cases {
        let upstream = Upstream::scripted(|exchange| {
            let body = exchange.body().unwrap();
            exchange.answer(201, &[("X-Used", "1")], &body);
        });
        let rate = if cost == "cost: 2" { "rate: 8/s" } else { "rate: 4/s" };
        let limit = format!("key: ip, {rate}, {algorithm}, {cost}, accept: 202, queue: {{file: queue.db}}");
        let gateway = before(&upstream, store, &limit);
        let watch = Stopwatch::start();
        let mut accepted = Vec::new();
        for number in 0..4 {
            let answer = post(&gateway, &format!("/{number}"), &[("X-Cost", "1")], b"body");
            if answer.status == 202 {
                accepted.push(location(&answer));
            } else {
                assert_eq!((number < 2, answer.status), (true, 201), "{limit}: {}", answer.text());
            }
        }
        assert!(accepted.len() >= 2, "{limit}");
        for at in &accepted {
            let document = outcome(&gateway, at, &[("X-Cost", "1")], "delivered");
            assert_eq!(
                (&document["answer"]["status"], &document["answer"]["body"]),
                (&201.into(), &"body".into())
            );
        }
        let all = accepted.len() as u32;
        assert!(watch.elapsed() >= Duration::from_millis(250) * (all - 1), "{limit}: {:?}", watch.elapsed());
        let seen = upstream.seen();
        assert_eq!(seen.len(), 4, "{limit}");
        let keys = seen.iter().filter_map(|seen| seen.head.one("idempotency-key"));
        assert_eq!(keys.collect::<std::collections::HashSet<_>>().len(), accepted.len(), "{limit}");
        let queued = [("limit", "l"), ("outcome", "queued")];
        assert_eq!(gateway.metric("sluicegate_limit_decisions_total", &queued), f64::from(all), "{limit}");
    }
}

/// The answer says where the outcome will be, and when about.
#[test]
fn the_answer_says_when_and_where() {
    let upstream = Upstream::echoing();
    let gateway = before(&upstream, "", "key: global, rate: 1/h, accept: 202, queue: {file: queue.db}");
    assert_eq!(post(&gateway, "/", &[], b"").status, 200);
    for position in 1..=3_u64 {
        let answer = post(&gateway, "/", &[], b"x");
        let document = answer.json();
        assert_eq!(location(&answer), format!("/.well-known/queue/{}", document["id"].as_str().unwrap()));
        assert_eq!((&document["state"], &document["position"]), (&"queued".into(), &position.into()));
        let expected = document["expected_seconds"].as_u64().unwrap();
        assert!((3_600 * position - 5..=3_600 * position).contains(&expected), "{document}");
        assert_eq!(answer.number("retry-after"), expected);
        assert_eq!(answer.number("x-ratelimit-remaining"), 0);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    let log = gateway.admin_get("/queues").json();
    assert_eq!((&log[0]["limit"], &log[0]["length"]), (&"l".into(), &3.into()), "{log}");
}

/// Only whoever has the same credential and key sees and cancels a request; others learn nothing, whatever they guess.
#[test]
fn only_its_owner_sees_a_request() {
    let upstream = Upstream::echoing();
    let top = "auth: {api_key: {consumers: consumers.yaml}}";
    let limit = "key: consumer, rate: 1/h, accept: 202, queue: {file: queue.db}";
    let digest = |key: &str| {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.as_bytes());
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let consumers = format!(
        "- {{name: a, key: \"sha256:{}\"}}\n- {{name: b, key: \"sha256:{}\"}}\n",
        digest("key-of-a-0123456789"),
        digest("key-of-b-0123456789")
    );
    let gateway =
        Setup::default().upstream(&upstream).file("consumers.yaml", &consumers).start(&file(top, limit));
    let (a, b) = ([("X-Api-Key", "key-of-a-0123456789")], [("X-Api-Key", "key-of-b-0123456789")]);
    assert_eq!(post(&gateway, "/", &a, b"").status, 200);
    let at = location(&post(&gateway, "/", &a, b"x"));
    let state = |headers: &[(&str, &str)], method: &str| gateway.ask(method, &at, headers).status;
    assert_eq!(state(&a, "GET"), 200);
    for headers in [&b[..], &[], &[("X-Api-Key", "unknown")]] {
        assert_eq!((state(headers, "GET"), state(headers, "DELETE")), (404, 404));
    }
    let unknown = gateway.ask("GET", "/.well-known/queue/00000000000000000000000000000000", &a);
    let foreign = gateway.ask("GET", &at, &b);
    assert_eq!(unknown.json()["detail"], foreign.json()["detail"], "nobody learns which names there are");
    for name in ["", "x", "../queue", "%00", &"f".repeat(33), &"F".repeat(32)] {
        assert_eq!(gateway.ask("GET", &format!("/.well-known/queue/{name}"), &a).status, 404, "{name}");
    }
    assert_eq!(state(&a, "POST"), 405);
    assert_eq!(state(&a, "DELETE"), 200);
    assert_eq!(gateway.ask("GET", &at, &a).json()["state"], "cancelled");
    assert_eq!(state(&a, "DELETE"), 409);
    assert_eq!(upstream.seen().len(), 1, "it was never sent");
    for name in ["queue.db", "queue.db-wal"] {
        let bytes = std::fs::read(gateway.path(name)).unwrap();
        assert!(!bytes.windows(8).any(|part| part == b"key-of-a"), "{name} has a credential");
    }
}

/// A request whose time is over is gone, and so is its outcome after a while.
#[test]
fn what_is_not_delivered_in_time_expires() {
    let upstream = Upstream::echoing();
    let limit = "key: global, rate: 1/h, accept: 202, queue: {file: queue.db, ttl: 1s, keep: 2s}";
    let gateway = before(&upstream, "", limit);
    assert_eq!(post(&gateway, "/", &[], b"").status, 200);
    let at = location(&post(&gateway, "/", &[], b"x"));
    until("it has expired", || (gateway.get(&at).status == 410).then_some(()));
    assert_eq!(gateway.get(&at).json()["state"], "expired");
    let expired = [("limit", "l"), ("event", "expired")];
    assert_eq!(gateway.metric("sluicegate_queue_events_total", &expired), 1.0);
    until("it is forgotten", || (gateway.get(&at).status == 404).then_some(()));
    assert_eq!(upstream.seen().len(), 1);
}

/// A full queue refuses with the time in which there is room; so does one into which a body does not fit.
#[test]
fn a_full_queue_refuses() {
    let upstream = Upstream::echoing();
    let limit =
        "key: global, rate: 1/min, accept: 202, queue: {file: queue.db, max_length: 2, max_body: 1KiB}";
    let gateway = before(&upstream, "", limit);
    assert_eq!(post(&gateway, "/", &[], b"").status, 200);
    let (large, chunk) = (vec![b'x'; 1_025], format!("{:x}\r\n{}\r\n0\r\n\r\n", 1_025, "x".repeat(1_025)));
    assert_eq!(post(&gateway, "/", &[], &large).status, 429);
    let mut client = gateway.client();
    let chunked = format!("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}");
    let answer = client.send(chunked).response();
    assert_eq!((answer.status, &answer.json()["reason"]), (429, &"limit".into()), "{}", answer.text());
    let kept: Vec<String> = (0..2).map(|_| location(&post(&gateway, "/", &[], &large[..1_024]))).collect();
    let full = post(&gateway, "/", &[], b"x");
    assert_eq!((full.status, &full.problem()["reason"]), (429, &"queue".into()));
    assert!((55..=60).contains(&full.number("retry-after")), "{:?}", full.head);
    assert_eq!(gateway.metric("sluicegate_queue_events_total", &[("limit", "l"), ("event", "full")]), 1.0);
    let explained = |query: &str| gateway.admin_get(&format!("/explain?{query}")).json();
    let outcome = |explained: &Value| (explained["outcome"].clone(), explained["reason"].clone());
    let refused = explained(&format!("request={}", full.header("x-request-id").unwrap()));
    assert_eq!(outcome(&refused), ("refused".into(), "queue".into()), "{refused}");
    assert_eq!(refused["limits"][0]["name"], "l");
    let now = explained("url=/&method=POST");
    assert_eq!(outcome(&now), ("refused".into(), "queue".into()), "{now}");
    assert_eq!((&now["status"], &now["detail"]), (&429.into(), &"the queue of the limit `l` is full".into()));
    assert_eq!(gateway.ask("DELETE", &kept[0], &[]).status, 200);
    assert_eq!(outcome(&explained("url=/&method=POST")), ("queued".into(), Value::Null));
    location(&post(&gateway, "/", &[], b"x"));
}

/// A client that says how long it waits is answered accordingly, and only such a client is without `accept`.
#[test]
fn preferences_are_honoured() {
    let upstream = Upstream::echoing();
    let queue = "queue: {file: queue.db}";
    let gateway = before(&upstream, "", &format!("key: global, rate: 1/h, {queue}"));
    assert_eq!(
        post(&gateway, "/", &[("Prefer", "respond-async")], b"").status,
        200,
        "it is admitted at once"
    );
    assert_eq!(post(&gateway, "/", &[], b"x").status, 429);
    let answer = post(&gateway, "/", &[("Prefer", "return=minimal, respond-async")], b"x");
    assert_eq!(answer.header("preference-applied"), Some("respond-async"));
    location(&answer);
    drop(gateway);
    // The bucket delays a request by up to a second; whoever does not wait that long is answered 202.
    let limit = format!("key: global, rate: 2/s, burst: 3, algorithm: leaky_bucket, accept: 202, {queue}");
    let gateway = before(&upstream, "", &limit);
    let ask = |prefer: &str| post(&gateway, "/", &[("Prefer", prefer)], b"x").status;
    assert_eq!(ask("wait=0"), 200);
    assert_eq!((ask("wait=0"), ask("respond-async")), (202, 202));
    until("all are delivered", || (upstream.seen().len() == 4).then_some(()));
    sleep(Duration::from_millis(600));
    assert_eq!((ask("wait=5"), ask("wait=5")), (200, 200), "half a second is not too long");
    let last = upstream.seen().into_iter().find_map(|seen| seen.head.one("prefer").map(str::to_owned));
    assert_eq!(last.as_deref(), Some("respond-async"), "what was answered at once is forwarded as it came");
}

/// A client's Idempotency-Key is one request, also if it is sent again.
#[test]
fn a_repeated_request_is_queued_once() {
    let upstream = Upstream::echoing();
    let gateway = before(&upstream, "", "key: ip, rate: 1/h, accept: 202, queue: {file: queue.db}");
    assert_eq!(post(&gateway, "/", &[], b"").status, 200);
    let send = |key: &str, body: &[u8]| post(&gateway, "/", &[("Idempotency-Key", key)], body);
    let first = location(&send("\"a\"", b"one"));
    assert_eq!(location(&send("\"a\"", b"one")), first);
    assert_ne!(location(&send("\"b\"", b"one")), first);
    let reused = send("\"a\"", b"two");
    assert_eq!((reused.status, &reused.problem()["reason"]), (422, &"idempotency_key_reused".into()));
    assert_eq!(gateway.admin_get("/queues").json()[0]["length"], 2);
    // What was cancelled can be sent again, and what has ended says so.
    assert_eq!(gateway.ask("DELETE", &first, &[]).status, 200);
    let second = location(&send("\"a\"", b"one"));
    assert_ne!(second, first);
    gateway.reload(&file("", "key: ip, rate: 50/s, accept: 202, queue: {file: queue.db}"));
    outcome(&gateway, &second, &[], "delivered");
    gateway.reload(&file("", "key: ip, rate: 1/h, accept: 202, queue: {file: queue.db}"));
    until("the limit is used up", || (send("\"c\"", b"x").status == 202).then_some(()));
    let again = send("\"a\"", b"one");
    assert_eq!(location(&again), second);
    assert_eq!((&again.json()["state"], &again.json()["position"]), (&"delivered".into(), &Value::Null));
}

/// Whoever needs an answer now gets one.
#[test]
fn upgrades_and_grpc_are_not_queued() {
    let upstream = Upstream::echoing();
    let gateway = before(&upstream, "", "key: ip, rate: 1/h, accept: 202, queue: {file: queue.db}");
    assert_eq!(gateway.get("/").status, 200);
    let upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
    assert_eq!(gateway.ask("GET", "/", &upgrade).status, 429);
    let grpc = gateway.ask("POST", "/", &[("Content-Type", "application/grpc"), ("Content-Length", "0")]);
    assert_eq!((grpc.status, grpc.header("grpc-status")), (200, Some("8")));
    assert_eq!(gateway.get("/").status, 202);
}

/// An explanation says that a request would be queued; a replay counts what would be, and what waits behind it.
#[test]
fn explanations_and_replays_know_queues() {
    let upstream = Upstream::echoing();
    let limit = "key: global, rate: 1/h, accept: 202, queue: {file: queue.db}";
    let gateway = before(&upstream, "", limit);
    let explained = || gateway.admin_get("/explain?method=POST&url=/").json();
    assert_eq!(explained()["outcome"], "admitted");
    assert_eq!(post(&gateway, "/", &[], b"").status, 200);
    let queued = explained();
    assert_eq!(
        (&queued["outcome"], &queued["status"], &queued["limit"]),
        (&"queued".into(), &202.into(), &"l".into())
    );
    let at = |second: u64| {
        format!("10.0.0.1 - - [10/Oct/2026:13:55:{second:02} +0000] \"POST / HTTP/1.1\" 200 5 \"-\" \"-\"\n")
    };
    let log: String = [0, 0, 0, 0, 2, 3, 9].map(at).concat();
    let rules = "listen: [127.0.0.1:8080]\nlimits: {l: {key: global, rate: 1/s, burst: 1, accept: 202, queue: {file: q.db}}}\n\
         routes: [{name: a, respond: {status: 200}, limits: [l]}]\n";
    let folder = Folder::with(&[("gateway.yaml", rules), ("access.log", &log)]);
    // Of the three that wait, two are delivered by the second 2, all by the second 4, when the one of second 3 follows.
    let expected = ["admitted", "queued", "queued", "queued", "queued", "queued", "admitted"];
    assert_eq!(outcomes(&folder.decisions("access.log")), expected);
    let output = folder.run(&["replay", "access.log", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["admitted"], &report["queued"], &report["refused"]),
        (&2.into(), &5.into(), &0.into())
    );
    assert!(!folder.path("q.db").exists(), "a replay writes nothing");
}
