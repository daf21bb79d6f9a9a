//! 1: sockets, connections, deadlines, drain.

mod connection;
mod deadline;
mod io;
mod socket;

pub use connection::{Connection, Listener};
pub use deadline::{Deadline, Deadlines};
pub use socket::{Opened, open};
