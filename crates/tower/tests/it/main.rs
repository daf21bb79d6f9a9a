//! The layer in front of services, with a clock of the test's choosing.

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
