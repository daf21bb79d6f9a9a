//! 6a: the answers that the gateway gives itself. Nothing else in the house makes one.

mod drain;
mod grpc;
mod limits;
mod problem;
mod scratch;

pub use drain::{drain, drain_rest};
pub use limits::{Told, refusal, refusal_headers, retry_after, speaker};
pub use problem::{LocalError, bare, fixed, unauthenticated, unavailable};
pub use scratch::{Scratch, Writer};
