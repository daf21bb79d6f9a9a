//! The layer in front of services, with a clock of the test's choosing.
#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod building;
mod common;
mod concurrency;
mod costs;
mod examples;
mod headers;
mod keys;
mod many;
mod ported;
mod refusals;
mod shadow;
