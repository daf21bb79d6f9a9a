//! Single instants at which an answer is one step from being another.
#![allow(missing_docs, clippy::unwrap_used)]

use sluicegate_limiter::{
    Algorithm, Ban, FixedWindow, LeakyBucket, Rate, Refusal, SlidingWindow, Span, Strikes, Tat, Time,
    TokenBucket, Window,
};

fn rate(count: u64, seconds: u64) -> Rate {
    Rate::new(count, Span::from_secs(seconds)).unwrap()
}

const fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

/// The last token is given, whether a debt is kept as it is or in a word.
#[test]
fn a_bucket_gives_its_last_token() {
    let bucket = TokenBucket::new(rate(3, 3), 3).unwrap();
    for costs in [&[1, 1, 1][..], &[3], &[2, 1]] {
        let (mut debt, mut above) = (Tat::default(), 0);
        let base = bucket.emission_rate().clock(at(1_000));
        for cost in costs {
            let (answer, usage) = bucket.acquire_above(&mut above, base, at(1_000), *cost).unwrap();
            assert!(answer.is_ok(), "{cost} of {costs:?}");
            assert_eq!(bucket.acquire(&mut debt, at(1_000), *cost), (answer, usage));
        }
        for (cost, refusal) in
            [(1, Refusal::Until(Span::SECOND)), (3, Refusal::Until(Span::from_secs(3))), (4, Refusal::Never)]
        {
            let said = bucket.acquire_above(&mut above, base, at(1_000), cost).unwrap();
            assert_eq!(said.0, Err(refusal));
            assert_eq!(bucket.acquire(&mut debt, at(1_000), cost), said);
        }
        assert!(bucket.acquire_above(&mut above, base, at(1_001), 1).unwrap().0.is_ok(), "a second later");
    }
}

/// A refusal that comes late counts as the last one before it, so what is in sight stays known.
#[test]
fn a_late_refusal_hides_no_other() {
    let ban = Ban::new(3, Span::from_secs(10), Span::from_secs(60)).unwrap();
    let mut strikes = Strikes::default();
    for seconds in [100, 95] {
        ban.refused(&mut strikes, at(seconds), 1);
    }
    assert_eq!(ban.usage(&strikes, at(109)).remaining, 1);
    assert!(!ban.is_idle(&strikes, at(109)), "the one at 100 counts until 110");
    ban.refused(&mut strikes, at(109), 1);
    assert_eq!(ban.left(&strikes, at(109)), Some(Span::from_secs(60)));
}

/// What is given back to a key that was pardoned meanwhile is nothing.
#[test]
fn a_pardoned_key_gets_nothing_back() {
    let token = TokenBucket::new(rate(5, 60), 5).unwrap();
    let leaky = LeakyBucket::new(rate(5, 60), 5, None).unwrap();
    let mut debt = Tat::default();
    let receipts = [token.charge(&mut debt.clone(), at(100), 5), leaky.charge(&mut debt, at(100), 5)];
    for spent in [0, 1] {
        let mut pardoned = Tat::default();
        token.charge(&mut pardoned, at(100), spent);
        token.refund(&mut pardoned, at(100), 5, receipts[0]);
        assert_eq!(token.usage(&pardoned, at(100)).remaining, 5);
        let mut pardoned = Tat::default();
        leaky.charge(&mut pardoned, at(100), spent);
        leaky.refund(&mut pardoned, at(100), 5, receipts[1]);
        assert_eq!(leaky.usage(&pardoned, at(100)).remaining, 5);
    }
    let mut unknown = Tat::default();
    token.refund(&mut unknown, at(100), 5, receipts[0]);
    assert_eq!(unknown, Tat::default());
}

/// A window that the clock has not come back to yet is not left when its length changes.
#[test]
fn a_window_ahead_of_the_clock_is_carried_over() {
    let (old, new) = (FixedWindow::new(rate(10, 60)), FixedWindow::new(rate(10, 30)));
    let mut window = Window::default();
    old.charge(&mut window, at(990), 7); // the window from 960 on
    new.rescale(&old, &mut window, at(100)); // the clock was set back
    for seconds in [100, 960, 989] {
        assert_eq!(new.usage(&window, at(seconds)).remaining, 3, "at {seconds}");
    }
    assert_eq!(new.usage(&window, at(990)).remaining, 10);
}

/// Of 20 GB at a limit of 1 GB an hour a twentieth has to be left before the next byte fits.
#[test]
fn a_sliding_window_counts_costs_above_32_bits_in_full() {
    let window = SlidingWindow::new(rate(1_000_000_000, 3_600), 1).unwrap();
    let (mut slices, start) = (window.state(0, std::iter::empty()), at(3_600_000));
    let receipt = window.charge(&mut slices, start, 1_000_000_000);
    window.settle(&mut slices, start, 19_000_000_000);
    let wait = Span::from_nanos((3_600 + 3_420) * 1_000_000_000 + 1);
    assert_eq!(window.check(&slices, start, 1), Err(Refusal::Until(wait)));
    let free = start.plus(wait);
    assert!(window.check(&slices, free, 1).is_ok());
    assert!(window.check(&slices, Time::from_nanos(free.as_nanos() - 1), 1).is_err());
    window.refund(&mut slices, start, 1_000_000_000, receipt);
    assert_eq!(window.usage(&slices, start).remaining, 0, "the other 19 GB stay charged");
}

/// Where a debt is larger than late costs may make it, because the clock was set back, a late cost does not make it smaller.
#[test]
fn a_late_cost_never_makes_a_debt_smaller() {
    let bucket = TokenBucket::new(rate(5, 5), 5).unwrap().with_overdraft(0);
    let mut debt = Tat::default();
    bucket.charge(&mut debt, at(1_000), 5);
    for _ in 0..2 {
        assert_eq!(bucket.check(&debt, at(990), 1), Err(Refusal::Until(Span::from_secs(11))));
        bucket.settle(&mut debt, at(990), 3);
    }
}

/// Below empty, a token is worth more of the smaller bucket than above. Two charges that are both given back there take nothing
/// of the third one with them.
#[test]
fn charges_that_are_given_back_after_a_reload_leave_the_others() {
    let (old, new) =
        (TokenBucket::new(rate(10, 10), 100).unwrap(), TokenBucket::new(rate(10, 10), 10).unwrap());
    let mut debt = Tat::default();
    old.charge(&mut debt, at(1_000), 50);
    let mut charges = [35, 30].map(|cost| old.charged(cost, old.charge(&mut debt, at(1_000), cost)));
    new.carry(&old, &debt, at(1_000), &mut charges);
    new.rescale(&old, &mut debt, at(1_000));
    let [first, mut second] = charges;
    new.take_back(&mut debt, at(1_000), first, std::slice::from_mut(&mut second));
    new.take_back(&mut debt, at(1_000), second, &mut []);
    let left = new.usage(&debt, at(1_000)).remaining;
    assert!(left <= 5, "{left} of 10, and 50 of 100 are still spent");
}

/// A debt of before a reload is cut to the overdraft that is in force.
#[test]
fn a_smaller_overdraft_cuts_the_debt() {
    let old = TokenBucket::new(rate(10, 10), 10).unwrap();
    let mut debt = Tat::default();
    old.settle(&mut debt, at(1_000), 60);
    assert_eq!(old.check(&debt, at(1_000), 1), Err(Refusal::Until(Span::from_secs(51))));
    let new = old.with_overdraft(5);
    new.rescale(&old, &mut debt, at(1_000));
    assert_eq!(new.check(&debt, at(1_000), 1), Err(Refusal::Until(Span::from_secs(6))));
}
