//! What goes into a store of rules and what comes out, whatever keeps them.

mod batch;
mod change;

pub use self::batch::{Batch, Effect, Failure, FailureKind, Op, Outcome, Precondition, Write, Written};
pub use self::change::{Change, Changes, Head};
