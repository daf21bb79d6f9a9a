//! What a request needs of the configuration when it ends.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName};

use super::cost::in_trailers;
use crate::limit::Counters;
use crate::process_state::ProcessState;
use crate::snapshot::Snapshot;
use sluicegate_config::Cost;
use sluicegate_observe::access_log::{AccessLog, Names};
use sluicegate_observe::cut_answers::CutAnswer;
use sluicegate_observe::metrics::{ConsumerCounts, RouteMetrics};
use sluicegate_observe::telemetry::Spans;

/// The part of a [`View`](super::View) that a request keeps until the last byte of its answer. Answers and tunnels may last
/// for days and reloads, so this must be small: a configuration with thousands of routes takes megabytes.
pub(super) struct Ending {
    process: Arc<ProcessState>,
    /// The number of the configuration.
    generation: u64,
    pub(super) names: Arc<Names>,
    pub(super) routes: Rc<RouteCounts>,
    /// Requests by consumer, if they are shown.
    pub(super) consumers: Option<Arc<ConsumerCounts>>,
    /// Where a line of each request goes.
    pub(super) access_log: Option<AccessLog>,
    /// Where the spans of sampled requests go.
    pub(super) spans: Option<Arc<Spans>>,
    /// The limits whose cost a header of the answer says.
    header_costs: Box<[HeaderCost]>,
}

/// The counters that a worker has of each route.
pub(super) struct RouteCounts {
    routes: Box<[Arc<RouteMetrics>]>,
    /// Requests that no route matched.
    unrouted: Arc<RouteMetrics>,
}

/// A limit whose cost a header of the answer says.
struct HeaderCost {
    limit: usize,
    header: HeaderName,
    counters: Arc<Counters>,
}

impl Ending {
    pub(super) fn new(
        snapshot: &Snapshot,
        process: &Arc<ProcessState>,
        worker: usize,
        before: Option<&Self>,
    ) -> Self {
        let metrics = &process.metrics;
        let same_routes = before.filter(|before| Arc::ptr_eq(&before.names, &snapshot.names));
        let routes = || RouteCounts {
            routes: snapshot.routes.iter().map(|route| metrics.route(&route.name, worker)).collect(),
            unrouted: metrics.route("", worker),
        };
        let log = snapshot.config.access_log.clone().zip(process.access_log.load_full());
        let log_before = before.and_then(|before| before.access_log.as_ref());
        let header_costs = snapshot.limits.iter().enumerate().filter_map(|(index, limit)| {
            let Cost::Detailed(cost) = &limit.config.cost else { return None };
            let header = cost.response_header.clone()?;
            Some(HeaderCost { limit: index, header, counters: Arc::clone(&limit.counted.counters) })
        });
        Self {
            process: Arc::clone(process),
            generation: snapshot.generation,
            names: Arc::clone(&snapshot.names),
            routes: same_routes.map_or_else(|| Rc::new(routes()), |before| Rc::clone(&before.routes)),
            consumers: metrics.consumers(worker),
            access_log: log.map(|(config, sink)| AccessLog::new(config, sink, log_before)),
            spans: process.spans.load_full(),
            header_costs: header_costs.collect(),
        }
    }

    /// Remembers an answer that was cut.
    #[cold]
    pub(super) fn remember_cut(&self, cut: CutAnswer) {
        self.process.cuts.push(cut);
    }

    /// Whether the configuration is in force no more.
    pub(super) fn is_replaced(&self) -> bool {
        self.process.generation.load(Ordering::Acquire) != self.generation
    }

    /// What the trailers of an answer say of the cost on a limit.
    pub(super) fn cost_in_trailers(&self, limit: usize, trailers: &HeaderMap) -> u64 {
        let header_cost = self.header_costs.iter().find(|header_cost| header_cost.limit == limit);
        header_cost.map_or(0, |header_cost| {
            let count = |unreadable: &AtomicU64| _ = unreadable.fetch_add(1, Ordering::Relaxed);
            in_trailers(&header_cost.header, trailers, || count(&header_cost.counters.unreadable_costs))
        })
    }
}

impl RouteCounts {
    /// The counters of a route, or of requests without one.
    pub(super) fn of(&self, route: Option<usize>) -> &RouteMetrics {
        route.map_or(&self.unrouted, |index| &self.routes[index])
    }
}
