//! Leases: a gateway charges many tokens of a key with one call of the store, and admits requests with them without another.
//!
//! Tokens are paid for before they are spent, so no load can make the limit admit more than what was paid: the error is at most
//! the number of tokens that are paid for and not spent, and [`Terms`] bounds it. A request for which there is no token is
//! decided by the store itself.
//!
//! What this crate never does: it reads no clock (the time is an argument), does no I/O, and knows neither HTTP nor Redis. The
//! gateway and the simulation in `tests/` run the same code.
//!
//! Start reading in `terms.rs` (how much may be leased, and the bound), then `lease.rs` (the tokens of one key) and
//! `membership.rs` (when a gateway knows how many others there are).

mod lease;
mod membership;
mod region_shares;
mod terms;
mod worker_tokens;

pub use lease::{FEWEST, Grant, HOLD, Lease, Return, Taken};
pub use membership::Membership;
pub use region_shares::{ASK_EVERY, RegionShares, SHARE_BOOKED, SHARE_LIFE};
pub use terms::{ErrorBudget, Terms, reserved};
pub use worker_tokens::{WorkerTokens, tokens_of_worker};
