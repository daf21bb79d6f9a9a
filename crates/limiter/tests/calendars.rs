//! fixed_window by a calendar, against a slow model: a list of periods, and what was spent in each.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{IN_2026, cases};
use proptest::collection::vec;
use proptest::prelude::*;
use sluicegate_limiter::{Algorithm, Calendar, FixedWindow, Rate, Refusal, Span, Time, Usage, Window};

const SECOND: u64 = 1_000_000_000;
const FIRST: u32 = (IN_2026 / SECOND) as u32;

/// Periods of random lengths, as those of days with changes of the clock are.
fn lengths() -> impl Strategy<Value = Vec<u32>> {
    vec(prop_oneof![Just(86_400), Just(82_800), Just(90_000), 1..=3_000_000_u32], 3..40)
}

fn starts(lengths: &[u32]) -> Vec<u32> {
    let after = lengths.iter().scan(FIRST, |at, length| {
        *at += length;
        Some(*at)
    });
    std::iter::once(FIRST).chain(after).collect()
}

/// Calendars live as long as the process, as those of a gateway do.
fn window(count: u64, starts: &[u32]) -> FixedWindow {
    let calendar = Box::leak(Box::new(Calendar::new(starts.iter().copied())));
    FixedWindow::with_calendar(Rate::new(count, Span::DAY).unwrap(), calendar)
}

/// The period of an instant, by looking at all: when it begins and ends, in nanoseconds.
fn period(starts: &[u32], at: u64) -> (u64, Option<u64>) {
    let nanos = |start: &u32| u64::from(*start) * SECOND;
    let begun = starts.iter().map(nanos).filter(|start| *start <= at).max().unwrap_or(0);
    (begun, starts.iter().map(nanos).filter(|start| *start > at).min())
}

/// So far into all periods, in millionths; and on their borders.
fn instants() -> impl Strategy<Value = (u64, u64)> {
    (0..=1_000_000_u64, prop_oneof![3 => Just(1), 1 => Just(0), 1 => Just(2)])
}

fn instant(starts: &[u32], (share, border): (u64, u64)) -> u64 {
    let (first, last) = (u64::from(starts[0]), u64::from(*starts.last().unwrap()));
    let at = (first + (last - first) * share / 1_000_000) * SECOND;
    match border {
        0 => period(starts, at).0,
        1 => at + share * 997 % SECOND,
        _ => period(starts, at).1.map_or(at, |end| end - 1),
    }
}

proptest! {
    #![proptest_config(cases(2_000))]

    /// What is admitted, when to come back and what is left is what a list of periods says.
    #[test]
    fn a_count_for_each_period(
        lengths in lengths(),
        count in 1..=12_u64,
        asks in vec((instants(), 1..=4_u64), 1..40),
    ) {
        let starts = starts(&lengths);
        let (window, mut key) = (window(count, &starts), Window::default());
        let mut asks: Vec<(u64, u64)> = asks.iter().map(|(at, cost)| (instant(&starts, *at), *cost)).collect();
        asks.sort_unstable();
        let mut spent: Vec<(u64, u64)> = Vec::new();
        for (at, cost) in asks {
            let ((begun, end), now) = (period(&starts, at), Time::from_nanos(at));
            let used: u64 = spent.iter().filter(|(at, _)| *at >= begun).map(|(_, cost)| cost).sum();
            let left = end.map_or(Span::MAX, |end| Span::from_nanos(end - at));
            let expected = match () {
                () if cost > count => Err(Refusal::Never),
                () if used + cost <= count => Ok(Span::ZERO),
                () => Err(Refusal::Until(left)),
            };
            prop_assert_eq!(window.check(&key, now, cost), expected, "{} at {}", cost, at);
            let usage = Usage {
                remaining: count - used,
                capacity: count,
                reset: if used == 0 { Span::ZERO } else { left },
            };
            prop_assert_eq!(window.usage(&key, now), usage);
            prop_assert_eq!(window.is_idle(&key, now), used == 0);
            if let Some(end) = end {
                prop_assert_eq!(window.length(now), Span::from_nanos(end - begun));
            }
            if expected.is_ok() {
                let receipt = window.charge(&mut key, now, cost);
                if cost == 4 {
                    window.refund(&mut key, now, cost, receipt);
                } else {
                    spent.push((at, cost));
                }
            }
        }
    }

    /// Another calendar or a plain period takes over what was spent in the window that is not over, and nothing else.
    #[test]
    fn what_was_spent_stays_spent_in_other_windows(
        (old, new) in (lengths(), lengths()),
        spent in 1..=9_u64,
        ((at, later), plain) in ((instants(), 0..3_000_000_u64), 0..3_u8),
    ) {
        let (starts, others) = (starts(&old), starts(&new));
        let fixed = FixedWindow::new(Rate::new(10, Span::from_secs(3_600)).unwrap());
        let (from, to) = match plain {
            0 => (window(10, &starts), window(10, &others)),
            1 => (fixed, window(10, &others)),
            _ => (window(10, &starts), fixed),
        };
        let at = instant(&starts, at);
        let (mut key, now) = (Window::default(), Time::from_nanos(at + later * SECOND));
        let receipt = from.charge(&mut key, Time::from_nanos(at), spent);
        let left = from.usage(&key, now).remaining;
        let mut charges = [from.charged(spent, receipt)];
        to.carry(&from, &key, now, &mut charges);
        to.rescale(&from, &mut key, now);
        prop_assert_eq!(to.usage(&key, now).remaining, left);
        to.take_back(&mut key, now, charges[0], &mut []);
        prop_assert_eq!(to.usage(&key, now).remaining, 10, "what is given back is found again");
    }
}

#[test]
fn a_calendar_is_the_same_only_as_itself() {
    let (one, other) = (window(5, &[FIRST, FIRST + 60]), window(5, &[FIRST, FIRST + 60]));
    assert!(one == one && one != other && one != FixedWindow::new(Rate::new(5, Span::DAY).unwrap()));
}

#[test]
fn before_the_first_period_and_behind_the_last() {
    let calendar = Calendar::new([FIRST, FIRST + 60, FIRST + 160]);
    let at = |second: u32| Time::from_nanos(u64::from(second) * SECOND);
    assert_eq!((calendar.start(Time::EPOCH), calendar.end(0)), (0, Some(FIRST.into())));
    assert_eq!(
        (calendar.start(at(FIRST + 59)), calendar.start(at(FIRST + 60))),
        (FIRST.into(), u64::from(FIRST) + 60)
    );
    assert_eq!((calendar.before(u64::from(FIRST) + 60), calendar.before(0)), (Some(FIRST.into()), None));
    assert_eq!(calendar.end(u64::from(FIRST) + 160), None);
    let window = window(1, &[FIRST]);
    let mut key = Window::default();
    window.charge(&mut key, at(FIRST), 1);
    assert_eq!(window.check(&key, at(u32::MAX), 1), Err(Refusal::Until(Span::MAX)));
}
