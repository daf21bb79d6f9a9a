//! Requests that are delivered later, in a file of one gateway. All calls block; they belong on threads that may.
//!
//! What a call has written is on disk when it returns, and calls of several threads share a commit. If a process dies
//! during an attempt, the next one to open the file makes another: a message is delivered at least once, by one attempt at a
//! time.
//!
//! | module | |
//! | --- | --- |
//! | `queue_file` | READ FIRST: what can be done with a file |
//! | `job` | the same as values, for the thread that writes |
//! | `transaction` | one job after the other, in one transaction; `accept`, `claim`, `end` are its parts |
//! | `queries` | what is read |
//! | `schema` | the tables, and why they are as they are |

mod accept;
mod arrivals;
mod claim;
mod end;
mod error;
mod job;
mod queries;
mod queue_file;
mod rows;
mod schema;
mod statements;
mod transaction;

pub use sluicegate_sqlite_file::OpenError;

pub use self::error::QueueError;
pub use self::queue_file::QueueFile;
