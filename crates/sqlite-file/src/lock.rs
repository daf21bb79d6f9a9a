//! One gateway per file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::connection::beside;
use crate::error::OpenError;
use crate::kind::Kind;

/// The right to write the file. It ends when this is dropped, or with the process, however that ends.
///
/// The lock is on a file beside it, which stays: SQLite's own lock would shut the sqlite3 shell out.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of the file of this name, without waiting.
    pub(crate) fn take(path: &Path, kind: &'static Kind) -> Result<Lock, OpenError> {
        let name = beside(path, ".lock");
        // The standard library opens files so that programs that are started do not inherit them.
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .mode(0o600)
            .write(true)
            .custom_flags(flags())
            .open(&name);
        lock(path, kind, file.map_err(|source| OpenError::Io { path: name, source })?)
    }

    /// Takes the lock, without waiting, if the file of this name had a gateway before.
    pub(crate) fn take_again(path: &Path, kind: &'static Kind) -> Result<Option<Lock>, OpenError> {
        let name = beside(path, ".lock");
        match OpenOptions::new().write(true).custom_flags(flags()).open(&name) {
            Ok(file) => lock(path, kind, file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(OpenError::Io { path: name, source }),
        }
    }
}

/// No link is followed, and a pipe is not waited for.
fn flags() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()
}

fn lock(path: &Path, kind: &'static Kind, file: File) -> Result<Lock, OpenError> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock { _file: file }),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::InUse { path: path.to_owned(), kind }),
        Err(error) => Err(OpenError::Io { path: beside(path, ".lock"), source: error.into() }),
    }
}
