//! Fair shares of a capacity among consumers: max-min fair by demand and weight.
//!
//! A capacity of C tokens per second is shared among consumers that demand dᵢ and have weights wᵢ. Each gets min(dᵢ, wᵢ·λ), where the
//! level λ is chosen so that the sum is C. Whoever asks for less than the fair share gets all of it; what they leave is for the
//! others. The level is computed anew every [`TICK`] from what was asked for, whether it was admitted or not.
//!
//! Start reading in `shares.rs` (what a request is told); then `level.rs` (the level) and `table.rs` (the consumers that are known,
//! in bounded memory).
//!
//! What this crate never does: it reads no clock (the time is an argument), does no I/O, and knows neither HTTP nor limits.

mod level;
mod shares;
mod table;

pub use level::level;
pub use shares::{Answer, Consumer, Cost, Demand, Reported, Reserved, Shares, Standing, TICK, Taken};
