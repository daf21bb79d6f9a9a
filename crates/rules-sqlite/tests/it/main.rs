//! The file of rules as the gateway uses it.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests wait for processes, and fail by panicking"
)]

mod common;
mod crash;
mod disk_full;
mod handover;
mod model;
mod reading;
mod refused;
mod threads;
mod writing;
