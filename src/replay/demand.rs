//! How large a limit would have to be so that it never refuses a key: what suggestions and "how close to the limit" are made
//! of. Until the first refusal a limit counts all requests, so the largest count without a limit decides whether there is one.

use sluicegate_limiter::{Algorithm, Quota, Rate, Slices, SlidingWindow, Span, Time};

/// The requests of one key, as far as they decide how large its limit would have to be.
#[derive(Clone, Debug)]
pub enum Demand {
    /// fixed_window: the current window and its count, and the largest count of a window.
    Fixed {
        /// The number of the window.
        window: u64,
        /// Its count.
        count: u64,
        /// The largest.
        most: u64,
    },
    /// sliding_window: the counts of its sub-windows, and the largest estimate.
    Sliding(Box<(SlidingWindow, Slices, u64)>),
    /// sliding_log: the instants of the last period, and the largest count.
    Log {
        /// The instants, with the costs.
        instants: std::collections::VecDeque<(u64, u64)>,
        /// The sum of the costs.
        count: u64,
        /// The largest.
        most: u64,
    },
    /// Buckets: the lower convex hull of the points (time, requests before), and the steepest slope to it so far.
    Bucket(Box<Bucket>),
    /// Nothing is known of it: concurrency, or a limit that counts by a calendar.
    Unknown,
}

/// The demand on a bucket. A bucket of `burst` that refills at r never refuses a key if for any two requests the costs from the
/// first to the last are at most burst + r · (time between them): r is the steepest slope from (t, requests before t + burst)
/// to (t', requests up to t'). A bucket as large as the count N of its rate never refuses if N · (1 + time / period) is enough.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// The points of the hull: nanoseconds since the first request, and units.
    hull: Vec<(i64, i64)>,
    /// All units so far.
    units: i64,
    /// The time of the first request.
    begun: u64,
    /// What is added to the units of a point: the burst, unless that grows with the rate.
    burst: i64,
    /// What is taken from the time of a point: the period, if the burst is the count of the rate.
    period: i64,
    /// Units in a period of the steepest slope so far; infinite if no rate is enough.
    most: f64,
    /// The period of the rate in nanoseconds.
    of: f64,
}

/// The most points of a hull. Beyond that the oldest are merged, which can only make the demand larger.
const POINTS: usize = 256;

impl Demand {
    /// No requests yet, under this quota. `grows`: the burst is the count of the rate.
    pub fn new(quota: &Quota, grows: bool) -> Self {
        match quota {
            Quota::FixedWindow(window, _) if window.calendar().is_none() => {
                Self::Fixed { window: 0, count: 0, most: 0 }
            }
            Quota::SlidingWindow(window, rate) => match unlimited(*rate, window) {
                Some(window) => Self::Sliding(Box::new((window, Slices::default(), 0))),
                None => Self::Unknown,
            },
            Quota::SlidingLog(..) => Self::Log { instants: Default::default(), count: 0, most: 0 },
            Quota::TokenBucket(_, rate, burst) | Quota::LeakyBucket(_, rate, burst) => {
                let period = rate.period().as_nanos();
                Self::Bucket(Box::new(Bucket {
                    hull: Vec::new(),
                    units: 0,
                    begun: 0,
                    burst: if grows { 0 } else { *burst as i64 },
                    period: if grows { period as i64 } else { 0 },
                    most: 0.0,
                    of: period as f64,
                }))
            }
            Quota::FixedWindow(..) | Quota::Concurrency(..) => Self::Unknown,
        }
    }

    /// Counts a request.
    pub fn add(&mut self, at: Time, cost: u64, period: Span) {
        let nanos = at.as_nanos();
        match self {
            Self::Fixed { window, count, most } => {
                let current = nanos / period.as_nanos().max(1);
                if *window != current {
                    (*window, *count) = (current, 0);
                }
                *count += cost;
                *most = (*most).max(*count);
            }
            Self::Sliding(state) => {
                let (window, slices, most) = &mut **state;
                window.charge(slices, at, cost);
                let usage = window.usage(slices, at);
                *most = (*most).max(usage.capacity - usage.remaining);
            }
            Self::Log { instants, count, most } => {
                while instants.front().is_some_and(|(then, _)| then + period.as_nanos() <= nanos) {
                    *count -= instants.pop_front().map_or(0, |(_, cost)| cost);
                }
                instants.push_back((nanos, cost));
                *count += cost;
                *most = (*most).max(*count);
            }
            Self::Bucket(bucket) => bucket.add(nanos, cost),
            Self::Unknown => {}
        }
    }

    /// The smallest count of the rate that never refuses the key; `None` if it is not known, or no rate is enough.
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::Fixed { most, .. } | Self::Log { most, .. } => Some(*most),
            Self::Sliding(state) => Some(state.2),
            Self::Bucket(bucket) => {
                bucket.most.is_finite().then(|| (bucket.most - 1e-6).ceil().max(1.0) as u64)
            }
            Self::Unknown => None,
        }
    }

    /// Whether the demand is known, even if no rate is enough.
    pub const fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown)
    }
}

/// The same windows without a limit.
fn unlimited(rate: Rate, window: &SlidingWindow) -> Option<SlidingWindow> {
    let rate = Rate::new(sluicegate_limiter::MAX_COUNT, rate.period()).ok()?;
    let made = SlidingWindow::new(rate, window.slices()).ok()?;
    Some(if window.is_strict() { made.strict() } else { made })
}

impl Bucket {
    fn add(&mut self, nanos: u64, cost: u64) {
        if self.hull.is_empty() {
            self.begun = nanos;
        }
        let at = nanos.saturating_sub(self.begun) as i64;
        self.put((at - self.period, self.units + self.burst));
        self.units += cost as i64;
        self.most = self.most.max(self.slope((at, self.units)));
    }

