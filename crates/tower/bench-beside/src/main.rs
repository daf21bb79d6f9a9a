//! What a decision takes here, and in governor and tower_governor: nanoseconds on one thread, and bytes a key.
//!
//! `cargo run --release` in this folder. All requests are admitted; keys are IPv4 addresses, in random order.

mod allocated;
mod decisions;
mod layers;

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// The decisions that are timed.
const DECISIONS: u32 = 4_000_000;
/// The requests that a limit admits of one key at once, more than are sent; then one an hour, so that no key is forgotten.
const BURST: u32 = 100_000;
const PERIOD: Duration = Duration::from_secs(3_600);

/// One way to decide about a request of a client.
trait Contestant {
    /// Whether the request is admitted.
    fn decide(&mut self, client: SocketAddr) -> bool;
}

fn client(number: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number)), 4711)
}

/// Prints the bytes that each key takes, and the nanoseconds of a decision.
fn measure<C: Contestant>(name: &str, keys: u32, make: impl FnOnce() -> C) {
    let mut contestant = make();
    let before = allocated::bytes();
    for number in 0..keys {
        assert!(contestant.decide(client(number)));
    }
    let bytes = allocated::bytes().saturating_sub(before) as f64 / f64::from(keys);
    let mut state = 1_u32;
    let mut best = f64::MAX;
    for _ in 0..3 {
        let started = Instant::now();
        for _ in 0..DECISIONS {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            assert!(black_box(contestant.decide(client(state % keys))));
        }
        best = best.min(started.elapsed().as_nanos() as f64 / f64::from(DECISIONS));
    }
    println!("{name:<34} {keys:>9} keys  {best:>7.1} ns  {bytes:>7.1} bytes a key");
}

fn main() {
    for keys in [1_000, 1_000_000] {
        measure("sluicegate-counters", keys, decisions::Counted::new);
        measure("governor, keyed", keys, decisions::Governed::new);
    }
    for keys in [1_000, 1_000_000] {
        measure("a service without a layer", keys, layers::bare);
        measure("sluicegate-tower, no headers", keys, layers::ours_without_headers);
        measure("tower_governor, no headers", keys, layers::theirs_without_headers);
        measure("sluicegate-tower, X-RateLimit", keys, layers::ours_with_headers);
        measure("tower_governor, use_headers", keys, layers::theirs_with_headers);
        measure("sluicegate-tower, all headers", keys, layers::ours_with_all_headers);
    }
}
