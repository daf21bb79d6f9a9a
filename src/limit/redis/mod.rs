//! Counters that several gateways share, in Redis.

mod remote;
mod script;
#[cfg(all(test, not(feature = "model")))]
mod tests;
mod wire;

pub use remote::RemoteKey;
pub use script::{DECIDE, REFUND, RENEW, SPEND};
pub use wire::{Malformed, Reply, Told, argument, can_be_shared, refund_argument, spend_argument};
