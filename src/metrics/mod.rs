//! Counters of the gateway: each worker writes its own, and a scrape adds them up. Only this module uses Prometheus.

mod abort_reason;
mod expected;
mod exposition;
mod families;
mod listeners;
#[cfg(test)]
mod reference;
mod registry;
mod worker_counters;

pub use abort_reason::AbortReason;
pub(crate) use exposition::text;
pub use listeners::{Handshake, ListenerMetrics, Refusal};
pub(crate) use prometheus::TEXT_FORMAT;
pub use registry::Metrics;
pub use worker_counters::{
    LimitMetrics, Operation, Outcome, RouteMetrics, StoreMetrics, UpstreamMetrics, UpstreamOutcome,
};
