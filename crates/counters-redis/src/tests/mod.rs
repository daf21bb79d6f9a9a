//! The scripts on a real server, against the core.
#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod agree;
mod bans;
mod cost;
mod long_logs;
mod operations;
mod quotas;
mod replies;
mod server;
mod shares;
