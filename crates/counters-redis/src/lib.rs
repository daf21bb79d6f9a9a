//! Counters that several processes share, in Redis: the decisions of `sluicegate_counters`, made on the server.
//!
//! A [`Store`] is one thread's access to the servers. A decision is one call of one Lua script for all shared limits
//! of a request, made on the server's clock; requests for the same keys share a call. The script returns the state
//! that it found, and the verdicts are computed from that state by the same code that decides in one process.
//! A call has a deadline, a server that fails is skipped by a circuit breaker, and what was admitted meanwhile is
//! reported to the server afterwards.
//!
//! What this crate never does: it knows no HTTP and no configuration file, and never decides what becomes of a
//! request while the store fails; its caller does.
//!
//! Start reading in `store.rs` and `call.rs`; then `batch.rs` (requests that share a call), `lua/decide.lua` and
//! `protocol.rs` (what goes over the wire), `connection.rs` and `reconnect.rs` (deadlines, breaker, life of a
//! connection), `cluster.rs` and `topology.rs` (who holds which slot), `lease_renewal.rs` (places of concurrency
//! limits). `access.rs` opens connections for other crates.

mod access;
mod address;
mod batch;
mod batches;
mod breaker;
mod call;
mod check_connection;
mod clock;
mod cluster;
mod connection;
mod corrections;
mod dial;
mod errors;
mod evaluation;
mod exchange;
#[cfg(test)]
mod fixture;
mod gateway_count;
mod held_places;
mod in_flight;
mod item;
mod key_name;
mod known_topology;
mod lease;
mod lease_renewal;
mod leased;
mod membership;
mod metrics;
mod places;
mod protocol;
mod published;
mod random;
mod reconnect;
mod redirect;
mod region_shares;
mod remote_state;
mod reply;
mod report;
mod script_text;
mod scripts;
mod sentinel;
mod server_clock;
mod server_watch;
mod settings;
mod store;
mod store_state;
#[cfg(test)]
mod tests;
mod token_leases;
mod topology;
mod unreported;

pub use access::{Locator, random, subscriber};
pub use address::Address;
pub use check_connection::check_connection;
pub use clock::Clock;
pub use key_name::shared_hash;
pub use membership::Peeked;
pub use metrics::{CallMetrics, Operation};
pub use protocol::share;
pub use region_shares::{Region, ShareAsk};
pub use settings::{Deployment, Settings, TlsFiles};
pub use sluicegate_leases::Taken;
pub use store::{ServerView, Store};
pub use store_state::{StoreState, StoreStatus};
