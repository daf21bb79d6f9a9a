//! 6a: the answers that the gateway gives itself. Nothing else in the house makes one.

mod drain;
mod grpc;
mod limits;
mod problem;
mod scratch;
mod usage;

pub use drain::{drain, drain_rest};
pub use limits::{Told, refusal, refusal_headers, retry_after, speaker};
pub use problem::{LocalError, bare, fixed, redirect, unavailable, unjudged};
pub use scratch::{Scratch, Writer};
pub use usage::usage;
