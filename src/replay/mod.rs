//! Replays access logs: the decisions of the serving code on past requests, at the times in the log.

mod line;
mod log_file;
mod row;
mod run;
mod unmatched;

pub use line::{LineError, Request, is_of_rule, parse};
pub use log_file::{LogFile, Padding};
pub use row::{Row, RowWriter};
pub use run::Replay;
pub use unmatched::{Frequent, Unmatched};
