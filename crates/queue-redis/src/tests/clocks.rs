//! The clock of the server is set while gateways use a queue.

use super::common::{LATER, LIMIT, NOW, Store, accept, id, message, numbers, open, place};
use crate::LEASE;

const LEASE_MILLIS: u64 = LEASE.as_millis() as u64;

fn claimed(store: &Store, now: u64) -> Vec<u64> {
    numbers(&store.claim(LIMIT, now, LATER, 5).unwrap().claimed)
}

/// A claim in progress keeps its message for as long as its gateway renews it, however the clock is set.
#[test]
fn a_step_ends_no_claim_at_once() {
    for step in [30_000, 1_800_000, -2_000, -86_400_000] {
        let (_server, socket) = place();
        let store = open(&socket);
        accept(&store, message(1, "a"));
        assert_eq!(claimed(&store, NOW), [1]);
        let now = NOW.saturating_add_signed(step);
        assert_eq!(claimed(&store, now), [], "{step}: it may be in progress");
        let renewed = store.with(LIMIT, async |queue| queue.renew(&[(id(1), 1)]).await).unwrap();
        assert_eq!(renewed, [true]);
        let seconds = LEASE_MILLIS / 1_000;
        (1..seconds).for_each(|second| assert_eq!(claimed(&store, now + second * 1_000), []));
        assert_eq!(claimed(&store, now + LEASE_MILLIS), [1], "{step}: its gateway is gone");
    }
}

/// Also if those who look first have only renewed their own.
#[test]
fn who_looks_first_hides_no_step() {
    let (_server, socket) = place();
    let store = open(&socket);
    accept(&store, message(1, "a"));
    accept(&store, message(2, "b"));
    assert_eq!(claimed(&store, NOW), [1, 2]);
    store.set_clock(NOW + 1_800_000);
    store.with(LIMIT, async |queue| queue.renew(&[(id(2), 1)]).await).unwrap();
    assert_eq!(claimed(&store, NOW + 1_801_000), [], "it may be in progress");
}

/// Gateways whose places are all taken do not claim for long, and claims of a gateway that is gone end all the same.
#[test]
fn rare_claims_are_no_step() {
    let (_server, socket) = place();
    let store = open(&socket);
    accept(&store, message(1, "a"));
    assert_eq!(claimed(&store, NOW), [1]);
    for second in 1..16 {
        let now = NOW + second * 1_000;
        store.expire(LIMIT, now, LATER, 10).unwrap();
        if second % 6 == 0 {
            assert_eq!(claimed(&store, now), []);
        }
    }
    assert_eq!(claimed(&store, NOW + 16_000), [1]);
}
