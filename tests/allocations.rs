//! A decision does not allocate memory, so that an attack cannot make it expensive.
#![allow(missing_docs, clippy::unwrap_used)]
#![allow(unsafe_code, reason = "an allocator that counts has to be one")]

mod harness;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use sluicegate_base::incoming::{Peer, Request};
use sluicegate_gateway::request::pipeline::evaluate;
use sluicegate_gateway::resources;
use sluicegate_gateway::snapshot::{Opened, SnapshotBuilder};
use sluicegate_limiter::{Span, Time};
use sluicegate_wire::RequestHead;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const RULES: &str = "
listen: [127.0.0.1:8080]
limits:
  per-key: {key: api_key | ip, rate: 5/h}
  per-path: {key: [ip, path], algorithm: fixed_window, rate: 100000/h}
routes:
  - {name: api, match: {host: api.test, path: /v1/*}, respond: {status: 200}, limits: [per-key, per-path]}
";

/// A cached token gives its user and its claims as keys without an allocation.
#[test]
fn a_remembered_token_allocates_nothing() {
    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    let rules = format!(
        "{}\nauth: {{jwt: {{secret: {SECRET}}}}}\n",
        RULES.replace("api_key | ip", "user").replace("[ip, path]", "['jwt:tenant', path]")
    );
    let config = resources::parse(rules, "gateway.yaml", Path::new(".")).config.unwrap();
    let now = Time::from_nanos(1_795_000_000_000_000_000);
    let snapshot = SnapshotBuilder::default().build(config, Opened::default(), None, now);
    let claims = r#"{"sub":"ada","tenant":7,"exp":1800000000}"#;
    let token = harness::issuer::Signer::hs256(SECRET.as_bytes()).signed(r#"{"alg":"HS256"}"#, claims);
    let request = http::Request::builder().uri("/v1/items").header("host", "api.test");
    let parts: RequestHead =
        request.header("authorization", format!("Bearer {token}")).body(()).unwrap().into_parts().0.into();
    let peer = Peer::plain(0, "203.0.113.9".parse().unwrap());
    for turn in 0..100 {
        let before = ALLOCATIONS.get();
        let (_, selection, decision) =
            evaluate(&snapshot, Request { head: &parts, peer }, now.plus(Span::from_millis(turn)), true)
                .unwrap();
        let allocations = ALLOCATIONS.get() - before;
        assert_eq!(selection.selected.len(), 2);
        assert_eq!(decision.admitted, turn < 5);
        if turn > 0 {
            assert_eq!(allocations, 0, "turn {turn}");
        }
    }
}

/// Two limits on one request, admitted or refused: no allocation from the head to the decision.
#[test]
fn a_decision_allocates_nothing() {
    allocates_nothing(RULES, Path::new("."));
}

/// Finding the consumer of an API key does not allocate.
#[test]
fn a_known_key_allocates_nothing() {
    let folder = tempfile::TempDir::new().unwrap();
    // The SHA-256 of `k1`.
    let digest = "6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2c446f0e58668b09c08a16dd0";
    let file = format!("- {{name: acme, key: sha256:{digest}, plan: pro}}\n");
    std::fs::write(folder.path().join("consumers.yaml"), file).unwrap();
    let rules = RULES.replace("api_key | ip", "consumer");
    let auth = "auth: {api_key: {consumers: consumers.yaml, required: true}}\n";
    allocates_nothing(&format!("{auth}{rules}"), folder.path());
}

fn allocates_nothing(rules: &str, folder: &Path) {
    let loaded = resources::parse(rules.into(), "gateway.yaml", folder);
    let now = Time::from_nanos(1_795_000_000_000_000_000);
    let snapshot = SnapshotBuilder::default().build(loaded.config.unwrap(), Opened::default(), None, now);
    let request = http::Request::builder()
        .uri("/v1/items?page=2")
        .header("host", "api.test:8080")
        .header("x-api-key", "k1")
        .header("user-agent", "test");
    let parts: RequestHead = request.body(()).unwrap().into_parts().0.into();
    let peer = Peer::plain(0, "203.0.113.9".parse().unwrap());
    let (mut admitted, mut refused) = (0, 0);
    for turn in 0..1_000 {
        let at = now.plus(Span::from_millis(turn));
        let before = ALLOCATIONS.get();
        let (_, _, decision) = evaluate(&snapshot, Request { head: &parts, peer }, at, true).unwrap();
        let allocations = ALLOCATIONS.get() - before;
        if turn > 0 {
            assert_eq!(allocations, 0, "turn {turn}"); // the first request allocates the slots of its shard
        }
        match decision.admitted {
            true => admitted += 1,
            false => refused += 1,
        }
    }
    assert_eq!((admitted, refused), (5, 995));
}
