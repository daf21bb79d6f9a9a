//! 6b: to the upstream and back.

mod balance;
mod body;
mod error;
mod exchange;
mod framing;
mod headers;
mod names;
mod pool;
mod server;
mod tunnel;
mod upstream;
mod wire;

pub use body::Body;
pub use error::ForwardError;
pub use exchange::Exchange;
pub use names::nominates;
pub use tunnel::Tunnel;
pub use upstream::{Upstream, forward};
