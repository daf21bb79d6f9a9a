//! Metrics: each worker increments counters of its own, and a scrape adds them up. Only this module uses Prometheus.
//!
//! [`Metrics`] is the registry that hands out a worker's counters. `Scrape` is the exposition: the worker counters, and
//! gauges that the admin API adds from the state of other modules. `families` is the table of all names and help texts.
//!
//! This module is a leaf: it does not know configurations, limits, upstreams or listeners, only their names.

mod abort_counts;
mod consumers;
mod exposition;
pub mod families;
mod ignored_forwarded;
mod listeners;
mod live;
mod otlp;
mod otlp_json;
mod process;
#[cfg(test)]
mod reference;
mod registry;
mod worker_counters;

pub use self::live::{BUCKETS, RouteTotals, Totals, quantile};
pub use abort_counts::AbortCounts;
pub use consumers::{ConsumerCounts, ConsumerOutcome, Seat};
pub use exposition::{ExpectedSeries, Row, Scrape, one};
pub use ignored_forwarded::{IgnoredForwarded, IgnoredStatus};
pub use listeners::{Handshake, ListenerMetrics, Refusal};
pub use otlp::{OtlpMetrics, Signal};
pub(crate) use otlp_json::attribute;
pub use prometheus::{Result, TEXT_FORMAT};
pub use registry::{ConfiguredNames, Metrics};
pub use worker_counters::{LimitMetrics, RouteMetrics, StoreMetrics, UpstreamMetrics, UpstreamOutcome};
