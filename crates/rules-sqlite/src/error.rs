//! What can go wrong, in words for operators.

use std::io;
use std::path::PathBuf;

use rusqlite::ErrorCode;
use sluicegate_rules::Failure;

/// Why a file cannot be used. It has not been written to.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another [`RuleFile`](crate::RuleFile) of this one, has the file.
    #[error(
        "{path}: another gateway uses this file, and a file is for one gateway: stop the other one, name another file, or \
         share rules among gateways with `rules: {{redis: true}}`"
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is a folder, a link, a pipe or a device, or has several names.
    #[error("{path}: is {kind}; rules are kept in a regular file with one name")]
    NotRegular {
        /// The file.
        path: PathBuf,
        /// What it is, with an article.
        kind: &'static str,
    },
    /// It has content, but is no database.
    #[error(
        "{path}: is not a file of rules ({detail}); name another file, or move this one away to begin with no rules, or \
         restore a backup of it"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// A newer release wrote it.
    #[error(
        "{path}: was written by a newer release (form {found}, this release knows {known}); run that release, or restore a \
         backup from before the change"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The form of the file.
        found: i64,
        /// The newest form that is known here.
        known: i64,
    },
    /// It is damaged.
    #[error(
        "{path}: is damaged ({detail}); restore a backup, or save what can be read with \
         `sqlite3 {path} .recover | sqlite3 new.db`, or move it away with its -wal and -shm to begin with no rules"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// There is the log of a database, but no database.
    #[error("{path}: does not exist, but its log {wal} does; put the file back, or move the log away too")]
    StrayLog {
        /// The file.
        path: PathBuf,
        /// Its log.
        wal: PathBuf,
    },
    /// The system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file, or one beside it.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// SQLite refused.
    #[error("{path}: {detail}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Why.
        detail: String,
    },
}

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

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> WriteError {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => WriteError::Locked,
            _ => WriteError::Storage(error.to_string()),
        }
    }
}

/// Whether an error says that the content of the file is wrong, and not that it could not be had.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}
