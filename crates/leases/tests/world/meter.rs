//! How much is admitted above a limit, in the worst of all intervals.

use sluicegate_limiter::{Algorithm, Quota, Slices, SlidingWindow, Time};

pub(crate) struct Meter {
    kind: Kind,
    /// When requests were admitted. Those that the store has decided are told when its answer arrives.
    admitted: Vec<(Time, u64)>,
}

enum Kind {
    /// The level of a bucket that never refuses: what it is above the burst was admitted too much in some interval. In
    /// nanoseconds times the count of the rate.
    Bucket { count: u128, period: u128, burst: u64, level: u128, last: Time },
    /// The requests of each window.
    Fixed { period: u64, count: u64, windows: std::collections::HashMap<u64, u64> },
    /// What the algorithm itself counts at the time of each request.
    Sliding { algorithm: SlidingWindow, state: Slices },
}

impl Meter {
    pub(crate) fn new(quota: &Quota) -> Self {
        let rate = quota.rate().expect("it has a rate");
        let (count, period) = (rate.count(), rate.period().as_nanos());
        let kind = match quota {
            Quota::FixedWindow(..) => Kind::Fixed { period, count, windows: Default::default() },
            Quota::SlidingWindow(algorithm, _) => {
                Kind::Sliding { algorithm: *algorithm, state: Slices::default() }
            }
            _ => Kind::Bucket {
                count: count.into(),
                period: period.into(),
                burst: quota.capacity(),
                level: 0,
                last: Time::EPOCH,
            },
        };
        Self { kind, admitted: Vec::new() }
    }

    /// So many requests were admitted at `at`.
    pub(crate) fn admit(&mut self, at: Time, requests: u64) {
        self.admitted.push((at, requests));
    }

    /// The most requests above the limit in any interval.
    pub(crate) fn over(mut self) -> u64 {
        self.admitted.sort_unstable();
        let Self { mut kind, admitted } = self;
        admitted.into_iter().map(|(at, requests)| kind.over(at, requests)).max().unwrap_or(0)
    }
}

impl Kind {
    /// By how much requests at `now` are too many, behind those before.
    fn over(&mut self, now: Time, requests: u64) -> u64 {
        match self {
            Kind::Bucket { count, period, burst, level, last } => {
                let drained = u128::from(now.since(*last).as_nanos()) * *count;
                *last = now;
                *level = level.saturating_sub(drained) + u128::from(requests) * *period;
                (*level / *period) as u64 - (*burst).min((*level / *period) as u64)
            }
            Kind::Fixed { period, count, windows } => {
                let used = windows.entry(now.as_nanos() / *period).or_default();
                *used += requests;
                used.saturating_sub(*count)
            }
            Kind::Sliding { algorithm, state } => {
                let mut over = 0;
                for _ in 0..requests {
                    over += u64::from(algorithm.check(state, now, 1).is_err());
                    algorithm.charge(state, now, 1);
                }
                over
            }
        }
    }
}
