//! Tokens of one key at single instants: those of another grant, or of a window that is over, are nobody's.
#![allow(missing_docs)]

use sluicegate_leases::{ErrorBudget, Grant, Lease, Terms};
use sluicegate_limiter::{FixedWindow, Quota, Rate, Receipt, Span, Time};

fn at(millis: u64) -> Time {
    Time::from_nanos(1_795_000_000_000_000_000).plus(Span::from_millis(millis))
}

fn terms() -> Terms {
    let rate = Rate::new(1_000_000, Span::SECOND).expect("a rate");
    Terms::new(&Quota::FixedWindow(FixedWindow::new(rate), rate), ErrorBudget::USUAL, false)
}

/// Ten tokens of a window that ends 100 ms later.
fn ten(millis: u64, window: u64) -> Grant {
    Grant {
        tokens: 10,
        sent: at(millis),
        received: at(millis),
        window: Some(Span::from_millis(100)),
        before: 1_000,
        remaining: 990,
        reset: Span::from_millis(100),
        receipt: Receipt::from_number(window.into()),
    }
}

/// What a request gives back belongs to the grant from which it was taken.
#[test]
fn tokens_go_back_to_their_own_grant_only() {
    let lease = Lease::new(at(0));
    lease.granted(&ten(0, 1), &terms());
    let [kept, lost] = [(); 2].map(|()| lease.take(at(1), 1).expect("a token"));
    lease.give_back(&kept);
    assert_eq!(lease.held(), 9);
    lease.reclaim_all(at(2));
    lease.granted(&ten(3, 1), &terms());
    lease.give_back(&lost);
    assert_eq!(lease.held(), 10);
}

/// A grant of the next window replaces what is left of the one before it.
#[test]
fn tokens_of_an_older_window_do_not_add_to_those_of_the_next() {
    let lease = Lease::new(at(0));
    lease.granted(&ten(0, 1), &terms());
    lease.granted(&ten(50, 1), &terms());
    assert_eq!(lease.held(), 20, "the same window");
    lease.granted(&ten(101, 2), &terms());
    assert_eq!(lease.held(), 10);
}

/// When a window is over, as many tokens are asked for as if none were left of it.
#[test]
fn tokens_of_a_window_that_is_over_are_not_counted_on() {
    let asked = |tokens: u64| {
        let lease = Lease::new(at(0));
        lease.granted(&Grant { tokens, ..ten(0, 1) }, &terms());
        lease.miss(200);
        lease.next(at(100), &terms(), 1, (1_000_000, 0))
    };
    assert!(asked(0).is_some());
    assert_eq!(asked(50), asked(0));
}
