//! 6a: the answers that the gateway gives itself. Nothing else in the house makes one.

mod cors;
mod drain;
mod grpc;
mod limits;
mod problem;
mod usage;

pub use cors::{preflight, share};
pub use drain::drain;
pub use limits::{Told, refusal, refusal_headers, retry_after, speaker};
pub use problem::{LocalError, fixed, redirect, unavailable, unjudged};
pub use usage::usage;
