//! The registry: counters of all workers, by the name of what they count.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sluicegate_limiter::Time;

use super::abort_counts::AbortCounts;
use super::consumers::{ConsumerCounts, Consumers};
use super::ignored_forwarded::IgnoredForwarded;
use super::listeners::ListenerMetrics;
use super::otlp::OtlpMetrics;
use super::worker_counters::{LimitMetrics, RouteMetrics, StoreMetrics, UpstreamMetrics};
use sluicegate_base::refusal_reason::RefusalReason;

/// Counters by name and worker.
pub(super) type PerWorker<T> = BTreeMap<String, BTreeMap<usize, Arc<T>>>;

/// All counters of the process.
#[derive(Default)]
pub struct Metrics {
    pub(super) series: Mutex<Series>,
    pub(super) consumers: Mutex<Consumers>,
    /// Whether the last reload was accepted: 1 or 0.
    pub reload_successful: AtomicU64,
    /// When the configuration in force was loaded, in seconds since the epoch.
    pub reload_at: AtomicU64,
    /// Until when parts of rates are lent to this region, in nanoseconds since the epoch; 0 if none are.
    pub lent_until: AtomicU64,
    /// HTTP/2 connections that were closed because of what the client sent, by reason.
    pub aborts: AbortCounts,
    /// Requests with a header that names the client, from peers that are not trusted.
    pub ignored_forwarded: IgnoredForwarded,
    /// Lines of the access log that were dropped.
    pub access_log_dropped: Arc<AtomicU64>,
    /// Messages to a collector.
    pub otlp: Arc<OtlpMetrics>,
    /// Lines of the process log that were dropped.
    pub log_dropped: Arc<AtomicU64>,
}

/// The names that a configuration has, by kind.
#[derive(Debug, Default)]
pub struct ConfiguredNames<'c> {
    /// Routes.
    pub routes: HashSet<&'c str>,
    /// Limits.
    pub limits: HashSet<&'c str>,
    /// Upstreams.
    pub upstreams: HashSet<&'c str>,
    /// Listeners.
    pub listeners: HashSet<&'c str>,
}

#[derive(Default)]
pub(super) struct Series {
    pub(super) routes: PerWorker<RouteMetrics>,
    /// Counters of routes that a reload has removed while workers still count in them.
    pub(super) leaving: Vec<Arc<RouteMetrics>>,
    /// What was counted for removed routes that no worker counts in any more: the same three sums as those of `Totals`.
    pub(super) left: [u64; 3],
    pub(super) limits: PerWorker<LimitMetrics>,
    pub(super) upstreams: PerWorker<UpstreamMetrics>,
    /// By kind of store; there is only `redis`.
    pub(super) stores: PerWorker<StoreMetrics>,
    pub(super) listeners: PerWorker<ListenerMetrics>,
    pub(super) connections: BTreeMap<String, Arc<AtomicI64>>,
}

impl Metrics {
    /// A registry in which every counter is 0. `log_dropped` is incremented by the process log.
    pub fn new(log_dropped: Arc<AtomicU64>) -> Self {
        Self { log_dropped, ..Self::default() }
    }

    /// Whether the home store of the regions has answered lately.
    pub fn is_lent(&self, now: Time) -> bool {
        now.as_nanos() < self.lent_until.load(Ordering::Acquire)
    }

    fn of_worker<T: Default>(
        &self,
        name: &str,
        worker: usize,
        of: impl FnOnce(&mut Series) -> &mut PerWorker<T>,
    ) -> Arc<T> {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(of(&mut series).entry(name.to_owned()).or_default().entry(worker).or_default())
    }

    /// A worker's counters of a route. The empty name stands for requests without a route.
    pub fn route(&self, name: &str, worker: usize) -> Arc<RouteMetrics> {
        self.of_worker(name, worker, |series| &mut series.routes)
    }

    /// A worker's counters of a limit.
    pub fn limit(&self, name: &str, worker: usize) -> Arc<LimitMetrics> {
        self.of_worker(name, worker, |series| &mut series.limits)
    }

    /// A worker's counters of an upstream.
    pub fn upstream(&self, name: &str, worker: usize) -> Arc<UpstreamMetrics> {
        self.of_worker(name, worker, |series| &mut series.upstreams)
    }

    /// A worker's counters of the store.
    pub fn store(&self, worker: usize) -> Arc<StoreMetrics> {
        self.of_worker("redis", worker, |series| &mut series.stores)
    }

    /// A worker's counters of a listener.
    pub fn listener(&self, name: &str, worker: usize) -> Arc<ListenerMetrics> {
        self.of_worker(name, worker, |series| &mut series.listeners)
    }

    /// Shows the requests of so many consumers by name from now on, 0 for none.
    pub fn show_consumers(&self, most: usize) {
        self.consumers.lock().unwrap_or_else(PoisonError::into_inner).show(most);
    }

    /// A worker's counters by consumer; `None` if there are none.
    pub fn consumers(&self, worker: usize) -> Option<Arc<ConsumerCounts>> {
        self.consumers.lock().unwrap_or_else(PoisonError::into_inner).worker(worker)
    }

    /// The number of open connections of a listener, shared by all workers.
    pub fn connections(&self, listener: &str) -> Arc<AtomicI64> {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(series.connections.entry(listener.to_owned()).or_default())
    }

    /// The number of open connections of all listeners.
    pub fn open_connections(&self) -> i64 {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.connections.values().map(|open| open.load(Ordering::Relaxed)).sum()
    }

    /// Refused requests by route and reason, the most frequent first.
    pub fn refusals(&self) -> Vec<(String, RefusalReason, u64)> {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::new();
        for (route, workers) in &series.routes {
            for reason in RefusalReason::ALL {
                let count = workers.values().map(|worker| worker.refusals[*reason as usize].get()).sum();
                if count > 0 {
                    all.push((route.clone(), *reason, count));
                }
            }
        }
        all.sort_by_key(|(_, _, count)| Reverse(*count));
        all
    }

    /// Removes the series of names that are not in `names`, so that renaming does not accumulate series. Open connections
    /// of a removed listener are exposed until they are closed.
    pub fn retain(&self, names: &ConfiguredNames<'_>) {
        let ConfiguredNames { routes, limits, upstreams, listeners } = names;
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        // Their series go, but what they counted stays in the sums of all requests, which must never decrease.
        let (kept, gone): (PerWorker<RouteMetrics>, _) = std::mem::take(&mut series.routes)
            .into_iter()
            .partition(|(name, _)| name.is_empty() || routes.contains(name.as_str()));
        series.routes = kept;
        let gone = gone.into_values().flat_map(BTreeMap::into_values);
        series.leaving.extend(gone);
        series.limits.retain(|name, _| limits.contains(name.as_str()));
        series.upstreams.retain(|name, _| upstreams.contains(name.as_str()));
        series.listeners.retain(|name, _| listeners.contains(name.as_str()));
        series
            .connections
            .retain(|name, open| open.load(Ordering::Relaxed) != 0 || listeners.contains(name.as_str()));
    }
}
