//! Which keys keep their places, who gets one, and at what price.
#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::time::Duration;

use sluicegate_limiter::{Rate, TokenBucket};

use super::*;

const NOW: Time = Time::from_nanos(1_795_000_000_000_000_000);
/// What a request owes until it is paid.
const DEBT: Span = Span::from_secs(100);

/// A table of sixteen shards where each key may spend one.
fn table(max_keys: usize) -> Table<TokenBucket> {
    Table::new(TokenBucket::new(Rate::new(1, DEBT).unwrap(), 1).unwrap(), max_keys)
}

/// The `n`-th of `of` keys that lie evenly in a shard.
fn key(shard: u64, n: u64, of: u64) -> Fingerprint {
    Fingerprint::from_hash((shard << 40) | (((2 * n + 1) << 31) / of))
}

/// Wherever the only key is that owes nothing, its place goes to the first who asks.
#[test]
fn the_place_of_an_idle_key_is_found_in_any_shard() {
    let (before, now) = (Time::from_nanos(NOW.as_nanos() - DEBT.as_nanos()), NOW);
    for idle in 0..16 {
        let table = table(16);
        for shard in 0..16 {
            assert!(
                table
                    .acquire(key(shard, 0, 1), if shard == idle { before } else { now }, 1, None)
                    .answer
                    .is_ok()
            );
        }
        let asked = table.acquire(key(7, 1, 2), now, 1, None);
        assert_eq!((asked.key, asked.answer.is_ok()), (key(7, 1, 2), true), "idle in shard {idle}");
        assert_eq!((table.entries(), table.overflowed()), (16, 0));
        assert_eq!(
            table.acquire(key(8, 1, 2), now, 1, None).key,
            Fingerprint::OVERFLOW,
            "all others owe something"
        );
    }
}

/// Each key that is added pays for a few slots, the next ones, and for no more: also where keys that crowd one place
/// move up as others leave.
#[test]
fn a_sweep_is_small_and_the_next_one_goes_on() {
    for of in [100, 1 << 31] {
        let table = table(1_000);
        (0..100).for_each(|n| _ = table.acquire(key(3, n, of), NOW, 1, None));
        let (later, slots) = (NOW.plus(DEBT), lock(&table.shards[3].0).slots.size());
        let mut left = table.entries();
        // A look is at a key that leaves, or at a slot that is passed.
        for _ in 0..(100 + slots).div_ceil(8) {
            table.sweep_a_little(key(3, 0, 1), later);
            assert!(left - table.entries() <= 8, "{} left at once", left - table.entries());
            left = table.entries();
        }
        assert_eq!(left, 0);
    }
}

/// The overflow bucket takes no key's place, in the smallest table too, and is dropped when it owes nothing.
#[test]
fn the_overflow_bucket_takes_no_place() {
    for places in [1, 2] {
        let table = table(places);
        for shard in 0..places as u64 {
            table.acquire(key(shard, 0, 1), NOW, 1, None);
        }
        let half = NOW.plus(Span::from_secs(50));
        assert!(table.acquire(key(9, 0, 1), half, 1, None).answer.is_ok());
        assert!(table.acquire(key(9, 0, 1), half, 1, None).answer.is_err());
        assert_eq!((table.entries(), table.overflowed()), (places, 2));
        // The keys are idle then, the overflow bucket is not.
        let asked = table.acquire(key(9, 0, 1), NOW.plus(DEBT), 1, None);
        assert_eq!((asked.key, asked.answer.is_ok()), (key(9, 0, 1), true));
        assert!(table.usage(Fingerprint::OVERFLOW, half).is_some());
        for shard in 10..10 + places as u64 {
            let asked = table.acquire(key(shard, 0, 1), NOW.plus(Span::from_secs(200)), 1, None);
            assert_eq!(asked.key, key(shard, 0, 1));
        }
        assert_eq!(table.overflowed(), 2);
        assert!(table.usage(Fingerprint::OVERFLOW, half).is_none());
        table.forget();
        assert_eq!(table.entries(), 0);
    }
}

