//! Sluicegate: a rate-limiting edge gateway. This package has the commands; the crate `sluicegate_gateway` serves.
//!
//! - [`cli`]: one file per command
//! - [`replay`]: access logs → the same decisions, on the clock of the log
//! - [`sizing`]: what a given load needs, from figures that were measured

pub mod cli;
pub mod replay;
pub mod sizing;
