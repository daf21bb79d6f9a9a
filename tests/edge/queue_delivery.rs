//! Queued requests on their way: attempts, order, reloads, and processes and servers that go away.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::queue::{before, file, location, outcome, post};
use crate::harness::{Gateway, Setup, Upstream, deadline, sleep, until};

const QUEUE: &str = "key: global, rate: 20/s, burst: 1, accept: 202, queue: {file: queue.db}";

/// Sends requests until one is queued. Returns where its outcome will be.
fn queued(gateway: &Gateway, target: &str) -> String {
    until("a request is queued", || {
        let answer = post(gateway, target, &[], b"body");
        (answer.status == 202).then(|| location(&answer))
    })
}

fn length(gateway: &Gateway) -> u64 {
    gateway.admin_get("/queues").json()[0]["length"].as_u64().unwrap()
}

/// A failed attempt is made again after a pause, which the upstream may lengthen, with the same key each time.
#[test]
fn attempts_that_fail_are_made_again() {
    let count = Arc::new(AtomicUsize::new(0));
    let of_upstream = Arc::clone(&count);
    let upstream = Upstream::scripted(move |exchange| {
        let body = exchange.body().unwrap_or_default();
        if exchange.seen.head.one("idempotency-key").is_none() {
            return exchange.answer(200, &[], b"");
        }
        match of_upstream.fetch_add(1, Ordering::SeqCst) {
            0 => exchange.answer(503, &[("Retry-After", "2")], b""),
            1 => exchange.reset(),
            _ => exchange.answer(200, &[], &body),
        }
    });
    let gateway = before(&upstream, "", QUEUE);
    let at = queued(&gateway, "/");
    let document = outcome(&gateway, &at, &[], "delivered");
    assert_eq!(document["attempts"], 3, "{document}");
    let seen = upstream.seen();
    let keys: Vec<_> = seen.iter().filter_map(|seen| seen.head.one("idempotency-key")).collect();
    assert_eq!(keys.len(), 3);
    assert!(keys.iter().all(|key| *key == keys[0]));
    let retried = [("limit", "l"), ("event", "retried")];
    assert_eq!(gateway.metric("sluicegate_queue_events_total", &retried), 2.0);
}

/// Of a long answer the beginning is kept, and nothing is reported as cut.
#[test]
fn the_beginning_of_a_long_answer_is_kept() {
    let upstream = Upstream::scripted(|exchange| exchange.answer(200, &[], &[b'x'; 100_000]));
    let gateway = before(&upstream, "", QUEUE);
    let at = queued(&gateway, "/");
    let answer = outcome(&gateway, &at, &[], "delivered")["answer"].clone();
    assert_eq!((&answer["truncated"], answer["body"].as_str().unwrap().len()), (&true.into(), 64 << 10));
    let metrics = gateway.admin_get("/metrics").text();
    let mut cut = metrics.lines().filter(|line| line.starts_with("sluicegate_responses_cut_total"));
    assert!(cut.all(|line| line.ends_with(" 0")), "{metrics}");
}

