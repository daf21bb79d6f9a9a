//! What a key costs: how long it lives, and how many bytes it takes.

use sluicegate_counters::{KeyState, RemoteState};
use sluicegate_limiter::{Quota, Time};

use super::quotas::{fixed, fresh, leaky, log, places, rate, sliding, token};
use super::server::{LEASE, Server, Store, decided};
use crate::protocol::argument;

fn clock(store: &mut Store) -> u64 {
    let reply: Vec<u64> = store.command(&["TIME"]);
    reply[0] * 1_000_000 + reply[1]
}

/// The first microsecond after `now` at which the key owes nothing.
fn owes_until(key: &RemoteState, now: u64) -> u64 {
    let idle = |micros: u64| key.is_idle(Time::from_nanos(micros * 1_000));
    let (mut owing, mut free) = (now, now + 1_000_000_000_000_000);
    while free - owing > 1 {
        let middle = owing + (free - owing) / 2;
        if idle(middle) {
            free = middle;
        } else {
            owing = middle;
        }
    }
    free
}

/// A key lives until it owes nothing, not a moment less and hardly more, whatever the algorithm.
#[test]
fn a_key_lives_as_long_as_it_owes() {
    let server = Server::start();
    let mut store = server.connect();
    let (short, long) = (rate(7, 90_000_000), rate(100, 31_622_400_000_000));
    let quotas = [
        token(short, 7),
        token(long, 90),
        token(rate(999_999_937, 60_000_000), 999_999_937),
        leaky(short, 3, None),
        fixed(short),
        fixed(long),
        log(short, false),
        log(long, true),
        sliding(short, 1),
        sliding(short, 7),
        sliding(long, 1_000),
    ];
    for (i, quota) in quotas.iter().enumerate() {
        let key = [format!("life:{i}")];
        let mut state = fresh(quota);
        for _ in 0..3 {
            let (now, admitted, _) = decided(store.decide(&key, &[quota], 0, 1, &[argument(quota, true, 1)]));
            assert_eq!(admitted, 1);
            state.charge(now, 1);
        }
        let before = clock(&mut store);
        let left: i64 = store.command(&["PTTL", &key[0]]);
        assert_ne!(left, -1, "{quota:?} has no end");
        let left = u64::try_from(left).unwrap_or(0); // it may have gone already: some live for a millisecond
        let after = clock(&mut store);
        let until = owes_until(&state, after);
        assert!(after + left * 1_000 + 1_000 > until, "{quota:?} is forgotten too early");
        // The server may stand still after it has read its clock, before the time to live begins.
        let room = if until > after + 10_000_000 { 3_000_000 } else { 10_000 };
        assert!(before + left * 1_000 <= until + room, "{quota:?} lives too long");
    }
    let key = ["life:places".to_owned()];
    decided(store.decide(&key, &[&places(3)], 0, 1, &[argument(&places(3), true, 1)]));
    let left: u64 = store.command(&["PTTL", &key[0]]);
    assert!(left <= LEASE / 1_000 + 10 && left > LEASE / 1_000 - 60_000);
}

/// The bytes of a key of 16 letters, with all that the server keeps beside it.
fn bytes(store: &mut Store, quota: &Quota, requests: u32) -> u64 {
    let key = ["sixteen letters!".to_owned()];
    let _: () = store.command(&["DEL", &key[0]]);
    for _ in 0..requests {
        decided(store.decide(&key, &[quota], 0, 1, &[argument(quota, true, 1)]));
    }
    store.command(&["MEMORY", "USAGE", &key[0]])
}

/// No algorithm takes more of the server's memory for a key than it needs.
#[test]
fn a_key_takes_few_bytes() {
    let server = Server::start();
    let mut store = server.connect();
    let hour = 3_600_000_000;
    let cases = [
        ("token_bucket", token(rate(100, hour), 100), 50, 96),
        ("token_bucket with parts", token(rate(7, 90_000_000), 7), 3, 112),
        ("leaky_bucket", leaky(rate(100, hour), 100, None), 50, 96),
        ("fixed_window", fixed(rate(100, hour)), 50, 112),
        ("sliding_window", sliding(rate(100, hour), 1), 50, 112),
        ("sliding_window of 60 slices", sliding(rate(100, hour), 60), 50, 360),
        ("sliding_log of 10", log(rate(10, hour), false), 10, 160),
        ("sliding_log of 100", log(rate(100, hour), false), 100, 560),
        ("sliding_log of 1,000", log(rate(1_000, hour), false), 1_000, 4_500),
        ("sliding_log of 5,000", log(rate(5_000, hour), false), 5_000, 42_000),
        ("concurrency", places(100), 50, 112),
    ];
    for (name, quota, requests, most) in cases {
        let taken = bytes(&mut store, &quota, requests);
        println!("{name}: {taken} bytes");
        assert!(taken <= most, "{name}: {taken} bytes");
    }
}
