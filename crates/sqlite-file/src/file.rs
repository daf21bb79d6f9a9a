//! The file of one process.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use crate::create::create;
use crate::error::{OpenError, Unwritten};
use crate::inspection::{Found, check, identify};
use crate::job::{Job, Outcome};
use crate::kind::Kind;
use crate::lock::Lock;
use crate::readers::Readers;
use crate::writer::Writer;

/// So often the lock is tried while another process has it.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// A file that this process alone writes; anything may read it meanwhile, such as the sqlite3 shell.
///
/// Any number of threads may use it; every call blocks. Dropping it writes what waits and closes the file in order; after
/// any other end the next one to open it reads all of it first.
#[derive(Debug)]
pub struct SqliteFile<J: Job> {
    path: PathBuf,
    // In the order in which they are closed: the writer, as the last one, leaves no log beside the file, and the lock goes
    // when nothing can be written any more.
    readers: Readers,
    writer: Writer<J>,
    lock: Mutex<Option<Lock>>,
}

impl<J: Job> SqliteFile<J> {
    /// Opens a file, or creates it with the permissions 0600 if there is none or an empty one. The folder must exist and
    /// be on a local disk: the log of the database (`PATH-wal`, `PATH-shm`) and the lock (`PATH.lock`) are kept in it, and
    /// locks and shared memory do not work on network file systems.
    ///
    /// # Errors
    ///
    /// If another process uses the file, if it is not a file of the kind and of this release, or if it is damaged; such a
    /// file is not touched. If the system or SQLite refuses.
    pub fn open(path: &Path, kind: &'static Kind) -> Result<Self, OpenError> {
        let path =
            std::path::absolute(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        // A file that another process is writing is not looked at: it may be between two states.
        let lock = Lock::take_again(&path, kind)?;
        let mut found = identify(&path, kind)?;
        let lock = match lock {
            Some(lock) => lock,
            // Only now: no lock is made beside a file that is not ours.
            None => {
                let lock = Lock::take(&path, kind)?;
                // Another process may have been quicker.
                found = identify(&path, kind)?;
                lock
            }
        };
        if found == Found::Nothing {
            create(&path, kind)?;
        }
        check(&path, kind)?;
        let writer = Writer::start(&path, kind)?;
        Ok(Self { readers: Readers::new(&path), writer, lock: Mutex::new(Some(lock)), path })
    }

    /// Opens a file as [`open`](Self::open) does, but waits about `timeout` for another process that uses it: the one that
    /// this process takes over from and that will call [`release_lock`](Self::release_lock).
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); [`OpenError::InUse`] after the time.
    pub fn open_waiting(path: &Path, kind: &'static Kind, timeout: Duration) -> Result<Self, OpenError> {
        let mut left = timeout;
        loop {
            match Self::open(path, kind) {
                Err(OpenError::InUse { .. }) if !left.is_zero() => {}
                result => return result,
            }
            let pause = left.min(LOCK_PAUSE);
            left -= pause;
            #[expect(
                clippy::disallowed_methods,
                reason = "the caller has nobody to serve before this returns"
            )]
            std::thread::sleep(pause);
        }
    }

    /// Hands the file over to another process: writes what waits, refuses jobs from now on with
    /// [`Unwritten::Released`](crate::Unwritten::Released), and then lets another one open it. This one can still read, also
    /// what the other one writes. If the other process does not come, open the file anew, in this process too.
    pub fn release_lock(&self) {
        self.writer.stop();
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The absolute path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads with a connection that nobody else uses meanwhile. It sees every commit that was made before.
    ///
    /// # Errors
    ///
    /// That of `read`, or if the file cannot be opened.
    pub fn read<T, E: From<rusqlite::Error>>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        self.readers.read(read)
    }

    /// Makes a job, all of it or nothing, and returns when it is on disk. Jobs of other threads that come at the same time
    /// share the commit.
    ///
    /// # Errors
    ///
    /// That of the job, or why nothing was written.
    pub fn write(&self, job: J) -> Outcome<J> {
        self.writer.write(job)
    }

    /// Makes a job as [`write`](Self::write) does, and calls `reply` on the thread that writes when it is on disk. If that
    /// thread panics, `reply` is dropped: then the job [has failed](Unwritten::failed). Does not block.
    ///
    /// # Errors
    ///
    /// If the job is not accepted; `reply` is dropped.
    pub fn write_then(
        &self,
        job: J,
        reply: impl FnOnce(Outcome<J>) + Send + 'static,
    ) -> Result<(), Unwritten> {
        self.writer.write_then(job, Box::new(reply))
    }

    /// How many transactions this process has committed since it opened the file; jobs that shared one count once.
    pub fn commits(&self) -> u64 {
        self.writer.commits()
    }
}

impl<J: Job> Drop for SqliteFile<J> {
    fn drop(&mut self) {
        self.readers.close();
        self.writer.stop();
    }
}