/// What the upstream never accepts becomes a dead letter, which operators queue again or drop. What is wrong in itself is not
/// tried again.
#[test]
fn dead_letters_wait_for_an_operator() {
    let is_broken = Arc::new(AtomicUsize::new(1));
    let of_upstream = Arc::clone(&is_broken);
    let upstream = Upstream::scripted(move |exchange| {
        let poisoned = exchange.seen.target == "/poison" && of_upstream.load(Ordering::SeqCst) == 1;
        let status = if poisoned {
            500
        } else if exchange.seen.target == "/bad" {
            422
        } else {
            200
        };
        exchange.answer(status, &[], b"");
    });
    let limit = QUEUE.replace("queue.db", "queue.db, max_attempts: 2");
    let gateway = before(&upstream, "", &limit);
    let bad = queued(&gateway, "/bad");
    assert_eq!(outcome(&gateway, &bad, &[], "delivered")["answer"]["status"], 422, "an answer is an answer");
    let (first, second) = (queued(&gateway, "/poison"), queued(&gateway, "/poison"));
    let good = queued(&gateway, "/good");
    outcome(&gateway, &good, &[], "delivered");
    for at in [&first, &second] {
        let document = outcome(&gateway, at, &[], "failed");
        assert_eq!(
            (&document["attempts"], &document["reason"]),
            (&2.into(), &"the upstream answered 500".into())
        );
    }
    is_broken.store(0, Ordering::SeqCst);
    let id = |at: &str| at.rsplit('/').next().unwrap().to_owned();
    let failed = gateway.admin_get("/queues/l/requests?state=failed").json();
    let failed: Vec<_> = failed["requests"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(failed, [id(&first), id(&second)]);
    let change = |what: &str, body: &str| gateway.admin_post(&format!("/queues/l/{what}"), body);
    assert_eq!(change("retry", &format!("{{\"id\": \"{}\"}}", id(&good))).status, 409);
    assert_eq!(change("retry", "{}").status, 400);
    assert_eq!(change("drop", &format!("{{\"id\": \"{}\"}}", id(&first))).json()["changed"], 1);
    assert_eq!(change("retry", "{\"all\": true}").json()["changed"], 1);
    outcome(&gateway, &second, &[], "delivered");
    assert_eq!(gateway.get(&first).status, 404);
    assert_eq!(gateway.admin_get("/queues/none/requests").status, 404);
}

/// While no server of the upstream can be reached, nothing is lost and no attempt counts.
#[test]
fn a_dead_upstream_costs_no_attempts() {
    let upstream = Upstream::echoing();
    let port = crate::harness::ReservedPort::new();
    let nobody = port.listen().local_addr().unwrap();
    let yaml = file("", &QUEUE.replace("queue.db", "queue.db, max_attempts: 1"));
    let gateway = Setup::default().value("upstream", nobody).start(&yaml);
    let all: Vec<String> = (0..12).map(|_| queued(&gateway, "/")).collect();
    sleep(Duration::from_millis(1_500));
    assert_eq!(length(&gateway), 12);
    gateway.reload(&yaml.replace("{upstream}", &upstream.address.to_string()));
    for at in &all {
        assert_eq!(outcome(&gateway, at, &[], "delivered")["attempts"], 1);
    }
}

/// With `order: key` no request overtakes another of its key, neither in the queue nor past it.
#[test]
fn the_order_of_a_key_is_kept() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (of_upstream, first) = (Arc::clone(&seen), AtomicUsize::new(0));
    let upstream = Upstream::scripted(move |exchange| {
        let fails = exchange.seen.target == "/1" && first.fetch_add(1, Ordering::SeqCst) == 0;
        if !fails {
            of_upstream.lock().unwrap().push(exchange.seen.target.clone());
        }
        exchange.answer(if fails { 500 } else { 200 }, &[], b"");
    });
    let limit =
        QUEUE.replace("key: global", "key: header:X-Shop").replace("queue.db", "queue.db, order: key");
    let gateway = before(&upstream, "", &limit);
    let send = |shop: &str, number: usize| post(&gateway, &format!("/{number}"), &[("X-Shop", shop)], b"");
    assert_eq!(send("a", 0).status, 200);
    let accepted: Vec<String> = (1..4).map(|number| location(&send("a", number))).collect();
    // The limit admits requests again long before the first one is tried again: they wait behind it all the same.
    sleep(Duration::from_millis(500));
    let late = location(&send("a", 4));
    assert_eq!(send("b", 5).status, 200, "another key does not wait");
    for at in accepted.iter().chain([&late]) {
        outcome(&gateway, at, &[("X-Shop", "a")], "delivered");
    }
    let order: Vec<String> = seen.lock().unwrap().iter().filter(|target| *target != "/5").cloned().collect();
    assert_eq!(order, ["/0", "/1", "/2", "/3", "/4"]);
    sleep(Duration::from_millis(200));
    assert_eq!(send("a", 6).status, 200, "nothing waits any more");
}

/// A consumer with many requests does not keep another one waiting.
#[test]
fn consumers_are_served_in_turn() {
    let upstream = Upstream::echoing();
    let limit = "key: global, rate: 10/s, burst: 1, accept: 202, queue: {file: queue.db}";
    let top = "client_ip: {trusted_proxies: [127.0.0.1]}";
    let gateway = before(&upstream, top, limit);
    let send = |client: &str| post(&gateway, "/", &[("X-Forwarded-For", client)], b"");
    assert_eq!(send("10.0.0.1").status, 200);
    (0..20).for_each(|_| _ = location(&send("10.0.0.1")));
    let at = location(&send("10.0.0.2"));
    outcome(&gateway, &at, &[("X-Forwarded-For", "10.0.0.2")], "delivered");
    assert!(length(&gateway) >= 10, "{} of 20 are left", length(&gateway));
}

