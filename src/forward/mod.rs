//! 6b: to the upstream and back.

mod body;
mod exchange;
mod framing;
mod headers;
mod pool;
mod upstream;
mod wire;

pub use body::Body;
pub use exchange::Exchange;
pub use upstream::{ForwardError, Upstream, forward};
