//! Clients that leave at any moment, over every way to count: nothing is charged twice, and nothing is lost.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::faults::Random;
use crate::harness::fleet::has_store;
use crate::harness::relay::Relay;
use crate::harness::{Gateway, RedisServer, Setup, Upstream, deadline, in_parallel, sleep, until, within};

const REQUESTS: usize = 20_000;
const THREADS: usize = 16;
const TOKENS: u64 = 50_000;

/// What counts the requests, each on a route of its own.
const KINDS: [&str; 8] = ["local", "shared", "leased", "fair", "fairs", "late", "lates", "queued"];

/// A token comes back every ten minutes, which no run takes.
const FILE: &str = "limits:
  local: {key: global, rate: 50k/366d, scope: local}
  shared: {key: global, rate: 50k/366d}
  leased: {key: global, rate: 50k/366d, sync: leased}
  fair: {key: global, rate: 50k/366d, scope: local, fair: {by: 'header:x-tenant'}}
  fairs: {key: global, rate: 50k/366d, fair: {by: 'header:x-tenant'}}
  late: {key: global, rate: 50k/366d, scope: local, cost: {request: 1, response_header: X-Cost, reserve: 7}}
  lates: {key: global, rate: 50k/366d, cost: {request: 1, response_header: X-Cost, reserve: 7}}
  queued: {key: global, algorithm: leaky_bucket, rate: 500/s, burst: 400, max_delay: 1s, scope: local}
  places: {key: global, algorithm: concurrency, max: 1000}
";

/// Sends a request and leaves, or waits for the answer. Returns whether an answer came.
fn ask(edge: SocketAddr, kind: &str, tenant: usize, random: &mut Random) -> bool {
    let mut stream = TcpStream::connect(edge).unwrap();
    let head = format!("GET /{kind} HTTP/1.1\r\nHost: a\r\nX-Tenant: {tenant}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    if random.below(4) == 0 {
        stream.set_read_timeout(Some(deadline())).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200") || answer.starts_with(b"HTTP/1.1 429"), "{kind}");
        return true;
    }
    sleep(random.time(1..40) - Duration::from_millis(1));
    if random.below(2) == 0 {
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap(); // resets the connection
    }
    false
}

fn charged(gateway: &Gateway, limit: &str) -> u64 {
    TOKENS - gateway.remaining(limit, "any")
}

#[test]
fn clients_that_leave_are_charged_once_or_not_at_all() {
    let redis = RedisServer::start();
    let relay = Relay::start(redis.address, 1);
    relay.delay(2);
    let upstream = Upstream::scripted(|exchange| {
        // Answers come at once or a little later.
        sleep(Duration::from_millis((exchange.seen.connection as u64 * 7 + exchange.seen.turn as u64) % 13));
        exchange.answer(200, &[("X-Cost", "3")], b"done");
    });
    let routes: String = KINDS
        .iter()
        .map(|kind| {
            format!(
                "  - {{name: {kind}, match: {{path: /{kind}}}, upstream: {kind}, limits: [{kind}, places]}}\n"
            )
        })
        .collect();
    let upstreams: String = KINDS
        .iter()
        .map(|kind| {
            format!(
                "  {kind}: {{servers: [\"http://{{upstream}}\"], max_connections: 8, max_pending: 5000}}\n"
            )
        })
        .collect();
    let store = redis.store_within("5s").replace(&redis.address.to_string(), &relay.address.to_string());
    let gateway = Setup::default()
        .upstream(&upstream)
        .workers(2)
        .start(&format!("{store}{FILE}upstreams:\n{upstreams}routes:\n{routes}"));
    until("the store is used", || has_store(&gateway).then_some(()));
    let (next, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    in_parallel(THREADS, |thread| {
        let mut random = Random::seeded(thread as u64);
        loop {
            let number = next.fetch_add(1, Ordering::SeqCst);
            if number >= REQUESTS {
                return;
            }
            let kind = KINDS[number % KINDS.len()];
            let came = ask(gateway.edge, kind, number % 5, &mut random);
            answered.fetch_add(usize::from(came), Ordering::SeqCst);
        }
    });
    assert!((REQUESTS / 5..REQUESTS / 3).contains(&answered.load(Ordering::SeqCst)));
    until("all places are free", || {
        (gateway.admin_get("/limits/places/keys/any").json()["remaining"] == 1_000).then_some(())
    });
    let metric = |name: &str, labels: &[(&str, &str)]| gateway.metric(name, labels) as u64;
    let admitted = |limit: &str| {
        metric("sluicegate_limit_decisions_total", &[("limit", limit), ("outcome", "admitted")])
    };
    let outcomes = |upstream: &str| {
        metric("sluicegate_upstream_requests_total", &[("upstream", upstream), ("outcome", "answered")])
    };
    for limit in ["local", "shared", "leased", "fair", "fairs"] {
        let mut seen = (0, 0);
        let equal = within(deadline(), || {
            seen = (charged(&gateway, limit), admitted(limit));
            (seen.0 == seen.1).then_some(())
        });
        assert!(
            equal.is_some(),
            "{limit}: charged and admitted are {seen:?}, {} fallbacks",
            gateway.metric("sluicegate_store_fallbacks_total", &[])
        );
        assert!(
            outcomes(limit) <= admitted(limit) && admitted(limit) <= (REQUESTS / KINDS.len()) as u64,
            "{limit}"
        );
        assert!(outcomes(limit) > 300, "{limit}: {}", outcomes(limit));
    }
    for limit in ["late", "lates"] {
        // A request without an answer costs nothing in the end.
        until("what is charged is what was answered", || {
            (charged(&gateway, limit) == 4 * outcomes(limit)).then_some(())
        });
        assert!(outcomes(limit) > 300, "{limit}: {}", outcomes(limit));
    }
    until("the queue is empty", || (gateway.remaining("queued", "any") == 400).then_some(()));
    assert_eq!(gateway.metric("sluicegate_store_fallbacks_total", &[]), 0.0);
}
