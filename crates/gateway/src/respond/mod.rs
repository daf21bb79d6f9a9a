//! Local responses: every response that the gateway generates itself. No other module builds one.

mod cors;
mod for_proxies;
mod grpc;
mod limits;
mod problem;
mod queued;
mod refusal_body;
mod ruled_headers;
mod static_headers;
mod usage;

pub use cors::{preflight, share};
pub use for_proxies::{admitted, call, rls_refusal};
pub use grpc::is_grpc;
pub use limits::{LimitResults, RateLimitHeaders, refusal};
pub use problem::{LocalError, capabilities, fixed, redirect, unavailable, with_status};
pub use queued::{QUEUE_PATH, Queued, json_response, needs_answer, queued};
pub use ruled_headers::{Combination, RuledHeaders};
pub use static_headers::{Policies, StaticHeaders};
pub use usage::usage;
