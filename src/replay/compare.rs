//! The same requests through every algorithm at the same rate, beside an exact sliding log: a perfect window.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sluicegate_counters::{Ask, CostKind, CountedLimit, Counters, decide};
use sluicegate_limiter::{
    Algorithm, FixedWindow, LeakyBucket, MAX_COUNT, MAX_LOG_PLACES, Quota, Rate, Slices, SlidingLog,
    SlidingWindow, Time, TokenBucket,
};

use super::Series;
use super::answered::Answered;
use sluicegate_gateway::limit::{Limit, SelectedLimit};

/// The numbers of sub-windows that are compared.
const WINDOWS: [u32; 10] = [1, 2, 3, 4, 6, 10, 12, 20, 30, 60];
/// The most keys whose windows are measured; further ones are decided only.
const MOST_KEYS: usize = 20_000;
/// The most keys that each algorithm counts.
const COUNTED_KEYS: usize = 10_000_000;

/// The comparison of all limits, by their indices; those without a rate have none.
pub struct Comparison {
    /// By the index of the limit.
    pub limits: Vec<Option<LimitComparison>>,
}

/// The algorithms at the rate of one limit.
pub struct LimitComparison {
    /// The rate.
    pub rate: Rate,
    exact: Judged,
    /// Each algorithm.
    pub algorithms: Vec<Judged>,
    /// sliding_window by its number of sub-windows.
    pub windows: Vec<(u32, Judged)>,
    /// How far the estimates are off, without a limit.
    errors: HashMap<u64, Measured>,
    /// The sums of the relative errors by number of sub-windows, and the number of requests.
    error: ([f64; WINDOWS.len()], u64),
    /// Requests.
    pub requests: u64,
}

/// The requests of a key in the last period, their sum, and the counts of each number of sub-windows.
type Measured = (VecDeque<(u64, u64)>, u64, [Slices; WINDOWS.len()]);

/// What one algorithm decides.
pub struct Judged {
    /// What it is called.
    pub label: String,
    limit: Arc<CountedLimit>,
    /// Requests that it refuses.
    pub refused: u64,
    /// Requests that it refuses although the exact log admits them.
    pub wrongly_refused: u64,
    /// Requests that it admits although the exact log refuses them.
    pub wrongly_admitted: u64,
    /// What it admitted over time.
    pub admitted: Series<1>,
    /// What it admitted to each key within the last period.
    last: HashMap<u64, (VecDeque<(u64, u64)>, u64)>,
    /// The most that it admitted to a key within any period.
    pub most: u64,
}

impl Judged {
    fn new(label: impl Into<String>, quota: Quota, cost: CostKind) -> Self {
        let label = label.into();
        let counters = Arc::new(Counters::new(&quota, COUNTED_KEYS));
        let mut limit = CountedLimit::new(&label, quota, counters);
        limit.cost = cost;
        Self {
            limit: Arc::new(limit),
            label,
            refused: 0,
            wrongly_refused: 0,
            wrongly_admitted: 0,
            admitted: Series::default(),
            last: HashMap::new(),
            most: 0,
        }
    }

