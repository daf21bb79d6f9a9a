//! Connections of clients: listening sockets, accept, PROXY headers, TLS handshakes, timeouts, and the HTTP/1.1 and HTTP/2
//! connections around the codecs of the wire crate.

mod accept;
mod connection;
mod connection_budget;
mod h1;
mod h2;
mod handshake;
mod listen_socket;
mod listeners;
mod pacer;

pub(crate) use accept::drain;
pub use connection_budget::ConnectionBudget;
pub use listen_socket::{DETACH_GRACE, ListenSocket, detach, listen_address, open, open_unix};
pub use listeners::Server;
