//! 1: sockets, connections, deadlines, drain.

mod accept;
mod buffers;
mod connection;
mod deadline;
mod h1;
mod h2;
mod inbound;
mod socket;
mod stream;

pub use buffers::Buffers;
pub use connection::{Connection, Listener};
pub use deadline::{Deadline, Deadlines};
pub(crate) use h1::BODY;
pub use h1::Http1Body;
pub use inbound::{Inbound, InboundError};
pub use socket::{Opened, open};
