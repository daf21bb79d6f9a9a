//! Replays access logs: the decisions of the serving code on past requests, at the times in the log.

mod against;
mod answered;
mod arrivals;
mod compare;
mod demand;
mod ending;
mod formats;
mod limit_count;
mod log_file;
mod queues;
mod recording;
mod report;
mod row;
mod run;
mod statistics;
mod suggest;
mod trust;
mod unmatched;

pub use against::{Against, Differences};
pub use arrivals::{ArrivalSettings, Arrivals, Item, Times};
pub use compare::{Comparison, Judged, LimitComparison};
pub use demand::Demand;
pub use formats::{DurationField, Format, Known, LineError, LineParser, Members, Request, TimeOf, Unit};
pub use limit_count::LimitCount;
pub use log_file::{LogFile, Padding};
pub use report::Input;
pub use row::{Row, RowWriter};
pub use run::Replay;
pub use statistics::{Group, Groups, LimitStatistics, Series, Statistics};
pub use suggest::{Suggestion, suggestions};
pub use trust::{Finding, Level, Trust};
pub use unmatched::{Frequent, Unmatched};
