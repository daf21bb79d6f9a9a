//! Connections of clients: listening sockets, accepting, PROXY headers, TLS handshakes, timeouts, and the HTTP/1.1 and HTTP/2
//! connections around the codecs of the wire crate.

mod accept;
mod body_rate;
mod connection;
mod connection_budget;
mod h1;
mod h2;
mod handshake;
mod listen_socket;
mod listener_state;
mod listeners;
mod request_body;
mod stream;
mod tcp_stream;

pub(crate) use accept::drain;
pub use connection::{Connection, Listener};
pub use connection_budget::{ADMIN_CONNECTIONS, ConnectionBudget};
pub use h1::Http1Body;
pub use h2::Http2Body;
pub use listen_socket::{DETACH_GRACE, ListenSocket, detach, open};
pub use listener_state::{ListenerState, PER_ADDRESS};
pub use listeners::Server;
pub use request_body::{RequestBody, RequestBodyError};
pub(crate) use tcp_stream::write_now;
