//! What rules would have done to traffic that was: the code that serves, on a log's own clock.

mod line;
mod run;

pub use line::{LineError, Request, parse};
pub use run::{Outcome, Replay, Row};
