//! 7: what is counted, and the API for operators. Only this folder knows Prometheus.

mod admin;
mod collect;
mod cut;
mod effective;
mod metrics;
mod stripe;

pub use admin::{Admin, ReloadRequest};
pub use cut::Cut;
pub use metrics::Metrics;
pub use stripe::{
    LimitStripe, Operation, Outcome, RouteStripe, StoreStripe, UpstreamOutcome, UpstreamStripe,
};
