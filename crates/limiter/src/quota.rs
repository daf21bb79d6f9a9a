//! A quota: an algorithm with its numbers.

use crate::{
    Algorithm, Charge, Concurrency, FixedWindow, LeakyBucket, Rate, Receipt, SlidingLog, SlidingWindow, Span,
    Time, TokenBucket, Usage,
};

/// An algorithm with its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quota {
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket, Rate, u64),
    /// See [`LeakyBucket`].
    LeakyBucket(LeakyBucket, Rate, u64),
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow, Rate),
    /// See [`SlidingLog`].
    SlidingLog(SlidingLog, Rate),
    /// See [`SlidingWindow`].
    SlidingWindow(SlidingWindow, Rate),
    /// See [`Concurrency`].
    Concurrency(Concurrency, u64),
}

impl Quota {
    /// Its name in the configuration.
    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::TokenBucket(..) => "token_bucket",
            Self::LeakyBucket(..) => "leaky_bucket",
            Self::FixedWindow(..) => "fixed_window",
            Self::SlidingLog(..) => "sliding_log",
            Self::SlidingWindow(..) => "sliding_window",
            Self::Concurrency(..) => "concurrency",
        }
    }

    /// The number that clients are shown: the count of the rate, or the size of the bucket if that is larger.
    pub fn shown(&self) -> u64 {
        self.capacity().max(self.rate().map_or(0, |rate| rate.count()))
    }

    /// The time to which [`shown`](Self::shown) applies at `now`: the period of the rate or of the calendar, or the time
    /// that fills a bucket if that is larger than the count of the rate. Concurrency has none.
    pub fn window(&self, now: Time) -> Option<Span> {
        let rate = self.rate()?;
        if let Self::FixedWindow(window, _) = self {
            return Some(window.length(now));
        }
        let fills = u128::from(self.shown()) * u128::from(rate.period().as_nanos());
        let window = fills.div_ceil(u128::from(rate.count()));
        Some(Span::from_nanos(u64::try_from(window).unwrap_or(u64::MAX)))
    }

    /// The quota in `RateLimit-Policy`, per [`window`](Self::window). Windows have whole seconds there, so a quota for less
    /// than a second is converted to one second. No key ever has more left than this.
    pub fn policy(&self) -> u64 {
        let second = u128::from(Span::SECOND.as_nanos());
        match (self.rate(), self.window(Time::EPOCH)) {
            (Some(rate), Some(window)) if window < Span::SECOND && self.shown() == rate.count() => {
                let per_second = u128::from(rate.count()) * second / u128::from(rate.period().as_nanos());
                u64::try_from(per_second).unwrap_or(u64::MAX)
            }
            _ => self.shown(),
        }
    }

    /// The time for which a charge that is made at `now` counts in the same window or sub-window. Charges of the others drain
    /// continuously, or end with their request.
    pub fn window_left(&self, now: Time) -> Option<Span> {
        match self {
            Self::FixedWindow(algorithm, _) => Some(algorithm.window_left(now)),
            Self::SlidingWindow(algorithm, _) => Some(algorithm.slice_left(now)),
            Self::TokenBucket(..) | Self::LeakyBucket(..) | Self::SlidingLog(..) | Self::Concurrency(..) => {
                None
            }
        }
    }

    /// Whether it counts requests in flight.
    pub const fn is_concurrency(&self) -> bool {
        matches!(self, Self::Concurrency(..))
    }

    /// The rate; concurrency has none.
    pub const fn rate(&self) -> Option<Rate> {
        match self {
            Self::TokenBucket(_, rate, _)
            | Self::LeakyBucket(_, rate, _)
            | Self::FixedWindow(_, rate)
            | Self::SlidingLog(_, rate)
            | Self::SlidingWindow(_, rate) => Some(*rate),
            Self::Concurrency(..) => None,
        }
    }

    /// The time after which no admitted request counts any more, rounded up; concurrency has none.
    pub fn drain(&self) -> Option<Span> {
        let nanos = match self {
            Self::TokenBucket(_, rate, burst) | Self::LeakyBucket(_, rate, burst) => {
                let whole = u128::from(*burst) * u128::from(rate.period().as_nanos());
                whole.div_ceil(u128::from(rate.count()))
            }
            Self::FixedWindow(window, rate) => {
                window.calendar().map_or(rate.period(), |calendar| calendar.longest()).as_nanos().into()
            }
            Self::SlidingLog(_, rate) => rate.period().as_nanos().into(),
            Self::SlidingWindow(_, rate) => 2 * u128::from(rate.period().as_nanos()),
            Self::Concurrency(..) => return None,
        };
        Some(Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Whether a store that counts whole microseconds can count it: a bucket must drain within some 199 years.
    pub fn fits_store(&self) -> bool {
        match self {
            Self::TokenBucket(bucket, ..) => bucket.in_micros(0).is_some(),
            Self::LeakyBucket(bucket, ..) => bucket.in_micros(0).is_some(),
            Self::FixedWindow(..)
            | Self::SlidingLog(..)
            | Self::SlidingWindow(..)
            | Self::Concurrency(..) => true,
        }
    }

    /// The usage of a key that was never seen.
    pub fn fresh(&self, now: Time) -> Usage {
        match self {
            Self::TokenBucket(algorithm, ..) => algorithm.usage(&Default::default(), now),
            Self::LeakyBucket(algorithm, ..) => algorithm.usage(&Default::default(), now),
            Self::FixedWindow(algorithm, _) => algorithm.usage(&Default::default(), now),
            Self::SlidingLog(algorithm, _) => algorithm.usage(&Default::default(), now),
            Self::SlidingWindow(algorithm, _) => algorithm.usage(&Default::default(), now),
            Self::Concurrency(algorithm, _) => algorithm.usage(&Default::default(), now),
        }
    }

    /// See [`Algorithm::charged`].
    pub fn charged(&self, cost: u64, receipt: Receipt) -> Charge {
        match self {
            Self::TokenBucket(algorithm, ..) => algorithm.charged(cost, receipt),
            Self::LeakyBucket(algorithm, ..) => algorithm.charged(cost, receipt),
            Self::FixedWindow(algorithm, _) => algorithm.charged(cost, receipt),
            Self::SlidingLog(algorithm, _) => algorithm.charged(cost, receipt),
            Self::SlidingWindow(algorithm, _) => algorithm.charged(cost, receipt),
            Self::Concurrency(algorithm, _) => algorithm.charged(cost, receipt),
        }
    }

    /// The largest cost that a request can have and be admitted.
    pub const fn capacity(&self) -> u64 {
        match self {
            Self::TokenBucket(_, _, burst) | Self::LeakyBucket(_, _, burst) => *burst,
            Self::FixedWindow(_, rate) | Self::SlidingLog(_, rate) | Self::SlidingWindow(_, rate) => {
                rate.count()
            }
            Self::Concurrency(_, max) => *max,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::MAX_COUNT;

    /// The most that a key can have left: a key that was never seen has it.
    fn most(algorithm: &impl Algorithm) -> u64 {
        algorithm.usage(&Default::default(), Time::from_nanos(1_795_000_000_000_000_000)).remaining
    }

    proptest! {
        /// `RateLimit` never shows more than `RateLimit-Policy` allows.
        #[test]
        fn no_key_has_more_left_than_the_policy(
            (count, places, burst) in (1..=MAX_COUNT, 1..=1_000_000_u64, 1..=MAX_COUNT),
            millis in prop_oneof![1..=2_000_u64, 1..=366 * 86_400_000_u64],
            (delay, slices) in (prop::option::of(0..=100_000_u64), 1..=60_u32),
        ) {
            let period = Span::from_millis(millis);
            let (rate, few) = (Rate::new(count, period).unwrap(), Rate::new(places, period).unwrap());
            let token = TokenBucket::new(rate, burst).unwrap();
            let leaky = LeakyBucket::new(rate, burst, delay.map(Span::from_millis)).unwrap();
            let fixed = FixedWindow::new(rate);
            let log = SlidingLog::new(few, false).unwrap();
            let sliding = SlidingWindow::new(rate, slices).unwrap();
            let places = Concurrency::new(burst).unwrap();
            for (quota, most) in [
                (Quota::TokenBucket(token, rate, burst), most(&token)),
                (Quota::LeakyBucket(leaky, rate, burst), most(&leaky)),
                (Quota::FixedWindow(fixed, rate), most(&fixed)),
                (Quota::SlidingLog(log, few), most(&log)),
                (Quota::SlidingWindow(sliding, rate), most(&sliding)),
                (Quota::Concurrency(places, burst), most(&places)),
            ] {
                prop_assert!(most <= quota.shown() && quota.shown() <= quota.policy(), "{quota:?}");
            }
        }
    }

    /// The policy of a bucket that is larger than the count of the rate has the time that fills it, any other the rate.
    #[test]
    fn a_policy_is_the_rate_or_the_larger_bucket() {
        for (count, millis, burst, policy, seconds) in [
            (2, 1_000, 12, 12, 6),
            (3, 1_000, 7, 7, 3),
            (10, 60_000, 25, 25, 150),
            (10, 60_000, 10, 10, 60),
            (10, 60_000, 4, 10, 60),
            (10, 500, 4, 20, 1),
            (10, 500, 12, 12, 1),
            (10, 500, 50, 50, 3),
        ] {
            let rate = Rate::new(count, Span::from_millis(millis)).unwrap();
            let quota = Quota::TokenBucket(TokenBucket::new(rate, burst).unwrap(), rate, burst);
            let shown = (quota.policy(), quota.window(Time::EPOCH).unwrap().ceil_secs());
            assert_eq!(shown, (policy, seconds), "{count} in {millis} ms, burst {burst}");
        }
    }
}
