//! Who counts what: the stripes of all workers by name.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::abort_reason::AbortCounts;
use super::listeners::ListenerMetrics;
use super::worker_counters::{LimitMetrics, RouteMetrics, StoreMetrics, UpstreamMetrics};
use crate::respond::Reason;
use crate::snapshot::Snapshot;

/// Stripes by name and worker.
pub(super) type Stripes<T> = BTreeMap<String, BTreeMap<usize, Arc<T>>>;

/// Everything that is counted.
#[derive(Default)]
pub struct Metrics {
    pub(super) series: Mutex<Series>,
    /// Whether the last reload was accepted: 1 or 0.
    pub reload_successful: AtomicU64,
    /// When the configuration in force was loaded, in seconds since the epoch.
    pub reload_at: AtomicU64,
    /// HTTP/2 connections that were cut off.
    pub aborts: AbortCounts,
    /// Lines of the access log that were lost.
    pub access_log_dropped: Arc<AtomicU64>,
    /// Lines of the gateway's own log that were lost.
    pub log_dropped: Arc<AtomicU64>,
}

#[derive(Default)]
pub(super) struct Series {
    pub(super) routes: Stripes<RouteMetrics>,
    pub(super) limits: Stripes<LimitMetrics>,
    pub(super) upstreams: Stripes<UpstreamMetrics>,
    /// By the kind of store, of which there is one.
    pub(super) stores: Stripes<StoreMetrics>,
    pub(super) listeners: Stripes<ListenerMetrics>,
    pub(super) connections: BTreeMap<String, Arc<AtomicI64>>,
}

impl Metrics {
    /// Nothing counted yet; `log_dropped` is counted by the log itself.
    pub fn new(log_dropped: Arc<AtomicU64>) -> Self {
        Self { log_dropped, ..Self::default() }
    }

    fn stripe<T: Default>(
        &self,
        name: &str,
        worker: usize,
        of: impl FnOnce(&mut Series) -> &mut Stripes<T>,
    ) -> Arc<T> {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(of(&mut series).entry(name.to_owned()).or_default().entry(worker).or_default())
    }

    /// What a worker counts of a route. The empty name is that of requests without a route.
    pub fn route(&self, name: &str, worker: usize) -> Arc<RouteMetrics> {
        self.stripe(name, worker, |series| &mut series.routes)
    }

    /// What a worker counts of a limit.
    pub fn limit(&self, name: &str, worker: usize) -> Arc<LimitMetrics> {
        self.stripe(name, worker, |series| &mut series.limits)
    }

    /// What a worker counts of an upstream.
    pub fn upstream(&self, name: &str, worker: usize) -> Arc<UpstreamMetrics> {
        self.stripe(name, worker, |series| &mut series.upstreams)
    }

    /// What a worker counts of the shared store.
    pub fn store(&self, worker: usize) -> Arc<StoreMetrics> {
        self.stripe("redis", worker, |series| &mut series.stores)
    }

    /// What a worker counts of a listener.
    pub fn listener(&self, name: &str, worker: usize) -> Arc<ListenerMetrics> {
        self.stripe(name, worker, |series| &mut series.listeners)
    }

    /// The open connections of a listener, of all workers.
    pub fn connections(&self, listener: &str) -> Arc<AtomicI64> {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(series.connections.entry(listener.to_owned()).or_default())
    }

    /// All open connections.
    pub fn open_connections(&self) -> i64 {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.connections.values().map(|open| open.load(Ordering::Relaxed)).sum()
    }

    /// The requests that the gateway refused, by route and reason, most first.
    pub(crate) fn refusals(&self) -> Vec<(String, Reason, u64)> {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::new();
        for (route, stripes) in &series.routes {
            for reason in Reason::ALL {
                let count = stripes.values().map(|stripe| stripe.refusals[*reason as usize].get()).sum();
                if count > 0 {
                    all.push((route.clone(), *reason, count));
                }
            }
        }
        all.sort_by_key(|(_, _, count)| Reverse(*count));
        all
    }

    /// Forgets what the configuration in force no longer has, so that renaming does not add up.
    pub fn retain(&self, snapshot: &Snapshot) {
        let config = &snapshot.config;
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let routes: HashSet<&str> = config.routes.iter().map(|route| route.name.as_str()).collect();
        let limits: HashSet<&str> = config.limits.iter().map(|limit| limit.name.as_str()).collect();
        let upstreams: HashSet<&str> = config.upstreams.iter().map(|up| up.name.as_str()).collect();
        series.routes.retain(|name, _| name.is_empty() || routes.contains(name.as_str()));
        series.limits.retain(|name, _| limits.contains(name.as_str()));
        series.upstreams.retain(|name, _| upstreams.contains(name.as_str()));
        series.listeners.retain(|name, _| config.listeners.iter().any(|listener| listener.name == *name));
        series.connections.retain(|name, open| {
            open.load(Ordering::Relaxed) != 0
                || config.listeners.iter().any(|listener| listener.name == *name)
        });
    }
}
