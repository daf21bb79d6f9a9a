//! Sums over all workers for those who look at a running gateway: what a sampler keeps, and the page shows.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::registry::{Metrics, PerWorker, Series};
use super::worker_counters::{BOUNDS, CODES, Histogram, LimitMetrics, RouteMetrics};
use sluicegate_base::limit_outcome::LimitOutcome;
use sluicegate_base::refusal_reason::RefusalReason;

/// The number of buckets of a histogram of durations.
pub const BUCKETS: usize = BOUNDS.len() + 1;

/// All requests so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests, those that limits or bans refused, and those that were answered with 5xx.
    pub requests: [u64; 3],
    /// By limit: admitted, refused, and those that a limit in shadow mode would have refused.
    pub limits: BTreeMap<String, [u64; 3]>,
    /// By listener: open connections.
    pub connections: BTreeMap<String, i64>,
}

/// The requests of one route so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTotals {
    /// By the first digit of the status, from 1.
    pub classes: [u64; 5],
    /// By duration, the last without an upper bound.
    pub durations: [u64; BUCKETS],
    /// Bytes of the bodies of requests and of answers.
    pub bytes: [u64; 2],
}

impl RouteTotals {
    /// All requests.
    pub fn requests(&self) -> u64 {
        self.classes.iter().sum()
    }
}

/// The seconds that a share of requests took at most, by the counts of their durations: linear within a bucket. `None` without
/// requests.
pub fn quantile(durations: &[u64; BUCKETS], share: f64) -> Option<f64> {
    let all: u64 = durations.iter().sum();
    if all == 0 {
        return None;
    }
    let bound =
        |bucket: usize| BOUNDS.get(bucket).map_or(*BOUNDS.last().unwrap_or(&0), |bound| *bound) as f64 / 1e9;
    let wanted = share * all as f64;
    let mut below = 0.0;
    for (bucket, count) in durations.iter().enumerate() {
        let count = *count as f64;
        if count > 0.0 && below + count >= wanted {
            let lower = if bucket == 0 { 0.0 } else { bound(bucket - 1) };
            return Some(lower + (bound(bucket) - lower) * ((wanted - below) / count).clamp(0.0, 1.0));
        }
        below += count;
    }
    Some(bound(BUCKETS))
}

impl Metrics {
    /// The sums that the sampler keeps.
    pub fn totals(&self) -> Totals {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals = Totals { requests: series.requests_of_removed_routes(), ..Totals::default() };
        for worker in series.routes.values().flat_map(BTreeMap::values) {
            add(&mut totals.requests, &requests(worker));
        }
        let outcome = |workers: &BTreeMap<usize, Arc<LimitMetrics>>, outcome: LimitOutcome| {
            workers.values().map(|worker| worker.outcomes[outcome as usize].get()).sum()
        };
        let limits: &PerWorker<LimitMetrics> = &series.limits;
        totals.limits = limits
            .iter()
            .map(|(name, workers)| {
                let counts = [LimitOutcome::Admitted, LimitOutcome::Refused, LimitOutcome::ShadowRefused]
                    .map(|wanted| outcome(workers, wanted));
                (name.clone(), counts)
            })
            .collect();
        let open = series.connections.iter();
        totals.connections = open.map(|(name, open)| (name.clone(), open.load(Ordering::Relaxed))).collect();
        totals
    }

    /// The sums of each route; the empty name stands for requests without one.
    pub fn routes(&self) -> BTreeMap<String, RouteTotals> {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let of_route = |(name, workers): (&String, &BTreeMap<usize, Arc<RouteMetrics>>)| {
            let mut totals = RouteTotals::default();
            for worker in workers.values() {
                add(&mut totals.classes, &classes(worker));
                add(&mut totals.durations, &counts(&worker.duration));
                add(&mut totals.bytes, &[worker.received.get(), worker.sent.get()]);
            }
            (name.clone(), totals)
        };
        series.routes.iter().map(of_route).collect()
    }
}

impl Series {
    /// The requests of routes that reloads have removed. Counters that no worker uses any more are added up and freed.
    fn requests_of_removed_routes(&mut self) -> [u64; 3] {
        for ended in self.leaving.extract_if(.., |worker| Arc::strong_count(worker) == 1) {
            add(&mut self.left, &requests(&ended));
        }
        let mut sums = self.left;
        self.leaving.iter().for_each(|worker| add(&mut sums, &requests(worker)));
        sums
    }
}

/// The requests of a route, those that limits or bans refused, and those that were answered with 5xx.
fn requests(route: &RouteMetrics) -> [u64; 3] {
    let classes = classes(route);
    let refused =
        [RefusalReason::Limit, RefusalReason::Ban].map(|reason| route.refusals[reason as usize].get());
    [classes.iter().sum(), refused.iter().sum(), classes[4]]
}

fn add<const N: usize>(sum: &mut [u64; N], more: &[u64; N]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

fn counts(histogram: &Histogram) -> [u64; BUCKETS] {
    std::array::from_fn(|bucket| histogram.buckets[bucket].get())
}

/// Requests by the first digit of their status. A status that is not counted by itself is the upstream's, and of any class.
fn classes(route: &RouteMetrics) -> [u64; 5] {
    let mut classes = [0; 5];
    for (at, counter) in route.codes.iter().enumerate() {
        let class = CODES.get(at).map_or(1, |code| usize::from(*code / 100) - 1);
        classes[class] += counter.get();
    }
    classes
}

#[cfg(test)]
mod tests {
    use sluicegate_limiter::Span;

    use super::super::registry::ConfiguredNames;
    use super::*;

    #[test]
    fn sums_and_quantiles() {
        let metrics = Metrics::default();
        for (worker, code, millis) in [(0, 200, 3), (1, 200, 3), (0, 503, 700), (1, 429, 0)] {
            metrics.route("api", worker).finish(code, Span::from_millis(millis));
        }
        metrics.route("api", 1).refused(RefusalReason::Limit);
        metrics.limit("l", 0).count(LimitOutcome::Admitted);
        metrics.limit("l", 1).count(LimitOutcome::Refused);
        let totals = metrics.totals();
        assert_eq!((totals.requests, totals.limits["l"]), ([4, 1, 1], [1, 1, 0]));
        let api = &metrics.routes()["api"];
        assert_eq!((api.requests(), api.classes), (4, [0, 2, 0, 1, 1]));
        let median = quantile(&api.durations, 0.5).unwrap();
        assert!((0.0025..=0.005).contains(&median), "{median}");
        assert!(quantile(&api.durations, 0.99).unwrap() > 0.5);
        assert_eq!(quantile(&[0; BUCKETS], 0.5), None);
    }

    /// A worker counts in the counters of a removed route until its last request of that route has ended.
    #[test]
    fn sums_keep_what_removed_routes_counted() {
        let metrics = Metrics::default();
        let old = metrics.route("old", 0);
        old.finish(503, Span::from_millis(3));
        metrics.retain(&ConfiguredNames::default());
        assert_eq!((metrics.totals().requests, metrics.routes().len()), ([1, 0, 1], 0));
        old.finish(200, Span::from_millis(3));
        old.refused(RefusalReason::Limit);
        assert_eq!(metrics.totals().requests, [2, 1, 1]);
        drop(old);
        assert_eq!(metrics.totals().requests, [2, 1, 1]);
        assert_eq!(metrics.series.lock().unwrap().leaving.len(), 0);
    }
}
