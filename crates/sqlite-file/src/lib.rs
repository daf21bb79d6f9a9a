//! A SQLite file that one process writes, each commit for all who wait: what the files of rules and of queued requests share.
//!
//! | module | |
//! | --- | --- |
//! | `file` | READ FIRST: opening, reading, writing, handing over, closing |
//! | `kind`, `job` | what a file holds; what is written |
//! | `inspection`, `lock`, `create` | which files are accepted; one process per file; a new file |
//! | `connection`, `meta` | SQLite's settings; numbers by name |
//! | `queue`, `writer`, `readers` | jobs that wait; the thread that commits them together; two connections that only read |

mod connection;
mod create;
mod error;
mod file;
mod inspection;
mod job;
mod kind;
mod lock;
mod meta;
mod queue;
mod readers;
mod writer;

pub use self::error::{OpenError, Unwritten, is_damage};
pub use self::file::SqliteFile;
pub use self::job::{Job, Outcome};
pub use self::kind::Kind;
pub use self::meta::{meta_number, set_meta};
