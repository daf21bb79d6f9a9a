//! What can go wrong, in words for operators.

use std::path::PathBuf;

use sluicegate_rules::Failure;
use sluicegate_sqlite_file::{Unwritten, is_damage};

/// Why nothing could be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// A row is not a rule that this release can read. Something else wrote it.
    #[error(
        "the rule {id:?} in the file cannot be read ({detail}); remove it with \
         `sqlite3 FILE \"DELETE FROM rules WHERE id = '...'\"` while the gateway is stopped, and put it again"
    )]
    Content {
        /// The name of the rule.
        id: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The file is damaged.
    #[error(
        "the file of rules is damaged ({0}); stop the gateway and restore a backup, or use `sqlite3 FILE .recover`"
    )]
    Corrupt(String),
    /// SQLite or the system refused.
    #[error("the file of rules cannot be read: {0}")]
    Storage(String),
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> ReadError {
        if is_damage(&error) {
            ReadError::Corrupt(error.to_string())
        } else {
            ReadError::Storage(error.to_string())
        }
    }
}

/// Why a batch was not written. Unless a variant says otherwise, nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Changes of the batch could not be made: the first 100 of them, in the order of the batch.
    #[error("changes that could not be made: {}; nothing of the batch was", .0.len())]
    Failed(Vec<Failure>),
    /// Too many batches wait; try again later.
    #[error("too many changes of rules wait to be written")]
    Busy,
    /// The file was handed over to another process.
    #[error("the file of rules has been handed over to another process")]
    Released,
    /// Another file is at the path, or none: what is written would be lost when the gateway ends.
    #[error(
        "{0}: the file of rules was removed or replaced while the gateway runs; put it back (`mv`, not `cp`), or restart the \
         gateway to begin with what is there now"
    )]
    Replaced(PathBuf),
    /// Another program, such as a shell, has held the file for too long.
    #[error("another program, such as sqlite3, writes to the file of rules or has left a transaction open")]
    Locked,
    /// A rule that the batch changes cannot be read.
    #[error(transparent)]
    Unreadable(ReadError),
    /// The disk is full, or SQLite or the system refused. If the disk failed at the last moment the batch may be there
    /// after all: read before you write it again.
    #[error("the file of rules cannot be written: {0}")]
    Storage(String),
}

impl From<Unwritten> for WriteError {
    fn from(why: Unwritten) -> WriteError {
        match why {
            Unwritten::Busy => WriteError::Busy,
            Unwritten::Released => WriteError::Released,
            Unwritten::Replaced(path) => WriteError::Replaced(path),
            Unwritten::Locked => WriteError::Locked,
            Unwritten::Storage(detail) => WriteError::Storage(detail),
        }
    }
}
