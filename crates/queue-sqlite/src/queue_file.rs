//! The file of queued requests of one gateway.

use std::path::Path;
use std::time::Duration;

use sluicegate_queue::{
    Accepted, Bounds, Cancelled, Claims, DeadLetters, End, Entry, Figures, Id, Message, Overdue, Refused,
};
use sluicegate_sqlite_file::{OpenError, SqliteFile};

use crate::error::QueueError;
use crate::job::{Answer, Change, Times};
use crate::queries;
use crate::schema::QUEUE;

/// The queues of one gateway, one for each limit that has any, in one file. Times are milliseconds since 1970.
#[derive(Debug)]
pub struct QueueFile(SqliteFile<Change>);

impl QueueFile {
    /// Opens a file as [`SqliteFile::open_waiting`] does, or creates it. Attempts that another process had begun are begun
    /// again.
    ///
    /// # Errors
    /// If another gateway uses the file for longer than `timeout`, if it is not such a file of this release, or if it is
    /// damaged; such a file is not touched. If the system or SQLite refuses.
    pub fn open(path: &Path, timeout: Duration) -> Result<Self, OpenError> {
        let file = SqliteFile::open_waiting(path, &QUEUE, timeout)?;
        let refused =
            |error: QueueError| OpenError::Sqlite { path: path.to_owned(), detail: error.to_string() };
        file.write(Change::Recover).map_err(refused)?;
        Ok(Self(file))
    }

    /// Hands the file over to another process: writes what waits, refuses everything from now on with
    /// [`QueueError::Released`], and lets another one open it.
    pub fn release_lock(&self) {
        self.0.release_lock();
    }

    /// The absolute path of the file.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Stores a message; it is on disk when this returns. A request that an earlier one has stored is not stored again.
    ///
    /// # Errors
    /// If the file cannot be written. The inner result says why the queue refuses the message.
    pub fn accept(&self, message: Message, bounds: Bounds) -> Result<Result<Accepted, Refused>, QueueError> {
        self.write(Change::Accept(Box::new(message), bounds), Answer::accepted)
    }

    /// The same without blocking: `reply` is called when the message is on disk.
    ///
    /// # Errors
    /// If nothing is written, and `reply` not called.
    pub fn accept_then(
        &self,
        message: Message,
        bounds: Bounds,
        reply: impl FnOnce(Result<Result<Accepted, Refused>, QueueError>) + Send + 'static,
    ) -> Result<(), QueueError> {
        self.write_then(Change::Accept(Box::new(message), bounds), Answer::accepted, reply)
    }

