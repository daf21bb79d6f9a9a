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
//! 7. [`observe`]: metrics, the access log, the admin API
//!
//! [`config`] turns gateway.yaml into a [`snapshot`], [`app`] wires it all, [`cli`] is the commands.

mod apart;
pub mod app;
mod asking;
pub mod auth;
pub mod cli;
pub mod client_ip;
pub mod clock;
pub mod config;
pub mod cost;
pub mod denied;
pub mod fields;
mod file;
pub mod forward;
mod framing;
pub mod key;
pub mod limit;
pub mod lists;
pub mod message;
pub mod number;
pub mod observe;
mod outbox;
pub mod pem;
pub mod pipeline;
pub mod replay;
pub mod respond;
pub mod route;
pub mod server;
pub mod shape;
pub mod snapshot;
pub mod target;
pub mod trace;
mod trailers;
pub mod verdict;
pub mod vital;
pub mod watched;
pub mod worker;
