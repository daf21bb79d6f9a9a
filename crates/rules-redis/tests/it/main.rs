//! Shared rules on a real server: what batches do, what is heard of them, and what outages do.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests read the clock, and fail by panicking"
)]

mod common;
mod deployments;
mod events;
mod model;
mod outages;
mod reading;
mod threads;
mod writing;