/// The identity is that of the time when the request was accepted, and the credential is not kept.
#[test]
fn the_identity_is_kept_and_the_credential_is_not() {
    let upstream = Upstream::echoing();
    let top = "auth: {api_key: {consumers: consumers.yaml, forward: true}}";
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"secret-of-acme-123");
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let consumers = format!("- {{name: acme, plan: gold, key: \"sha256:{digest}\"}}\n");
    let limit = "key: consumer, rate: 1/s, burst: 1, accept: 202, queue: {file: queue.db}, plans: {gold: {rate: 2/s, burst: 1}}";
    let gateway =
        Setup::default().upstream(&upstream).file("consumers.yaml", &consumers).start(&file(top, limit));
    let key = [("X-Api-Key", "secret-of-acme-123"), ("X-Kept", "kept")];
    assert_eq!(post(&gateway, "/?a=1", &key, b"").status, 200);
    let accepted: Vec<String> = (0..3).map(|_| location(&post(&gateway, "/?a=1", &key, b"x"))).collect();
    assert!(!accepted.is_empty());
    gateway.write_file(
        "consumers.yaml",
        "- {name: other, key: \"sha256:0123456789012345678901234567890123456789012345678901234567890123\"}\n",
    );
    let seen = upstream.wait_for(4);
    for seen in &seen[1..] {
        let head = &seen.head;
        assert_eq!(head.one("x-consumer"), seen_header(&seen_first(&upstream), "x-consumer").as_deref());
        assert_eq!((head.one("x-kept"), head.one("x-api-key")), (Some("kept"), None));
        assert_eq!((seen.target.as_str(), &seen.body[..]), ("/?a=1", &b"x"[..]));
    }
}

/// With `keep_credentials` the upstream sees the credential, and the file does not show it.
#[test]
fn credentials_are_kept_encrypted() {
    let upstream = Upstream::echoing();
    let limit = QUEUE.replace("20/s", "2/s").replace("queue.db", "queue.db, keep_credentials: true");
    let gateway = before(&upstream, "", &limit);
    let headers = [("Authorization", "Bearer secret-of-acme-123"), ("X-Api-Key", "other-secret-456")];
    assert_eq!(post(&gateway, "/?access_token=third-secret-789", &headers, b"").status, 200);
    let at = location(&post(&gateway, "/?access_token=third-secret-789", &headers, b"x"));
    for name in ["queue.db", "queue.db-wal"] {
        let bytes = std::fs::read(gateway.path(name)).unwrap_or_default();
        for secret in ["secret-of-acme", "other-secret", "third-secret"] {
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret} in {name}");
        }
    }
    outcome(&gateway, &at, &headers, "delivered");
    let seen = upstream.last();
    assert_eq!(seen.head.one("authorization"), Some("Bearer secret-of-acme-123"));
    assert_eq!(seen.head.one("x-api-key"), Some("other-secret-456"));
    assert_eq!(seen.target, "/?access_token=third-secret-789");
}

fn seen_first(upstream: &Upstream) -> crate::harness::Seen {
    upstream.seen().remove(0)
}

fn seen_header(seen: &crate::harness::Seen, name: &str) -> Option<String> {
    seen.head.one(name).map(str::to_owned)
}

/// A request that another limit of its route does not admit yet does not hold up those that have nothing to do with that limit.
#[test]
fn a_limit_of_one_route_does_not_hold_up_the_others() {
    let upstream = Upstream::echoing();
    let gateway = Setup::default().upstream(&upstream).start(
        "limits:\n  l: {key: 'header:X-Client', rate: 2/s, burst: 1, accept: 202, queue: {file: queue.db}}\n  \
         slow: {key: global, rate: 1/h, burst: 1}\nupstreams:\n  api: {servers: [\"http://{upstream}\"]}\nroutes:\n  \
         - {name: slow, match: {path: /slow}, upstream: api, limits: [l, slow]}\n  - {name: api, upstream: api, limits: [l]}\n",
    );
    let send = |client: &str, target: &str| post(&gateway, target, &[("X-Client", client)], b"x");
    assert_eq!(send("a", "/").status, 200);
    let waits = location(&send("a", "/slow"));
    assert_eq!(send("b", "/slow").status, 200, "what is queued has not been charged");
    sleep(Duration::from_millis(1_000)); // the queue has met the limit that refuses
    assert_eq!(send("c", "/").status, 200);
    let at = location(&send("c", "/"));
    outcome(&gateway, &at, &[("X-Client", "c")], "delivered");
    assert_eq!(gateway.ask("GET", &waits, &[("X-Client", "a")]).json()["attempts"], 0);
}

