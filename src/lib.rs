//! Sluicegate: a rate-limiting edge gateway.
//!
//! The modules, top to bottom; each imports only modules below it:
//!
//! 1. [`cli`]: the commands; [`runtime`]: the life of the process; [`admin`]: the API for operators; [`replay`]: past logs;
//!    [`explain`]: what would happen to a request
//! 2. [`server`]: accept, handshake, and the serve loops of HTTP/1.1 and HTTP/2
//! 3. [`request`]: **read first** ([`request::pipeline`]): route → identify → limits → forward | refuse
//! 4. [`respond`]: local answers; [`upstream`]: servers, connections to them, retries
//! 5. [`client_connection`]: the client half of a connection
//! 6. [`snapshot`]: a configuration in force; [`resources`]: the files that it names; [`diff`]: what a reload changes
//! 7. [`auth`], [`route`], [`keys`], [`rewrite`], [`limit`], [`lists`]: the parts of a decision
//! 8. [`telemetry`]: what is sent to a collector; [`access_log`], [`process_log`], [`metrics`], [`trace`], [`refusals`],
//!    [`top`], [`history`]: what is recorded; [`sizing`]: what a given traffic needs; [`tls`], [`file_watch`], [`worker_state`], [`clock`]: leaves

pub mod access_log;
pub mod admin;
mod append_map;
pub mod auth;
mod boxed_future;
pub mod cli;
pub mod client_address;
pub mod client_connection;
pub mod clock;
pub mod critical_task;
pub mod cut_answers;
pub mod cut_reason;
pub mod diff;
pub mod explain;
pub mod fair_shares;
mod file;
pub mod file_watch;
mod found_keys;
pub mod history;
pub mod http_client;
pub mod incoming;
pub mod keys;
pub mod limit;
pub mod limit_outcome;
pub mod lists;
pub mod message;
pub mod metrics;
mod named_enum;
pub mod own_load;
mod pages;
pub mod process_log;
pub mod process_state;
pub mod refusal_reason;
pub mod refusals;
pub mod replay;
pub mod request;
mod request_value;
pub mod resources;
pub mod respond;
pub mod rewrite;
pub mod route;
pub mod rules;
pub mod runtime;
pub mod server;
mod shown_key;
pub mod sizing;
pub mod snapshot;
pub mod store_settings;
pub mod telemetry;
pub mod tls;
pub mod top;
pub mod trace;
pub mod upstream;
pub mod worker_state;
