//! A connection of a client, below the protocols: what requests and upstreams need of it. The gateway accepts connections
//! and serves them.
//!
//! - [`Connection`]: the peer, its deadlines, its TLS session, and the interim responses that wait to be sent
//! - [`Listener`] and [`ListenerState`]: where it came in; how many connections there may be
//! - [`RequestBody`]: the body of a request over HTTP/1.1 ([`h1`]) or HTTP/2 (`h2_body`)
//! - `stream`, `tcp_stream`: TLS or plain TCP; `body_rate`: the slowest rate that is accepted
//! - [`worker_state`]: what the connections of a worker share: deadlines, buffers, the order of work

pub mod body_rate;
mod connection;
pub mod h1;
mod h2_body;
mod listener;
mod listener_state;
mod request_body;
mod request_body_error;
mod stream;
mod tcp_stream;
pub mod worker_state;

pub use connection::Connection;
pub use connection::Interim;
pub use h2_body::Http2Body;
pub use listener::Listener;
pub use listener_state::{CountGuard, Full};
pub use listener_state::{ListenerState, PER_ADDRESS};
pub use request_body::RequestBody;
pub use request_body_error::RequestBodyError;
pub use stream::ClientStream;
pub use tcp_stream::LazyTcpStream;