    /// Decides a request, which costs so much in the end. `exact` is what the exact log decides; returns what this one does.
    fn decide(
        &mut self,
        ask: &Ask<'_>,
        (cost, answered): (u64, &Answered<'_>),
        exact: Option<bool>,
        period: u64,
    ) -> bool {
        let now = ask.at;
        let own = Ask::new(&self.limit, ask.key, ask.cost, now).with_base(ask.base);
        let mut decision = decide(&[own], false);
        answered.settle(&mut decision.holds, now);
        let admits = decision.admitted;
        self.refused += u64::from(!admits);
        self.wrongly_refused += u64::from(!admits && exact == Some(true));
        self.wrongly_admitted += u64::from(admits && exact == Some(false));
        if admits {
            self.admitted.add(now, 0, cost);
            let known = self.last.len() < MOST_KEYS || self.last.contains_key(&ask.key.get());
            if known {
                let (last, sum) = self.last.entry(ask.key.get()).or_default();
                *sum = sum.wrapping_add(within(last, (now.as_nanos(), cost), period));
                self.most = self.most.max(*sum);
            }
        }
        admits
    }
}

/// Adds a request to those of the last period. Returns by how much their sum changes, modulo 2^64.
fn within(last: &mut VecDeque<(u64, u64)>, (now, cost): (u64, u64), period: u64) -> u64 {
    let mut gone = 0;
    while last.front().is_some_and(|(then, _)| then + period <= now) {
        gone += last.pop_front().map_or(0, |(_, cost)| cost);
    }
    last.push_back((now, cost));
    cost.wrapping_sub(gone)
}

fn sliding(rate: Rate, slices: u32) -> Option<SlidingWindow> {
    SlidingWindow::new(rate, slices).ok()
}

impl LimitComparison {
    fn new(limit: &Limit) -> Option<Self> {
        let rate = limit.config.quota.rate().filter(|rate| rate.count() <= MAX_LOG_PLACES)?;
        let count = rate.count();
        let window = |slices| Some(Quota::SlidingWindow(sliding(rate, slices)?, rate));
        let strict = |slices| Some(Quota::SlidingWindow(sliding(rate, slices)?.strict(), rate));
        let all = [
            ("token bucket", Some(Quota::TokenBucket(TokenBucket::new(rate, count).ok()?, rate, count))),
            (
                "leaky bucket",
                Some(Quota::LeakyBucket(LeakyBucket::new(rate, count, None).ok()?, rate, count)),
            ),
            ("fixed window", Some(Quota::FixedWindow(FixedWindow::new(rate), rate))),
            ("sliding window, 1 slice", window(1)),
            ("sliding window, 10 slices", window(10)),
            ("sliding window, 10 slices, strict", strict(10)),
        ];
        let cost = limit.counted.cost;
        let algorithms = all.into_iter().filter_map(|(label, quota)| Some(Judged::new(label, quota?, cost)));
        let windows =
            WINDOWS.iter().filter_map(|slices| Some((*slices, Judged::new("", window(*slices)?, cost))));
        Some(Self {
            rate,
            exact: Judged::new(
                "exact sliding log",
                Quota::SlidingLog(SlidingLog::new(rate, false).ok()?, rate),
                cost,
            ),
            algorithms: algorithms.collect(),
            windows: windows.collect(),
            errors: HashMap::new(),
            error: Default::default(),
            requests: 0,
        })
    }

    fn add(&mut self, ask: &Ask<'_>, answered: &Answered<'_>) {
        let period = self.rate.period().as_nanos();
        self.requests += 1;
        let cost = answered.cost(ask);
        let exact = self.exact.decide(ask, (cost, answered), None, period);
        for judged in self.algorithms.iter_mut().chain(self.windows.iter_mut().map(|(_, judged)| judged)) {
            judged.decide(ask, (cost, answered), Some(exact), period);
        }
        if self.errors.len() < MOST_KEYS || self.errors.contains_key(&ask.key.get()) {
            self.measure(ask.key.get(), ask.at, cost);
        }
    }

    /// Compares the estimates with the truth, both without a limit.
    fn measure(&mut self, key: u64, at: Time, cost: u64) {
        let Ok(rate) = Rate::new(MAX_COUNT, self.rate.period()) else { return };
        let (log, truth, states) = self.errors.entry(key).or_default();
        *truth = truth.wrapping_add(within(log, (at.as_nanos(), cost), rate.period().as_nanos()));
        let (sums, requests) = &mut self.error;
        *requests += 1;
        for ((slices, state), sum) in WINDOWS.iter().zip(states).zip(sums) {
            let Some(window) = sliding(rate, *slices) else { continue };
            window.charge(state, at, cost);
            let usage = window.usage(state, at);
            *sum += (usage.capacity - usage.remaining).abs_diff(*truth) as f64 / (*truth).max(1) as f64;
        }
    }

    /// The exact log.
    pub const fn exact(&self) -> &Judged {
        &self.exact
    }

    /// The mean of |estimate - count| / count with the sub-windows of this index, without a limit.
    pub fn mean_error(&self, index: usize) -> f64 {
        self.error.0[index] / self.error.1.max(1) as f64
    }
}

impl Comparison {
    /// A comparison at the rates of these limits.
    pub fn new(limits: &[Arc<Limit>]) -> Self {
        Self { limits: limits.iter().map(|limit| LimitComparison::new(limit)).collect() }
    }

    /// Decides a request by all algorithms.
    pub(super) fn add(&mut self, selected: &[SelectedLimit<'_>], answered: &Answered<'_>) {
        for one in selected.iter().filter(|one| !one.candidate) {
            if let Some(limit) = &mut self.limits[one.index] {
                limit.add(&one.ask, answered);
            }
        }
    }
}
