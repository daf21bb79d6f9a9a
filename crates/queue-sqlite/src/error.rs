//! What can go wrong with a file of queued requests.

use std::path::PathBuf;

use sluicegate_sqlite_file::{Unwritten, is_damage};

/// Why nothing could be read or written. Unless a variant says otherwise, nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// Too many calls wait; try again later.
    #[error("too many requests wait to be written to the queue")]
    Busy,
    /// The file was handed over to another process, or is closed.
    #[error("the queue has been handed over to another process")]
    Released,
    /// Another file is at the path, or none: what is written would be lost when the gateway ends.
    #[error(
        "{0}: the queue was removed or replaced while the gateway runs; put it back (`mv`, not `cp`), or restart the gateway \
         to begin with what is there now"
    )]
    Replaced(PathBuf),
    /// Another program, such as a shell, has held the file for too long.
    #[error("another program, such as sqlite3, writes to the queue or has left a transaction open")]
    Locked,
    /// The content of the file is damaged.
    #[error(
        "the queue is damaged ({0}); stop the gateway and restore a backup, or use `sqlite3 FILE .recover`"
    )]
    Damaged(String),
    /// The disk is full, or SQLite or the system refused. If the disk failed at the last moment the change may be there
    /// after all.
    #[error("the queue cannot be used: {0}")]
    Storage(String),
}

impl QueueError {
    /// What has become of a call whose reply was dropped.
    pub fn failed() -> Self {
        Unwritten::failed().into()
    }
}

impl From<Unwritten> for QueueError {
    fn from(why: Unwritten) -> Self {
        match why {
            Unwritten::Busy => Self::Busy,
            Unwritten::Released => Self::Released,
            Unwritten::Replaced(path) => Self::Replaced(path),
            Unwritten::Locked => Self::Locked,
            Unwritten::Storage(detail) => Self::Storage(detail),
        }
    }
}

impl From<rusqlite::Error> for QueueError {
    fn from(error: rusqlite::Error) -> Self {
        match is_damage(&error) {
            true => Self::Damaged(error.to_string()),
            false => Self::Storage(error.to_string()),
        }
    }
}
