//! Counters that several gateways share, in Redis.

mod remote;

pub use remote::RemoteKey;
