//! Sluicegate: a rate-limiting edge gateway.
//!
//! The folders stand in the order in which a request meets them:
//!
//! 1. [`server`]: accept, connections, deadlines, drain; [`client_connection`]: what requests need of a connection
//! 2. [`request`]: **read first** ([`request::pipeline`]): route → identify → limits → forward | refuse
//! 3. [`route`] and [`auth`]: which route, and who sent the request
//! 4. [`keys`]: parts of a request → one fingerprint per limit
//! 5. [`limit`]: check all, then charge all
//! 6. [`respond`] a local answer, or forward [`upstream`], with headers and path [`rewrite`]d; [`trace`]
//! 7. [`metrics`], [`access_log`] and [`admin`]: what is counted, what is logged of requests, the API for operators
//!
//! [`sluicegate_config`] parses gateway.yaml, [`resources`] loads the files that it names, and both become a
//! [`snapshot`]. [`runtime`] wires it all, [`cli`] is the commands.

pub mod access_log;
pub mod admin;
pub mod auth;
mod boxed_future;
pub mod cli;
pub mod client_address;
pub mod client_connection;
pub mod clock;
pub mod critical_task;
mod file;
pub mod file_watch;
pub mod keys;
pub mod limit;
pub mod lists;
pub mod message;
pub mod metrics;
pub mod process_log;
pub mod process_state;
pub mod refusal_reason;
pub mod replay;
pub mod request;
mod request_value;
pub mod resources;
pub mod respond;
pub mod rewrite;
pub mod route;
pub mod runtime;
pub mod server;
pub mod snapshot;
pub mod tls;
pub mod trace;
pub mod upstream;
pub mod worker_state;
