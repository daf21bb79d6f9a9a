//! What rules would have done to traffic that was: the code that serves, on a log's own clock.

mod line;
mod log_file;
mod row;
mod run;
mod unmatched;

pub use line::{LineError, Request, parse};
pub use log_file::{LogFile, Padding};
pub use row::{Row, RowWriter};
pub use run::Replay;
pub use unmatched::{Frequent, Unmatched};
