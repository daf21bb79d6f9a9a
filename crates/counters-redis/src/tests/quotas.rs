//! Quotas for tests: named ones, and random ones of every algorithm.

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::select;
use sluicegate_counters::RemoteState;
use sluicegate_limiter::{
    Calendar, Concurrency, FixedWindow, LeakyBucket, MAX_COUNT, MAX_PERIOD, MAX_SHARED_LOG_PLACES, Quota,
    Rate, SlidingLog, SlidingWindow, Span, TokenBucket,
};

/// Microseconds.
const DAY: u64 = 86_400_000_000;

pub(super) fn rate(count: u64, micros: u64) -> Rate {
    Rate::new(count, Span::from_nanos(micros * 1_000)).unwrap()
}

pub(super) fn token(rate: Rate, burst: u64) -> Quota {
    Quota::TokenBucket(TokenBucket::new(rate, burst).unwrap(), rate, burst)
}

pub(super) fn leaky(rate: Rate, burst: u64, max_delay: Option<Span>) -> Quota {
    Quota::LeakyBucket(LeakyBucket::new(rate, burst, max_delay).unwrap(), rate, burst)
}

pub(super) fn fixed(rate: Rate) -> Quota {
    Quota::FixedWindow(FixedWindow::new(rate), rate)
}

/// A fixed window by a calendar: days of 24, 23 and 25 hours, from some weeks before the cases on.
pub(super) fn by_calendar(count: u64) -> Quota {
    static DAYS: LazyLock<Calendar> = LazyLock::new(|| {
        let hours = [24, 23, 24, 25].into_iter().cycle();
        let starts = hours.scan(1_793_000_000_u32, |at, hours| {
            *at += hours * 3_600;
            Some(*at)
        });
        Calendar::new(starts.take_while(|start| *start < 2_600_000_000))
    });
    let rate = rate(count, DAY);
    Quota::FixedWindow(FixedWindow::with_calendar(rate, &DAYS), rate)
}

pub(super) fn log(rate: Rate, count_rejected: bool) -> Quota {
    let rate = Rate::new(rate.count().min(MAX_SHARED_LOG_PLACES), rate.period()).unwrap();
    Quota::SlidingLog(SlidingLog::new(rate, count_rejected).unwrap(), rate)
}

pub(super) fn sliding(rate: Rate, slices: u32) -> Quota {
    Quota::SlidingWindow(SlidingWindow::new(rate, slices).unwrap(), rate)
}

pub(super) fn strict(rate: Rate, slices: u32) -> Quota {
    Quota::SlidingWindow(SlidingWindow::new(rate, slices).unwrap().strict(), rate)
}

pub(super) fn places(max: u64) -> Quota {
    Quota::Concurrency(Concurrency::new(max).unwrap(), max)
}

/// Whether a store can hold the states of a quota: its periods are whole microseconds, and its buckets drain in
/// less than some 200 years.
pub(super) fn can_be_shared(quota: &Quota) -> bool {
    match quota {
        Quota::TokenBucket(bucket, ..) => bucket.in_micros(0).is_some(),
        Quota::LeakyBucket(bucket, ..) => bucket.in_micros(0).is_some(),
        Quota::FixedWindow(_, rate) | Quota::SlidingLog(_, rate) | Quota::SlidingWindow(_, rate) => {
            rate.period().as_nanos().is_multiple_of(1_000)
        }
        Quota::Concurrency(..) => true,
    }
}

/// The state of a key that was never seen.
pub(super) fn fresh(quota: &Quota) -> RemoteState {
    match quota {
        Quota::TokenBucket(bucket, ..) => RemoteState::TokenBucket(*bucket, Default::default()),
        Quota::LeakyBucket(bucket, ..) => RemoteState::LeakyBucket(*bucket, Default::default()),
        Quota::FixedWindow(window, _) => RemoteState::FixedWindow(*window, Default::default()),
        Quota::SlidingLog(log, _) => RemoteState::SlidingLog(*log, Default::default()),
        Quota::SlidingWindow(window, _) => RemoteState::SlidingWindow(*window, Default::default()),
        Quota::Concurrency(places, _) => RemoteState::Concurrency(*places, Default::default(), 0),
    }
}

/// The largest cost that can be admitted, and the microseconds of the period.
pub(super) fn size(quota: &Quota) -> (u64, u64) {
    match quota {
        Quota::TokenBucket(_, rate, most) | Quota::LeakyBucket(_, rate, most) => (*most, micros(*rate)),
        Quota::FixedWindow(_, rate) | Quota::SlidingLog(_, rate) | Quota::SlidingWindow(_, rate) => {
            (rate.count(), micros(*rate))
        }
        Quota::Concurrency(_, most) => (*most, 1_000_000),
    }
}

fn micros(rate: Rate) -> u64 {
    rate.period().as_nanos() / 1_000
}

/// Rates small and large, with periods of whole microseconds up to `longest`.
pub(super) fn rates(longest: u64) -> impl Strategy<Value = Rate> {
    let counts = prop_oneof![
        6 => 1..=12_u64,
        3 => 1..=100_u64,
        1 => select(vec![1_000, 999_999_937, MAX_COUNT]),
    ];
    let known = [1_000, 7_000, 20_000, 250_000, 1_000_000, 90_000_000, 3_600_000_000, 31_622_400_000_000];
    let known: Vec<u64> = known.into_iter().filter(|micros| *micros <= longest).collect();
    let periods = prop_oneof![3 => select(known), 1 => 1_000..=longest.min(MAX_PERIOD.ceil_micros())];
    (counts, periods).prop_map(|(count, micros)| rate(count, micros))
}

/// Quotas of all algorithms.
pub(super) fn quotas(longest: u64) -> impl Strategy<Value = Quota> {
    let bursts = prop_oneof![6 => 1..=12_u64, 2 => 1..=100_u64, 1 => Just(MAX_COUNT)];
    let slices = prop_oneof![4 => 1..=12_u32, 1 => Just(60_u32), 1 => Just(1_000_u32)];
    let delays = prop::option::weighted(0.3, 0..=1_200_u64);
    let kinds = if longest > DAY { 0..10_u8 } else { 0..9 };
    (rates(longest), bursts, slices, delays, kinds).prop_filter_map(
        "a bucket that drains too slowly",
        |(rate, burst, slices, delay, kind)| {
            let full = rate.period().as_nanos() as f64 / rate.count() as f64 * burst as f64;
            let delay =
                delay.map(|share| Span::from_nanos((full * share as f64 / 1e6).min(1e15) as u64 * 1_000));
            let quota = match kind {
                0 | 1 => token(rate, burst),
                2 => leaky(rate, burst, delay),
                3 => fixed(rate),
                4 => log(rate, false),
                5 => log(rate, true),
                6 => sliding(rate, slices),
                7 => strict(rate, slices),
                9 => by_calendar(rate.count()),
                _ => places(burst),
            };
            can_be_shared(&quota).then_some(quota)
        },
    )
}