/// Requests whose secrets cannot be read are not sent without them: they wait for the key.
#[test]
fn what_cannot_be_decrypted_is_not_sent() {
    let upstream = Upstream::echoing();
    let yaml = file("", &QUEUE.replace("queue.db", "queue.db, keep_credentials: true, key_file: one.key"))
        .replace("20/s", "1/h");
    let gateway = Setup::default().upstream(&upstream).start(&yaml);
    let of_alice = [("Authorization", "Bearer alice")];
    assert_eq!(post(&gateway, "/", &of_alice, b"").status, 200);
    let at = location(&post(&gateway, "/", &of_alice, b"x"));
    gateway.reload(&yaml.replace("one.key", "other.key").replace("1/h", "20/s"));
    let document = outcome(&gateway, &at, &of_alice, "failed");
    assert!(document["reason"].as_str().unwrap().contains("key_file"), "{document}");
    gateway.reload(&yaml.replace("1/h", "20/s"));
    assert_eq!(gateway.admin_post("/queues/l/retry", "{\"all\": true}").json()["changed"], 1);
    outcome(&gateway, &at, &of_alice, "delivered");
    assert_eq!(upstream.seen().last().unwrap().head.one("authorization"), Some("Bearer alice"));
}

/// A reload keeps what is queued. A limit without a queue leaves its requests in the file until it has one again, and a route
/// that is gone makes dead letters.
#[test]
fn reloads_lose_nothing() {
    let upstream = Upstream::echoing();
    let yaml = file("", &QUEUE.replace("rate: 20/s", "rate: 1/h"));
    let gateway = Setup::default().upstream(&upstream).start(&yaml);
    assert_eq!(post(&gateway, "/", &[], b"").status, 200);
    let all: Vec<String> = (0..3).map(|_| location(&post(&gateway, "/old", &[], b"x"))).collect();
    gateway.reload(&yaml.replace("accept: 202, queue: {file: queue.db}", "mode: enforce"));
    assert!(gateway.times_logged("3 requests of the limit `l` will not be delivered") >= 1);
    assert_eq!(post(&gateway, "/", &[], b"x").status, 429);
    gateway.reload(&yaml.replace("path: /*", "path: /new"));
    for at in &all {
        let document = outcome(&gateway, at, &[], "failed");
        assert_eq!(document["reason"], "no_route (404)", "{document}");
    }
    gateway.reload(&yaml.replace("1/h", "50/s"));
    assert_eq!(gateway.admin_post("/queues/l/retry", "{\"all\": true}").json()["changed"], 3);
    all.iter().for_each(|at| _ = outcome(&gateway, at, &[], "delivered"));
}

/// A rate that is raised, for one key or all, applies to what waits already.
#[test]
fn a_raised_rate_applies_to_what_waits() {
    let upstream = Upstream::echoing();
    for key in ["global", "ip"] {
        let yaml = file("", &QUEUE.replace("global", key).replace("20/s", "1/h"));
        let gateway = Setup::default().upstream(&upstream).start(&yaml);
        assert_eq!(post(&gateway, "/", &[], b"").status, 200);
        let at = location(&post(&gateway, "/", &[], b"x"));
        sleep(Duration::from_millis(300));
        gateway.reload(&yaml.replace("1/h", "10/s"));
        outcome(&gateway, &at, &[], "delivered");
    }
}

/// A limit that does not depend on who asks queues requests of known consumers, too.
#[test]
fn a_limit_of_all_queues_what_consumers_send() {
    let upstream = Upstream::echoing();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"secret-of-acme-123");
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let gateway = Setup::default()
        .upstream(&upstream)
        .file("consumers.yaml", &format!("- {{name: acme, key: \"sha256:{digest}\"}}\n"))
        .start(&file(
            "auth: {api_key: {consumers: consumers.yaml, required: true}}",
            &QUEUE.replace("20/s", "2/s"),
        ));
    let key = [("X-Api-Key", "secret-of-acme-123")];
    assert_eq!(post(&gateway, "/", &key, b"").status, 200);
    let at = location(&post(&gateway, "/", &key, b"x"));
    assert_eq!(post(&gateway, "/", &[], b"x").status, 429, "nobody queues without a key");
    outcome(&gateway, &at, &key, "delivered");
}

