//! 6b: to the upstream and back.

mod balance;
mod body;
mod connect;
mod error;
mod fleet;
mod forward;
mod headers;
mod lines;
mod member;
mod multiplexed;
mod names;
mod outgoing;
mod pool;
mod proxy;
mod retry;
mod sending;
mod server;
mod shared;
mod tend;
mod trouble;
mod tunnel;
mod underscores;
mod upload;
mod wire;

pub use body::{Body, Response};
pub use error::ForwardError;
pub(crate) use fleet::Slot;
pub use fleet::Upstream;
pub use forward::{ForwardPolicy, forward};
pub use names::nominates;
pub use shared::{AddressStatus, ServerStatus, UpstreamState};
pub use tunnel::Tunnel;
pub use underscores::Underscores;
pub(crate) use upload::Upload;
