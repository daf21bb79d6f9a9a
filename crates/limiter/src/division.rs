//! Quotas that are divided, so that each part can be enforced alone.

use crate::{Concurrency, FixedWindow, LeakyBucket, Quota, Rate, SlidingLog, SlidingWindow, TokenBucket};

/// What one part gets of a quota, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Of the rate of a bucket. It may change at any time if the sum of all parts is never above a million.
    pub rate: u32,
    /// Of the size of a bucket, of the count of a window, and of the places of a concurrency limit. It does not change.
    pub size: u32,
}

impl Division {
    /// The part of a quota; `None` if a number of it is less than one.
    ///
    /// Numbers are rounded down. What all parts admit together is never more than what the quota admits: in any interval,
    /// buckets give what they hold at its begin, of which the sum is at most `burst`, and what is refilled, of which the sum is
    /// at most that of the whole rate. A debt is carried over in requests when the rate changes, because the size stays.
    pub fn of(self, quota: &Quota) -> Option<Quota> {
        let rate = |rate: Rate, part: u32| Rate::new(share(rate.count(), part), rate.period()).ok();
        Some(match *quota {
            Quota::TokenBucket(bucket, whole, burst) => {
                let (rate, burst) = (rate(whole, self.rate)?, share(burst, self.size));
                let overdraft = bucket.overdraft();
                Quota::TokenBucket(TokenBucket::new(rate, burst).ok()?.with_overdraft(overdraft), rate, burst)
            }
            Quota::LeakyBucket(bucket, whole, burst) => {
                let (rate, burst) = (rate(whole, self.rate)?, share(burst, self.size));
                Quota::LeakyBucket(LeakyBucket::new(rate, burst, bucket.max_delay()).ok()?, rate, burst)
            }
            Quota::FixedWindow(window, whole) => {
                let rate = rate(whole, self.size)?;
                let window = window
                    .calendar()
                    .map_or(FixedWindow::new(rate), |calendar| FixedWindow::with_calendar(rate, calendar));
                Quota::FixedWindow(window, rate)
            }
            Quota::SlidingWindow(window, whole) => {
                let rate = rate(whole, self.size)?;
                let part = SlidingWindow::new(rate, window.slices()).ok()?;
                Quota::SlidingWindow(if window.is_strict() { part.strict() } else { part }, rate)
            }
            Quota::SlidingLog(log, whole) => {
                let rate = rate(whole, self.size)?;
                Quota::SlidingLog(SlidingLog::new(rate, log.counts_rejected()).ok()?, rate)
            }
            Quota::Concurrency(_, max) => {
                let max = share(max, self.size);
                Quota::Concurrency(Concurrency::new(max).ok()?, max)
            }
        })
    }
}

fn share(count: u64, part: u32) -> u64 {
    let share = u128::from(count) * u128::from(part.min(1_000_000)) / 1_000_000;
    share as u64 // at most the count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;

    #[test]
    fn parts_are_rounded_down_and_never_nothing() {
        let rate = Rate::new(10, Span::SECOND).expect("a rate");
        let quota = Quota::TokenBucket(TokenBucket::new(rate, 100).expect("a bucket"), rate, 100);
        let part = |rate, size| Division { rate, size }.of(&quota);
        let numbers =
            |quota: Quota| (quota.rate().map(|rate| rate.count()).unwrap_or_default(), quota.capacity());
        assert_eq!(part(350_000, 500_000).map(numbers), Some((3, 50)));
        assert_eq!(part(1_000_000, 1_000_000), Some(quota));
        assert_eq!(part(99_999, 500_000), None);
        assert_eq!(part(500_000, 9_999), None);
        let places = Quota::Concurrency(Concurrency::new(7).expect("places"), 7);
        assert_eq!(Division { rate: 0, size: 500_000 }.of(&places).map(|quota| quota.capacity()), Some(3));
    }
}
