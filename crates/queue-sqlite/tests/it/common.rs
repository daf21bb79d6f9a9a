//! What the tests share.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sluicegate_queue::{Accepted, Bounds, Claimed, Id, Message, Order};
use sluicegate_queue_sqlite::QueueFile;
use tempfile::TempDir;

pub(crate) const LIMIT: &str = "orders";
pub(crate) const OWNER: [u8; 32] = [7; 32];
/// When messages are accepted, unless a test says otherwise.
pub(crate) const NOW: u64 = 1_800_000_000_000;
/// When they expire, and when those that have ended are forgotten.
pub(crate) const LATER: u64 = NOW + 3_600_000;
pub(crate) const BOUNDS: Bounds = Bounds { max_length: 10_000, max_bytes: 100 << 20 };

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

pub(crate) fn id(number: u64) -> Id {
    Id(u128::from(number).to_be_bytes())
}

/// A message of a consumer, whose key is the consumer's name.
pub(crate) fn message(number: u64, consumer: &str) -> Message {
    Message {
        id: id(number),
        limit: LIMIT.to_owned(),
        key: consumer.as_bytes().to_vec(),
        consumer: consumer.to_owned(),
        owner: OWNER,
        idempotency: None,
        order: Order::None,
        accepted: NOW,
        expires: LATER,
        request: format!("request {number}").into_bytes(),
    }
}

pub(crate) fn accept(file: &QueueFile, message: Message) -> Accepted {
    file.accept(message, BOUNDS).unwrap().unwrap()
}

/// The numbers of messages.
pub(crate) fn numbers(claimed: &[Claimed]) -> Vec<u64> {
    claimed.iter().map(|claimed| u128::from_be_bytes(claimed.id.0) as u64).collect()
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
