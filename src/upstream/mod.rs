//! Forwards requests to upstreams and streams their responses back.
//!
//! - [`forward`](forward()): prepares the request, tries endpoints, retries where that is safe
//! - `endpoints`: the endpoints as one worker sees them, and permits to use one; `balance` chooses
//! - `upstream_state`, `endpoint_state`: what all workers share; `health` probes and resolves names
//! - `server`, `pool`, `h1_connection`: HTTP/1.1 connections; `h2_pool`, `h2_client`: HTTP/2
//! - `upload`, `sending`, `body`, `tunnel`: bodies in both directions, and switched protocols
//! - `headers`, `forwarded_headers`, `underscores`: which headers pass

mod balance;
mod body;
mod connect;
mod endpoint_state;
mod endpoints;
mod error;
mod forward;
mod forwarded_headers;
mod h1_connection;
mod h2_client;
mod h2_pool;
mod headers;
mod health;
mod log_throttle;
mod outgoing;
mod pool;
mod proxy;
mod retry;
mod sending;
mod server;
mod tunnel;
mod underscores;
mod upload;
mod upstream_state;

pub use body::{Body, Response};
pub(crate) use endpoints::Permit;
pub use endpoints::Upstream;
pub use error::ForwardError;
pub use forward::{ForwardPolicy, forward};
pub use forwarded_headers::nominates;
pub use tunnel::Tunnel;
pub use underscores::Underscores;
pub(crate) use upload::Upload;
pub use upstream_state::{AddressStatus, ServerStatus, UpstreamState};
