//! Sums over all workers for those who look at a running gateway: what a sampler keeps, and the page shows.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::registry::{Metrics, PerWorker};
use super::worker_counters::{BOUNDS, CODES, Histogram, LimitMetrics, Outcome, RouteMetrics};
use crate::refusal_reason::RefusalReason;

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
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals = Totals::default();
        for worker in series.routes.values().flat_map(BTreeMap::values) {
            let [requests, refused, errors] = &mut totals.requests;
            let classes = classes(worker);
            *requests += classes.iter().sum::<u64>();
            *errors += classes[4];
            *refused += worker.refusals[RefusalReason::Limit as usize].get()
                + worker.refusals[RefusalReason::Ban as usize].get();
        }
        let outcome = |workers: &BTreeMap<usize, std::sync::Arc<LimitMetrics>>, outcome: Outcome| {
            workers.values().map(|worker| worker.outcomes[outcome as usize].get()).sum()
        };
        let limits: &PerWorker<LimitMetrics> = &series.limits;
        totals.limits = limits
            .iter()
            .map(|(name, workers)| {
                let counts = [Outcome::Admitted, Outcome::Refused, Outcome::ShadowRefused]
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
        let of_route = |(name, workers): (&String, &BTreeMap<usize, std::sync::Arc<RouteMetrics>>)| {
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

    use super::*;

    #[test]
    fn sums_and_quantiles() {
        let metrics = Metrics::default();
        for (worker, code, millis) in [(0, 200, 3), (1, 200, 3), (0, 503, 700), (1, 429, 0)] {
            metrics.route("api", worker).finish(code, Span::from_millis(millis));
        }
        metrics.route("api", 1).refused(RefusalReason::Limit);
        metrics.limit("l", 0).count(Outcome::Admitted);
        metrics.limit("l", 1).count(Outcome::Refused);
        let totals = metrics.totals();
        assert_eq!((totals.requests, totals.limits["l"]), ([4, 1, 1], [1, 1, 0]));
        let api = &metrics.routes()["api"];
        assert_eq!((api.requests(), api.classes), (4, [0, 2, 0, 1, 1]));
        let median = quantile(&api.durations, 0.5).unwrap();
        assert!((0.0025..=0.005).contains(&median), "{median}");
        assert!(quantile(&api.durations, 0.99).unwrap() > 0.5);
        assert_eq!(quantile(&[0; BUCKETS], 0.5), None);
    }
}
