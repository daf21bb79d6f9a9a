//! 7: what is counted, what is logged of requests, and the API for operators. Only this folder knows Prometheus.

mod access;
mod admin;
mod collect;
mod cut;
mod effective;
mod expected;
mod family;
mod listeners;
mod metrics;
mod process_log;
#[cfg(test)]
mod reference;
mod stripe;

pub use access::{AccessLog, End, Record, Sink, try_log};
pub(crate) use access::{is_among, shown_target};
pub use admin::{Admin, ReloadRequest};
pub use cut::Cut;
pub use listeners::{Handshake, ListenerStripe, Refusal};
pub use metrics::Metrics;
pub use process_log::ProcessLog;
pub use stripe::{
    LimitStripe, Operation, Outcome, RouteStripe, StoreStripe, UpstreamOutcome, UpstreamStripe,
};