/// A gateway that is killed loses nothing that it has accepted, and sends nothing twice under another key.
#[test]
fn a_killed_gateway_loses_nothing() {
    let in_progress = Arc::new(Mutex::new(Vec::<String>::new()));
    let (of_upstream, twice) = (Arc::clone(&in_progress), Arc::new(AtomicUsize::new(0)));
    let of_script = Arc::clone(&twice);
    let upstream = Upstream::scripted(move |exchange| {
        let body = exchange.body().unwrap_or_default();
        let key = exchange.seen.head.one("idempotency-key").unwrap_or_default().to_owned();
        if !key.is_empty() && of_upstream.lock().unwrap().contains(&key) {
            of_script.fetch_add(1, Ordering::SeqCst);
        }
        of_upstream.lock().unwrap().push(key.clone());
        exchange.pause(Duration::from_millis(5));
        of_upstream.lock().unwrap().retain(|other| *other != key);
        exchange.answer(200, &[], &body);
    });
    let limit = QUEUE.replace("20/s", "50/s");
    let mut gateway = before(&upstream, "", &limit);
    let mut accepted = Vec::new();
    for round in 0..4 {
        for number in 0..60 {
            let body = format!("{round}-{number}");
            let answer = post(&gateway, "/", &[], body.as_bytes());
            if answer.status == 202 {
                accepted.push((location(&answer), body));
            }
        }
        gateway.signal("KILL");
        gateway.ended(deadline());
        gateway = gateway.again();
    }
    assert!(accepted.len() > 50, "{}", accepted.len());
    for (at, body) in &accepted {
        let document = outcome(&gateway, at, &[], "delivered");
        assert_eq!(document["answer"]["body"], *body);
    }
    let mut keys = std::collections::HashMap::<String, Vec<u8>>::new();
    for seen in upstream.seen() {
        if let Some(key) = seen.head.one("idempotency-key") {
            let first = keys.entry(key.to_owned()).or_insert_with(|| seen.body.clone());
            assert_eq!(*first, seen.body, "a key is of one request");
        }
    }
    assert_eq!(keys.len(), accepted.len());
}

/// Another process takes over with what is queued; so does one that is started after a drain.
#[test]
fn a_successor_delivers_what_is_queued() {
    let upstream = Upstream::echoing();
    let mut gateway = before(&upstream, "", &QUEUE.replace("20/s", "10/s"));
    let mut accepted: Vec<String> = (0..8).map(|_| queued(&gateway, "/")).collect();
    let mut second = gateway.successor();
    assert_eq!(gateway.ended(deadline()).code(), Some(0));
    accepted.push(queued(&second, "/"));
    second.signal("TERM");
    assert_eq!(second.ended(deadline()).code(), Some(0));
    let third = second.again();
    for at in &accepted {
        assert_eq!(outcome(&third, at, &[], "delivered")["attempts"], 1);
    }
}

/// A queue that cannot be written accepts nothing, and the gateway goes on.
#[test]
fn a_broken_queue_accepts_nothing() {
    let upstream = Upstream::echoing();
    let gateway = before(&upstream, "", &QUEUE.replace("20/s", "1/h"));
    assert_eq!(post(&gateway, "/", &[], b"").status, 200);
    let at = location(&post(&gateway, "/", &[], b"x"));
    std::fs::rename(gateway.path("queue.db"), gateway.path("away.db")).unwrap();
    let refused = post(&gateway, "/", &[], b"x");
    assert_eq!((refused.status, &refused.problem()["reason"]), (503, &"queue".into()));
    assert!(gateway.times_logged("was removed or replaced") >= 1);
    std::fs::rename(gateway.path("away.db"), gateway.path("queue.db")).unwrap();
    location(&post(&gateway, "/", &[], b"x"));
    outcome(&gateway, &at, &[], "queued");
}

/// A file that is no queue stops the start, with its name.
#[test]
fn a_file_from_elsewhere_is_not_touched() {
    let gateway = Setup::default().value("upstream", "127.0.0.1:1").start(&file("", QUEUE));
    for (name, content) in [("text.db", "not a database"), ("list.txt", "10.0.0.0/8\n")] {
        std::fs::write(gateway.path(name), content).unwrap();
        let (edge, admin) = (crate::harness::ReservedPort::new(), crate::harness::ReservedPort::new());
        let (edge, admin) = (edge.listen().local_addr().unwrap(), admin.listen().local_addr().unwrap());
        let yaml = format!(
            "listen: [\"{edge}\"]\nadmin: {{address: \"{admin}\"}}\n{}",
            file("", &QUEUE.replace("queue.db", name))
        );
        gateway.write_file("other.yaml", &yaml.replace("{upstream}", "127.0.0.1:1"));
        let (code, log) = gateway.rival("other.yaml", &[]);
        assert_eq!(code, Some(2), "{log}");
        assert!(log.contains(name), "{log}");
        assert_eq!(std::fs::read_to_string(gateway.path(name)).unwrap(), content);
    }
}