    /// Begins an attempt for each of at most `max` messages of a limit that are due, of each consumer in turn; it ends with
    /// [`end`](Self::end). A message whose time is over is ended instead, and can be seen until `keep_until`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn claim(&self, limit: &str, now: u64, keep_until: u64, max: usize) -> Result<Claims, QueueError> {
        let times = Times { now, keep_until };
        self.write(Change::Claim { limit: limit.to_owned(), times, max }, Answer::claimed)
    }

    /// The same without blocking: `reply` is called when the attempts are on disk.
    ///
    /// # Errors
    /// If nothing is written, and `reply` not called.
    pub fn claim_then(
        &self,
        limit: &str,
        now: u64,
        keep_until: u64,
        max: usize,
        reply: impl FnOnce(Result<Claims, QueueError>) + Send + 'static,
    ) -> Result<(), QueueError> {
        let times = Times { now, keep_until };
        self.write_then(Change::Claim { limit: limit.to_owned(), times, max }, Answer::claimed, reply)
    }

    /// Ends the attempt of this claim. A message that ends with it can be seen until `keep_until`. Returns whether the attempt was still in
    /// progress.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn end(&self, id: Id, claim: u64, end: End, now: u64, keep_until: u64) -> Result<bool, QueueError> {
        self.write(Change::End { id, claim, end, times: Times { now, keep_until } }, Answer::ended)
    }

    /// The same without blocking: `reply` is called when the end is on disk.
    ///
    /// # Errors
    /// If nothing is written, and `reply` not called.
    pub fn end_then(
        &self,
        (id, claim): (Id, u64),
        end: End,
        now: u64,
        keep_until: u64,
        reply: impl FnOnce(Result<bool, QueueError>) + Send + 'static,
    ) -> Result<(), QueueError> {
        let times = Times { now, keep_until };
        self.write_then(Change::End { id, claim, end, times }, Answer::ended, reply)
    }

    /// Cancels a message of this owner that waits. It can be seen until `keep_until`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn cancel(
        &self,
        id: Id,
        owner: [u8; 32],
        now: u64,
        keep_until: u64,
    ) -> Result<Cancelled, QueueError> {
        self.write(Change::Cancel { id, owner, times: Times { now, keep_until } }, Answer::cancelled)
    }

    /// Ends at most `max` messages of a limit whose time is over, which can then be seen until `keep_until`, and removes as many
    /// of all limits that ended long ago.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn expire(&self, limit: &str, now: u64, keep_until: u64, max: usize) -> Result<Overdue, QueueError> {
        let times = Times { now, keep_until };
        self.write(Change::Expire { limit: limit.to_owned(), times, max }, Answer::overdue)
    }

    /// Queues dead letters again, at most a thousand, until `expires`. Returns how many there were.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn retry(&self, which: DeadLetters, now: u64, expires: u64) -> Result<u64, QueueError> {
        self.count(Change::Retry { which, now, expires })
    }

    /// Removes dead letters, at most a thousand. Returns how many there were.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn drop_failed(&self, which: DeadLetters) -> Result<u64, QueueError> {
        self.count(Change::Drop(which))
    }

    /// Lets the consumers of a queue that are paused have a turn again. Returns how many there were.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn wake(&self, limit: &str) -> Result<u64, QueueError> {
        self.count(Change::Wake(limit.to_owned()))
    }

    /// The message of this name, also for a while after it has ended.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn get(&self, id: Id) -> Result<Option<Entry>, QueueError> {
        self.0.read(|connection| queries::get(connection, id))
    }

    /// A page of the dead letters of a limit, or of its messages that have not ended, in the order in which they were
    /// accepted: those whose [`number`](Entry::number) is above `after`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn list(&self, limit: &str, failed: bool, after: u64, max: usize) -> Result<Vec<Entry>, QueueError> {
        self.0.read(|connection| queries::list(connection, limit, failed, after, max))
    }

    /// The figures of all queues, in the order of their limits.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn figures(&self) -> Result<Vec<(String, Figures)>, QueueError> {
        self.0.read(queries::figures)
    }

    /// Whether messages of this key have to be delivered before a new one: one is due at `now`, or with `in_order` one has not
    /// ended.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn has_backlog(&self, limit: &str, key: &[u8], in_order: bool, now: u64) -> Result<bool, QueueError> {
        self.0.read(|connection| queries::has_backlog(connection, limit, key, in_order, now))
    }

    /// How many transactions have been committed since the file was opened; calls that shared one count once.
    pub fn commits(&self) -> u64 {
        self.0.commits()
    }

    fn count(&self, change: Change) -> Result<u64, QueueError> {
        self.write(change, Answer::count)
    }

    fn write<T>(&self, change: Change, read: fn(Answer) -> Result<T, QueueError>) -> Result<T, QueueError> {
        self.0.write(change).and_then(read)
    }

    fn write_then<T: 'static>(
        &self,
        change: Change,
        read: fn(Answer) -> Result<T, QueueError>,
        reply: impl FnOnce(Result<T, QueueError>) + Send + 'static,
    ) -> Result<(), QueueError> {
        self.0.write_then(change, move |outcome| reply(outcome.and_then(read))).map_err(Into::into)
    }
}
