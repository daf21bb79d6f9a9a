//! The scripts on a real server, against the core.
#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod agree;
mod operations;
mod quotas;
mod server;
