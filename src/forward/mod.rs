//! 6b: to the upstream and back.

mod balance;
mod body;
mod complaint;
mod connect;
mod error;
mod exchange;
mod framing;
mod headers;
mod lines;
mod multiplexed;
mod pool;
mod proxy;
mod server;
mod tunnel;
mod upstream;
mod wire;

pub use body::Body;
pub use error::ForwardError;
pub use exchange::Exchange;
pub use tunnel::Tunnel;
pub use upstream::{Upstream, forward};
