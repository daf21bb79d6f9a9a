//! 1: sockets, PROXY headers, TLS, connections, deadlines, drain.

mod accept;
mod budget;
mod connection;
mod door;
mod greet;
mod h1;
mod h2;
mod inbound;
mod listeners;
mod pace;
mod plain;
mod socket;
mod stream;
pub mod tls;

pub(crate) use accept::drain;
pub use budget::{Budget, OPERATORS};
pub use connection::{Connection, Listener};
pub use door::{Door, PER_ADDRESS};
pub use h1::Http1Body;
pub use h2::Http2Body;
pub use inbound::{Inbound, InboundError};
pub use listeners::Server;
pub(crate) use plain::write_now;
pub use socket::{DETACHED, Opened, detach, open};
