//! Sluicegate: a rate-limiting edge gateway.
//!
//! The folders stand in the order in which a request meets them:
//!
//! 1. [`server`]: accept, connections, deadlines, drain
//! 2. [`pipeline`]: **read first**: route → identify → keys → decide → forward | refuse → observe
//! 3. [`route`], [`client_ip`] and [`auth`]: which route, which client, and who that is; [`denied`]: what
//!    becomes of a request that does not prove that
//! 4. [`key`]: parts of a request → one fingerprint per limit; [`cost`]: what it spends
//! 5. [`limit`]: check all, then charge all
//! 6. [`respond`] a local answer, or [`forward`] upstream, both [`shape`]d; [`trace`]
//! 7. [`metrics`], [`access_log`] and [`admin`]: what is counted, what is logged of requests, the API for operators
//!
//! [`config`] turns gateway.yaml into a [`snapshot`], [`runtime`] wires it all, [`cli`] is the commands.

pub mod access_log;
pub mod admin;
mod asking;
pub mod auth;
mod boxed_future;
pub mod cli;
pub mod client_ip;
pub mod clock;
pub mod config;
pub mod cost;
pub mod critical_task;
pub mod denied;
pub mod fields;
mod file;
pub mod file_watch;
pub mod forward;
mod framing;
pub mod key;
pub mod limit;
pub mod lists;
pub mod message;
pub mod metrics;
pub mod number;
mod outbox;
pub mod pem;
pub mod pipeline;
pub mod process_log;
pub mod replay;
pub mod respond;
pub mod route;
pub mod runtime;
pub mod server;
pub mod shape;
pub mod snapshot;
pub mod target;
pub mod trace;
mod trailers;
pub mod verdict;
pub mod worker;
