//! Forwards requests to upstreams and streams their responses back.
//!
//! - [`prepare`] makes the request as its upstream gets it; [`forward`](forward()) tries endpoints, retries where that is safe
//! - [`Exchange`]: one request and its response in progress, with deadlines, counted bytes and log record
//! - `endpoints`: the endpoints as one worker sees them, and permits to use one; `balance` chooses
//! - `upstream_state`, `endpoint_state`: what all workers share; `health` probes and resolves names
//! - `admin_state`: servers that an operator has drained or put into maintenance
//! - `server_address`: a TCP address or a Unix socket; `connect` opens connections
//! - `server`, `pool`, `h1_connection`: HTTP/1.1 connections; `h2_pool`, `h2_client`: HTTP/2
//! - `overload`: how many requests the upstream may have in flight, and who waits
//! - `upload`, `request_writer`, `body`: bodies in both directions; `tunnel`: upgraded connections
//! - `headers`, `forwarded_headers`, `underscores`: which headers pass
//! - [`fair_shares`]: the fair shares of an upstream or a limit, of all workers

mod admin_state;
mod balance;
mod body;
mod connect;
mod endpoint_state;
mod endpoints;
mod error;
mod exchange;
pub mod fair_shares;
mod forward;
mod forwarded_headers;
mod h1_connection;
mod h2_client;
mod h2_pool;
mod headers;
mod health;
mod log_throttle;
mod outgoing;
mod overload;
mod permit;
mod pool;
mod proxy;
mod request_writer;
mod retry;
mod server;
mod server_address;
mod server_admin;
mod status;
mod tunnel;
mod underscores;
mod upload;
mod upstream_state;

pub use admin_state::AdminState;
pub use body::{Body, BodyError, Response};
pub use endpoint_state::HealthCheck;
pub use endpoints::Upstream;
pub use error::ForwardError;
pub use error::error_chain;
pub use exchange::Exchange;
pub use forward::{ForwardFacts, ForwardPolicy, forward, prepare};
pub use forwarded_headers::nominates;
pub use outgoing::Outgoing;
pub use overload::{Entered, InFlight, Overload, OverloadStatus};
pub use server_address::ServerAddress;
pub use server_admin::ServerAdmin;
pub use status::{AddressStatus, ServerState, ServerStatus};
pub use tunnel::Tunnel;
pub use underscores::Underscores;
pub use upstream_state::UpstreamState;
