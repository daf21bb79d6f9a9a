//! What the tests share.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sluicegate_queue_sqlite::QueueFile;
use tempfile::TempDir;

#[path = "messages.rs"]
mod messages;

pub(crate) use self::messages::*;

/// A folder for a file, and the file's name.
pub(crate) fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue.db");
    (folder, path)
}

/// What the cases that hold for every store are about.
pub(crate) type Store = QueueFile;

/// The store as another process finds it after this one has ended.
pub(crate) fn reopen(file: QueueFile, path: &Path) -> QueueFile {
    drop(file);
    open(path)
}

pub(crate) fn open(path: &Path) -> QueueFile {
    QueueFile::open(path, Duration::from_secs(30)).unwrap()
}

/// Another run of this program, which does only the test `name`, with an environment variable.
pub(crate) fn again(name: &str, mut command: Command, variable: (&str, &Path)) -> Reaped {
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(variable.0, variable.1)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    Reaped(command.spawn().unwrap())
}

/// A child that does not outlive its test.
pub(crate) struct Reaped(pub(crate) Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