/// A table that is full of keys that owe something, and keys that find no place in it.
fn full(algorithm: TokenBucket) -> (Table<TokenBucket>, impl Fn(u64) -> Fingerprint) {
    let table = Table::new(algorithm, 1_000);
    let mixed = |n: u64| Fingerprint::from_hash((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (0..1_000).for_each(|n| _ = table.acquire(mixed(n), NOW, 1, None));
    assert_eq!(table.entries(), 1_000);
    (table, move |n| mixed(n + 1_000))
}

/// In a flood of new keys the overflow bucket refuses nearly all: such requests do not wait for each other, whether they
/// are under one limit or several.
#[test]
fn what_the_overflow_bucket_refuses_waits_for_nobody() {
    let (table, new) = full(TokenBucket::new(Rate::new(1, DEBT).unwrap(), 1).unwrap());
    let admitted = table.acquire(new(0), NOW, 1, None);
    assert_eq!((admitted.key, admitted.answer), (Fingerprint::OVERFLOW, Ok(Span::ZERO)));
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        // A request that is in the middle of its decision.
        let held = table.lock_key(new(1), NOW, Some(1), None);
        assert_eq!((held.key(), held.check(NOW, 1)), (Fingerprint::OVERFLOW, Err(Refusal::Until(DEBT))));
        scope.spawn(|| {
            let asked = table.acquire(new(2), NOW, 1, None);
            let held = table.lock_key(new(3), NOW, Some(1), None);
            done.send((asked.answer, asked.usage.remaining, held.check(NOW, 1))).unwrap();
        });
        let others = is_done.recv_timeout(Duration::from_secs(20));
        drop(held); // before the other thread is waited for
        assert_eq!(others, Ok((Err(Refusal::Until(DEBT)), 0, Err(Refusal::Until(DEBT)))));
    });
    assert_eq!(table.overflowed(), 4);
}

/// Whoever shares the overflow bucket, it admits exactly what it holds, and again when that is paid.
#[test]
fn the_overflow_bucket_admits_exactly_what_it_holds() {
    let (table, new) = full(TokenBucket::new(Rate::new(100, DEBT).unwrap(), 100).unwrap());
    for (turn, now, admits) in [(0, NOW, 100), (1, NOW.plus(Span::from_secs(50)), 50)] {
        // By the second turn the keys owe nothing: others take their places, and the rest of these overflow.
        let admitted = std::thread::scope(|scope| {
            let threads = [0, 1, 2, 3].map(|thread| {
                let (table, new) = (&table, &new);
                scope.spawn(move || {
                    let ask = |n: u64| table.acquire(new(turn << 40 | thread << 32 | n), now, 1, None);
                    (0..1_000).map(ask).filter(|a| a.key == Fingerprint::OVERFLOW && a.answer.is_ok()).count()
                })
            });
            threads.map(|thread| thread.join().unwrap()).iter().sum::<usize>()
        });
        assert_eq!(admitted, admits);
    }
}

/// Keys are those that owe something; of a large table a part says how many.
#[test]
fn keys_are_counted_or_estimated() {
    let table = table(100_000);
    let mixed = |n: u64| Fingerprint::from_hash((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let later = NOW.plus(Span::from_secs(50));
    (0..20_000).for_each(|n| _ = table.acquire(mixed(n), if n % 4 == 0 { later } else { NOW }, 1, None));
    assert_eq!((table.entries(), table.keys(later)), (20_000, 20_000));
    assert_eq!(table.keys(NOW.plus(DEBT)), 5_000);
    let estimate = table.keys_in(8_192, NOW.plus(DEBT), |algorithm, state| {
        !sluicegate_limiter::Algorithm::is_idle(algorithm, state, NOW.plus(DEBT))
    });
    assert!((4_500..=5_500).contains(&estimate), "{estimate}");
    assert_eq!(table.keys(later.plus(DEBT)), 0);
}
