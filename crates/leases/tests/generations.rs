//! Tokens that were withdrawn, or whose window is over, are spent no more.
#![allow(missing_docs, clippy::unwrap_used)]

use sluicegate_leases::{ErrorBudget, Grant, Lease, Terms};
use sluicegate_limiter::{FixedWindow, Quota, Rate, Receipt, Span, Time, TokenBucket};

const NOW: Time = Time::from_nanos(1_795_000_000_000_000_000);

fn terms() -> Terms {
    let rate = Rate::new(10_000, Span::SECOND).unwrap();
    Terms::new(&Quota::FixedWindow(FixedWindow::new(rate), rate), ErrorBudget::USUAL, false)
}

/// So many tokens of the window with this number, which ends after this time.
fn grant(tokens: u64, sent: Time, window: u64, left: Span) -> Grant {
    Grant {
        tokens,
        sent,
        received: sent,
        window: Some(left),
        before: 10_000,
        remaining: 9_000,
        reset: left,
        receipt: Receipt::from_number(window.into()),
    }
}

#[test]
fn what_a_request_gives_back_too_late_is_lost() {
    let lease = Lease::new(NOW);
    lease.granted(&grant(100, NOW, 1, Span::from_millis(400)), &terms());
    let (early, late) = (lease.take(NOW, 10).unwrap(), lease.take(NOW, 10).unwrap());
    assert_eq!(lease.held(), 80);
    lease.give_back(&early);
    assert_eq!(lease.held(), 90);
    lease.reclaim_all(NOW);
    lease.give_back(&late);
    assert_eq!(lease.held(), 0, "the tokens of the request were withdrawn with the others");
}

#[test]
fn tokens_of_a_window_that_is_over_are_spent_no_more() {
    let lease = Lease::new(NOW);
    lease.granted(&grant(100, NOW, 1, Span::from_millis(400)), &terms());
    let later = NOW.plus(Span::from_millis(401));
    assert!(lease.take(later, 1).is_none());
    lease.granted(&grant(50, later, 2, Span::from_millis(500)), &terms());
    assert_eq!(lease.held(), 50, "those of the first window are not added");

    let lease = Lease::new(NOW);
    lease.granted(&grant(100, NOW, 1, Span::from_millis(400)), &terms());
    // Many requests come, so that tokens are asked for.
    (0..2_000).for_each(|_| lease.miss(1));
    let wanted = lease.next(later, &terms(), 1, (10_000, 0));
    assert_eq!(lease.held(), 0, "they are withdrawn when the next ones are asked for");
    assert!(wanted.is_some_and(|tokens| tokens > 100), "{wanted:?}");
}

/// Tokens may be those of several grants. Each goes back with the receipt of its own charge.
#[test]
fn the_tokens_of_all_grants_go_back() {
    let rate = Rate::new(10_000, Span::SECOND).unwrap();
    let bucket = Quota::TokenBucket(TokenBucket::new(rate, 10_000).unwrap(), rate, 10_000);
    let terms = Terms::new(&bucket, ErrorBudget::USUAL, false);
    let lease = Lease::new(NOW);
    for (tokens, receipt) in [(100, 1), (50, 2), (30, 3)] {
        lease.granted(&Grant { window: None, ..grant(tokens, NOW, receipt, Span::SECOND) }, &terms);
    }
    lease.take(NOW, 20).unwrap();
    let returns = lease.reclaim_all(NOW.plus(Span::MILLISECOND));
    let returns: Vec<_> = returns.iter().map(|given| (given.tokens, given.receipt.number())).collect();
    assert_eq!(returns, [(30, 3), (50, 2), (80, 1)]);
    assert!(lease.reclaim_all(NOW.plus(Span::MILLISECOND)).is_empty());
}
