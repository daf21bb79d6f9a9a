//! How many tokens may be leased, and what that can cost. This is the only place where the bound is computed: the gateway, the
//! figures that operators see, and the simulation that tries to break it use the same functions.

use sluicegate_limiter::{LeakyBucket, Quota, Span, TokenBucket};

/// The part of a limit's count that may be paid for and not spent, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorBudget(u32);

/// How the tokens of a limit are leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    outstanding: u64,
    carries: bool,
    lasts: Span,
    least: u64,
}

impl ErrorBudget {
    /// 5 %.
    pub const USUAL: Self = Self(50_000);
    /// The smallest: a millionth.
    pub const LEAST: Self = Self(1);
    /// The largest: 50 %.
    pub const MOST: Self = Self(500_000);

    /// So many millionths; `None` outside of [`LEAST`](Self::LEAST) to [`MOST`](Self::MOST).
    pub const fn from_millionths(millionths: u32) -> Option<Self> {
        match millionths >= Self::LEAST.0 && millionths <= Self::MOST.0 {
            true => Some(Self(millionths)),
            false => None,
        }
    }

    /// The budget in millionths.
    pub const fn millionths(self) -> u32 {
        self.0
    }

    fn of(self, count: u64) -> u64 {
        (u128::from(count) * u128::from(self.0) / 1_000_000) as u64 // at most half of the count
    }
}

/// The tokens of all gateways together that may be paid for and not spent.
fn outstanding(quota: &Quota, budget: ErrorBudget) -> u64 {
    match quota {
        // A bucket that holds less than its rate's count cannot give more than it holds.
        Quota::TokenBucket(_, rate, burst) | Quota::LeakyBucket(_, rate, burst) => {
            budget.of(rate.count()).min(burst / 2)
        }
        Quota::FixedWindow(_, rate) => budget.of(rate.count()),
        // Tokens that are not spent in their sub-window are lost: at most this part of each.
        Quota::SlidingWindow(window, rate) => budget.of(rate.count()) / u64::from(window.slices().max(1)),
        Quota::Concurrency(_, max) => budget.of(*max),
        Quota::SlidingLog(..) => 0,
    }
}

/// The quota that the store enforces where leases must not admit too much: a bucket is smaller by the tokens that may be paid for
/// and not spent. Other quotas do not change: see [`Terms::over_admission`].
#[must_use]
pub fn reserved(quota: Quota, budget: ErrorBudget) -> Quota {
    let tokens = outstanding(&quota, budget);
    let smaller = match quota {
        Quota::TokenBucket(_, rate, burst) => TokenBucket::new(rate, burst - tokens)
            .map(|bucket| Quota::TokenBucket(bucket, rate, burst - tokens)),
        Quota::LeakyBucket(bucket, rate, burst) => LeakyBucket::new(rate, burst - tokens, bucket.max_delay())
            .map(|bucket| Quota::LeakyBucket(bucket, rate, burst - tokens)),
        other => Ok(other),
    };
    smaller.unwrap_or(quota) // at least half of a bucket stays, so that it is a valid one
}

impl Terms {
    /// The terms for a quota as it is configured. With `strict`, the store enforces the [`reserved`] quota.
    pub fn new(quota: &Quota, budget: ErrorBudget, strict: bool) -> Self {
        let outstanding = outstanding(quota, budget);
        let is_bucket = matches!(quota, Quota::TokenBucket(..) | Quota::LeakyBucket(..));
        let carries = is_bucket && !strict;
        let lasts = quota.rate().map_or(Span::MAX, |rate| {
            let nanos =
                u128::from(rate.period().as_nanos()) * u128::from(outstanding) / u128::from(rate.count());
            Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        });
        Self { outstanding, carries, lasts, least: 1 }
    }

    /// The same, but a gateway whose share is smaller than `least` leases nothing.
    #[must_use]
    pub const fn at_least(self, least: u64) -> Self {
        Self { least, ..self }
    }

    /// The tokens of one key that one of so many gateways may have paid for and not spent.
    pub fn share(&self, gateways: u32) -> u64 {
        Some(self.outstanding / u64::from(gateways.max(1))).filter(|share| *share >= self.least).unwrap_or(0)
    }

    /// The most that so many gateways together can admit above the limit, in any interval.
    ///
    /// Of a bucket, a token that was paid for may be spent when the bucket has already refilled it, so the bound is the number
    /// of such tokens; with `strict` the bucket is smaller by that number. A token of a window is spent in the window that
    /// it was charged to or not at all, and a place is held by one request at a time: these admit nothing too much.
    pub fn over_admission(&self, gateways: u32) -> u64 {
        if self.carries { self.share(gateways) * u64::from(gateways.max(1)) } else { 0 }
    }

    /// For how long all tokens together last at the full rate; places have none.
    pub fn lasts(&self) -> Span {
        self.lasts
    }

    /// Whether tokens can outlive the time in which their charge counts.
    pub(crate) fn carries(&self) -> bool {
        self.carries
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_limiter::{FixedWindow, Rate, SlidingWindow};

    use super::*;

    fn bucket(count: u64, burst: u64) -> Quota {
        let rate = Rate::new(count, Span::SECOND).expect("a rate");
        Quota::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"), rate, burst)
    }

    #[test]
    fn the_bound_is_within_the_budget() {
        for (count, burst, gateways, share, bound) in [
            (100_000, 100_000, 4, 1_250, 5_000),
            (100_000, 100_000, 3, 1_666, 4_998),
            (100_000, 1_000, 4, 125, 500),
            (100_000, 1_001, 1, 500, 500),
            (119, 119, 1, 5, 5),
            (100, 100, 10, 0, 0),
            (100, 1, 1, 0, 0),
        ] {
            let quota = bucket(count, burst);
            let terms = Terms::new(&quota, ErrorBudget::USUAL, false);
            assert_eq!((terms.share(gateways), terms.over_admission(gateways)), (share, bound));
            let strict = Terms::new(&quota, ErrorBudget::USUAL, true);
            assert_eq!((strict.share(gateways), strict.over_admission(gateways)), (share, 0));
            let left = reserved(quota, ErrorBudget::USUAL).capacity();
            assert!(left >= 1 && left + strict.share(gateways) * u64::from(gateways) <= burst);
        }
    }

    #[test]
    fn windows_admit_nothing_too_much() {
        let rate = Rate::new(10_000, Span::SECOND).expect("a rate");
        let quota = Quota::FixedWindow(FixedWindow::new(rate), rate);
        let terms = Terms::new(&quota, ErrorBudget::USUAL, false);
        assert_eq!((terms.share(2), terms.over_admission(2)), (250, 0));
        assert_eq!(reserved(quota, ErrorBudget::USUAL), quota);
        let sliding = SlidingWindow::new(rate, 7).expect("a window");
        let terms = Terms::new(&Quota::SlidingWindow(sliding, rate), ErrorBudget::USUAL, false);
        assert_eq!(terms.share(1), 71, "500 in seven sub-windows");
    }
}
