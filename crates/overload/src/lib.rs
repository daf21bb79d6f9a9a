//! Protection of an upstream from overload: how many requests it may have in flight, and which of the others wait or are refused.
//!
//! Start reading in `gate.rs` (who enters, waits or is refused); then `limit.rs` (how many there may be, which follows what the
//! upstream does; `throughput.rs` tells what of that is chance). `pressure.rs` is about the gateway itself.
//!
//! What this crate never does: it reads no clock (the time is an argument), does no I/O, and knows no HTTP. The gateway and the
//! simulation in `tests/` run the same code. Numbers are floating-point: nothing here is exact, because what it measures is not.

mod class;
mod gate;
mod limit;
mod pool;
mod pressure;
mod recent;
mod throughput;

pub use class::{Class, Priority, Share};
pub use gate::{Entry, Gate, Settings};
pub use limit::{Bounds, Limit, Sums};
pub use pool::{Pool, Report};
pub use pressure::{FULL, is_refused, pressure};
