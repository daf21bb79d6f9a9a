//! The counters of limits, in one process.
//!
//! A request asks several limits, each for one key and cost. [`decide`] locks the counters of all of them, in the same order
//! in every thread, checks all, and charges all only if every enforced limit admits: a refusal by one charges no other, and
//! of M concurrent requests exactly N pass.
//!
//! What this crate never does: it reads no clock (the time is an argument), knows no HTTP, does no I/O and needs no async
//! runtime. A limit may also be counted in a store that several processes share. This crate then keeps the last state from the
//! store ([`RemoteState`]) and what may be refunded there ([`RemoteHold`]), and does not know the store itself.
//!
//! Start reading in `decision.rs`; then `table.rs` (shards, the overflow counter), `hash_table.rs` and `state_codec.rs` (the
//! layout of states in memory), `holds.rs` and `queue.rs` (what a request gives back). `model.rs` checks concurrent access
//! with loom.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod ask;
mod ban;
mod ban_check;
mod counters;
mod decision;
mod fingerprint;
#[cfg(test)]
mod fixture;
mod hash_table;
mod holds;
mod key_state;
mod limit;
#[cfg(all(test, feature = "model"))]
mod model;
mod open_charges;
mod own_quotas;
mod preview;
mod queue;
mod remote_charges;
mod remote_state;
mod state_codec;
mod sync;
mod table;
#[cfg(all(test, not(feature = "model")))]
mod tests;
mod verdicts;

pub use ask::{Ask, CallsInFlight, Verdict};
pub use ban::{Bans, RemoteBan, while_banned};
pub use ban_check::BanCheck;
pub use counters::{Counters, LeaseCounts};
pub use decision::{
    Decision, SendDecision, decide, decide_for_now, decide_reserving, decide_send, evaluate, may_refuse,
    refuse,
};
pub use fingerprint::{Fingerprint, KeySecret, KeyText};
pub use holds::{Hold, Holds, RemoteHold, SettledCost};
pub use key_state::KeyState;
pub use limit::{CostKind, CountedLimit, LateCost, SharedLimit, StoreFailurePolicy};
pub use preview::preview;
pub use remote_charges::RemoteCharges;
pub use remote_state::RemoteState;
pub use verdicts::{IntoVerdicts, Verdicts};
