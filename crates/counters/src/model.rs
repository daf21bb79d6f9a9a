//! Every way in which two threads can meet, explored by loom: `cargo test -p sluicegate-counters --features model --lib model`.
#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::sync::Arc;

use sluicegate_limiter::{FixedWindow, Quota, Rate, Span, Time};

use super::sync::{AtomicU64, Ordering};
use super::{Ask, CallsInFlight, CountedLimit, decide, fixture};
use crate::Fingerprint;

fn limit(count: u64, max_keys: usize, order: u64) -> Arc<CountedLimit> {
    let rate = Rate::new(count, Span::from_secs(60)).unwrap();
    fixture::limit(Quota::FixedWindow(FixedWindow::new(rate), rate), max_keys, order)
}

const NOW: Time = Time::from_nanos(1_795_000_000_000_000_000);

fn key(n: u64) -> Fingerprint {
    Fingerprint::from_hash(n)
}

/// Two requests ask the same two limits in opposite orders, and only one can pass: no deadlock, never two, never
/// none, and what the loser did not get it did not pay for.
#[test]
fn two_limits_in_opposite_orders() {
    loom::model(|| {
        let limits = Arc::new((limit(1, 10, 0), limit(2, 10, 1)));
        let other = Arc::clone(&limits);
        let thread = loom::thread::spawn(move || {
            let (a, b) = &*other;
            let asks = [Ask::new(b, key(2), 1, NOW), Ask::new(a, key(1), 1, NOW)];
            decide(&asks, false).admitted
        });
        let (a, b) = &*limits;
        let asks = [Ask::new(a, key(1), 1, NOW), Ask::new(b, key(2), 1, NOW)];
        let own = decide(&asks, false).admitted;
        let others = thread.join().unwrap();
        assert!(own ^ others);
        assert_eq!(a.counters.usage(key(1), NOW).unwrap().remaining, 0);
        assert_eq!(b.counters.usage(key(2), NOW).unwrap().remaining, 1);
    });
}

/// Two new keys meet at a table with one place left: nobody is admitted for nothing, in a place of its own or in
/// the overflow bucket.
#[test]
fn two_new_keys_at_the_last_place() {
    loom::model(|| {
        let limit = limit(1, 1, 0);
        let other = Arc::clone(&limit);
        let thread = loom::thread::spawn(move || decide(&[Ask::new(&other, key(1), 1, NOW)], false).admitted);
        let own = decide(&[Ask::new(&limit, key(1 << 40), 1, NOW)], false).admitted;
        assert!(own && thread.join().unwrap());
        // Whatever happened, all three are spent now.
        for n in [1, 1 << 40] {
            assert!(!decide(&[Ask::new(&limit, key(n), 1, NOW)], false).admitted);
        }
        assert!(limit.counters.entries() <= 2);
    });
}

/// Two new keys meet at a table that is full: one of them has what the overflow bucket holds.
#[test]
fn two_new_keys_share_the_overflow_bucket() {
    loom::model(|| {
        let limit = limit(1, 1, 0);
        assert!(decide(&[Ask::new(&limit, key(9), 1, NOW)], false).admitted);
        let other = Arc::clone(&limit);
        let thread = loom::thread::spawn(move || decide(&[Ask::new(&other, key(1), 1, NOW)], false).admitted);
        let own = decide(&[Ask::new(&limit, key(1 << 40), 1, NOW)], false).admitted;
        assert!(own ^ thread.join().unwrap());
        assert!(!decide(&[Ask::new(&limit, key(2), 1, NOW)], false).admitted);
    });
}

/// A reload meets a decision: the debt is taken over, whichever comes first.
#[test]
fn a_reload_meets_a_decision() {
    loom::model(|| {
        let limit = limit(1, 10, 0);
        let other = Arc::clone(&limit);
        let rate = Rate::new(2, Span::from_secs(60)).unwrap();
        let quota = Quota::FixedWindow(FixedWindow::new(rate), rate);
        let thread = loom::thread::spawn(move || other.counters.reconfigure(&quota, 10, NOW));
        assert!(decide(&[Ask::new(&limit, key(1), 1, NOW)], false).admitted);
        assert!(thread.join().unwrap());
        assert_eq!(limit.counters.usage(key(1), NOW).unwrap().remaining, 1);
    });
}

/// Calls of a store that cost one each, all for the same key.
struct Calls(AtomicU64);

impl CallsInFlight for Calls {
    fn costs(&self, _counters: u64, _key: Fingerprint) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// The calls of two requests end without an answer at the same time, and both are decided here: there is enough for both, and neither
/// is counted as a call and as a charge.
#[test]
fn two_calls_end_without_an_answer() {
    loom::model(|| {
        let (limit, calls) = (limit(2, 10, 0), Arc::new(Calls(AtomicU64::new(2))));
        let give_up = |limit: &Arc<CountedLimit>, calls: &Arc<Calls>| {
            calls.0.fetch_sub(1, Ordering::SeqCst);
            let calls: Arc<dyn CallsInFlight> = Arc::clone(calls) as _;
            decide(&[Ask { calls: Some(calls), ..Ask::new(limit, key(1), 1, NOW) }], false).admitted
        };
        let (other, others) = (Arc::clone(&limit), Arc::clone(&calls));
        let thread = loom::thread::spawn(move || give_up(&other, &others));
        assert!(give_up(&limit, &calls) && thread.join().unwrap());
    });
}
