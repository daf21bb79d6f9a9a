//! What can go wrong, in words for operators.

use std::io;
use std::path::PathBuf;

use rusqlite::ErrorCode;

use crate::kind::Kind;

/// Why a file cannot be used. It has not been written to.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another [`SqliteFile`](crate::SqliteFile) of this one, has the file.
    #[error(
        "{path}: another gateway uses this file, and a file is for one gateway: stop the other one, name another file, or \
         {}", .kind.sharing
    )]
    InUse {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        kind: &'static Kind,
    },
    /// It is a folder, a link, a pipe or a device, or has several names.
    #[error("{path}: is {what}; {} are kept in a regular file with one name", .kind.content)]
    NotRegular {
        /// The file.
        path: PathBuf,
        /// What it is, with an article.
        what: &'static str,
        /// What it should hold.
        kind: &'static Kind,
    },
    /// It has content, but is no database.
    #[error(
        "{path}: is not a file of {} ({detail}); name another file, or move this one away to begin with no {}, or \
         restore a backup of it", .kind.content, .kind.content
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What was found.
        detail: String,
        /// What it should hold.
        kind: &'static Kind,
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
         `sqlite3 {path} .recover | sqlite3 new.db`, or move it away with its -wal and -shm to begin with no {}", .kind.content
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        detail: String,
        /// What it should hold.
        kind: &'static Kind,
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

/// Why nothing could be written. Nothing was, unless a variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unwritten {
    /// Too many jobs wait; try again later.
    Busy,
    /// The file was handed over to another process, or is closed.
    Released,
    /// Another file is at the path, or none: what is written would be lost when the process ends.
    Replaced(PathBuf),
    /// Another program, such as a shell, has held the file for too long.
    Locked,
    /// The disk is full, or SQLite or the system refused. If the disk failed at the last moment the job may be there after
    /// all: read before you write it again.
    Storage(String),
}

impl Unwritten {
    /// What has become of a job whose reply was dropped.
    pub fn failed() -> Self {
        Self::Storage("the writer has failed; it goes on with the next batch".into())
    }
}

impl From<rusqlite::Error> for Unwritten {
    fn from(error: rusqlite::Error) -> Unwritten {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Unwritten::Locked,
            _ => Unwritten::Storage(error.to_string()),
        }
    }
}

/// Whether an error says that the content of the file is wrong, and not that it could not be had.
pub fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}