    /// Adds a point behind all others to the lower convex hull.
    fn put(&mut self, point: (i64, i64)) {
        let cross = |a: (i64, i64), b: (i64, i64), c: (i64, i64)| {
            i128::from(b.0 - a.0) * i128::from(c.1 - a.1) - i128::from(b.1 - a.1) * i128::from(c.0 - a.0)
        };
        if self.hull.last().is_some_and(|last| last.0 == point.0 && last.1 <= point.1) {
            return; // the same instant, with more before it
        }
        while let [.., a, b] = self.hull[..]
            && cross(a, b, point) <= 0
        {
            self.hull.pop();
        }
        self.hull.push(point);
        if self.hull.len() > POINTS {
            // Between the two oldest points, the lower and later corner is on no side less steep.
            let (first, second) = (self.hull[0], self.hull[1]);
            self.hull.remove(0);
            self.hull[0] = (second.0, first.1.min(second.1));
        }
    }

    /// Units in a period of the steepest line from a point of the hull to `to`.
    fn slope(&self, to: (i64, i64)) -> f64 {
        let slope = |from: &(i64, i64)| {
            let (run, rise) = (to.0 - from.0, to.1 - from.1);
            match (run, rise) {
                (_, ..=0) => 0.0,
                (..=0, _) => f64::INFINITY,
                (run, rise) => rise as f64 / run as f64 * self.of,
            }
        };
        // Along a convex hull the slope to a point above it first rises, then falls.
        let mut range = 0..self.hull.len();
        while range.len() > 2 {
            let middle = range.start + range.len() / 2;
            if slope(&self.hull[middle - 1]) < slope(&self.hull[middle]) {
                range.start = middle;
            } else {
                range.end = middle;
            }
        }
        let near = range.start.saturating_sub(1)..(range.end + 1).min(self.hull.len());
        self.hull[near].iter().map(slope).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sluicegate_limiter::{FixedWindow, LeakyBucket, SlidingLog, TokenBucket};

    use super::*;

    const BEGUN: u64 = 1_795_000_000_000_000_000;
    const PERIOD: Span = Span::from_secs(10);

    /// Whether a key with these requests is refused by a quota.
    fn refuses<A: Algorithm>(algorithm: &A, requests: &[(u64, u64)]) -> bool {
        let mut state = A::State::default();
        requests.iter().any(|(at, cost)| {
            let at = Time::from_nanos(*at);
            let refused = algorithm.check(&state, at, *cost).is_err();
            algorithm.charge(&mut state, at, *cost);
            refused
        })
    }

    proptest! {
        /// A limit of the count refuses nothing; one below it refuses something.
        #[test]
        fn the_count_is_the_smallest_that_refuses_nothing(
            gaps in proptest::collection::vec((0..4_000_u64, 1..4_u64), 1..80),
            (slices, strict, burst) in (1..6_u32, any::<bool>(), 5..40_u64),
        ) {
            let mut at = BEGUN;
            let requests: Vec<(u64, u64)> = gaps
                .iter()
                .map(|(gap, cost)| {
                    at += gap * 1_000_000;
                    (at, *cost)
                })
                .collect();
            let demand = |quota: &Quota, grows: bool| {
                let mut demand = Demand::new(quota, grows);
                requests.iter().for_each(|(at, cost)| demand.add(Time::from_nanos(*at), *cost, PERIOD));
                demand.count()
            };
            let rate = |count: u64| Rate::new(count.max(1), PERIOD).unwrap();
            let window = |count: u64| {
                let window = SlidingWindow::new(rate(count), slices).unwrap();
                if strict { window.strict() } else { window }
            };
            let count = demand(&Quota::FixedWindow(FixedWindow::new(rate(5)), rate(5)), false).unwrap();
            prop_assert!(!refuses(&FixedWindow::new(rate(count)), &requests));
            prop_assert!(count == 1 || refuses(&FixedWindow::new(rate(count - 1)), &requests));
            let count = demand(&Quota::SlidingWindow(window(5), rate(5)), false).unwrap();
            prop_assert!(!refuses(&window(count), &requests));
            prop_assert!(count == 1 || refuses(&window(count - 1), &requests));
            let log = |count: u64| SlidingLog::new(rate(count), false).unwrap();
            let count = demand(&Quota::SlidingLog(log(5), rate(5)), false).unwrap();
            prop_assert!(!refuses(&log(count), &requests));
            prop_assert!(count == 1 || refuses(&log(count - 1), &requests));
            let bucket = |count: u64| TokenBucket::new(rate(count), count.max(1)).unwrap();
            let count = demand(&Quota::TokenBucket(bucket(5), rate(5), 5), true).unwrap();
            prop_assert!(!refuses(&bucket(count), &requests), "{count}");
            prop_assert!(count == 1 || refuses(&bucket(count - 1), &requests), "{count}");
            let bucket = |count: u64| TokenBucket::new(rate(count), burst).unwrap();
            let count = demand(&Quota::TokenBucket(bucket(5), rate(5), burst), false);
            match count {
                Some(count) => {
                    prop_assert!(!refuses(&bucket(count), &requests), "{count}");
                    prop_assert!(count == 1 || refuses(&bucket(count - 1), &requests), "{count}");
                }
                None => prop_assert!(refuses(&bucket(1_000_000_000), &requests)),
            }
            let leaky = |count: u64| LeakyBucket::new(rate(count), burst, None).unwrap();
            let count = demand(&Quota::LeakyBucket(leaky(5), rate(5), burst), false);
            prop_assert!(count.is_none_or(|count| !refuses(&leaky(count), &requests)), "{count:?}");
        }
    }
}
