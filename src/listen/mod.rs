//! 1: sockets, connections, deadlines, drain.

mod accept;
mod connection;
mod deadline;
mod drive;
mod h1;
mod h2;
mod io;
mod socket;
mod stream;

pub use connection::{Connection, Listener};
pub use deadline::{Deadline, Deadlines};
pub use socket::{Opened, open};
