//! The socket of an HTTP/1.1 connection, which the connection's task and the reader of a request body share.

mod body;
mod interim;
mod peer_probe;
mod socket;
mod state;
pub mod timeouts;

pub use body::Http1Body;
pub use socket::{Next, Socket};
pub use state::MAX_DISCARD;
