//! The file of rules of one gateway.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sluicegate_rules::{Batch, Changes, Head, Stored, Written};

use crate::error::{OpenError, ReadError, WriteError};
use crate::inspection::{Found, check, identify};
use crate::lock::Lock;
use crate::queries;
use crate::readers::Readers;
use crate::schema;
use crate::writer::Writer;

/// So often the lock is tried while another process has it.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Rules in a file that this gateway alone writes; anything may read it meanwhile, such as the sqlite3 shell.
///
/// Any number of threads may use it; every call blocks. Dropping it writes what waits and closes the file in order; after
/// any other end the next one to open it reads all of it first.
#[derive(Debug)]
pub struct RuleFile {
    path: PathBuf,
    // In the order in which they are closed: the writer, as the last one, leaves no log beside the file, and the lock goes
    // when nothing can be written any more.
    readers: Readers,
    writer: Writer,
    lock: Mutex<Option<Lock>>,
}

impl RuleFile {
    /// Opens a file, or creates it with the permissions 0600 if there is none or an empty one. The folder must exist and
    /// be on a local disk: the log of the database (`PATH-wal`, `PATH-shm`) and the lock (`PATH.lock`) are kept in it, and
    /// locks and shared memory do not work on network file systems.
    ///
    /// # Errors
    ///
    /// If another gateway uses the file, if it is not a file of rules of this release, or if it is damaged; such a file
    /// is not touched. If the system or SQLite refuses.
    pub fn open(path: &Path) -> Result<RuleFile, OpenError> {
        let path =
            std::path::absolute(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        // A file that another gateway is writing is not looked at: it may be between two states.
        let lock = Lock::take_again(&path)?;
        let mut found = identify(&path)?;
        let lock = match lock {
            Some(lock) => lock,
            // Only now: no lock is made beside a file that is not ours.
            None => {
                let lock = Lock::take(&path)?;
                // Another gateway may have been quicker.
                found = identify(&path)?;
                lock
            }
        };
        if found == Found::Nothing {
            schema::create(&path)?;
        }
        check(&path)?;
        let writer = Writer::start(&path)?;
        Ok(RuleFile { readers: Readers::new(&path), writer, lock: Mutex::new(Some(lock)), path })
    }

    /// Opens a file as [`RuleFile::open`] does, but waits about `timeout` for another gateway that uses it: the one that
    /// this process takes over from and that will call [`RuleFile::release_lock`].
    ///
    /// # Errors
    ///
    /// As [`RuleFile::open`]; [`OpenError::InUse`] after the time.
    pub fn open_waiting(path: &Path, timeout: Duration) -> Result<RuleFile, OpenError> {
        let mut left = timeout;
        loop {
            match RuleFile::open(path) {
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

    /// Hands the file over to another process: writes what waits, refuses writes from now on with
    /// [`WriteError::Released`], and then lets another one open it. This one can still read, also what the other one
    /// writes. If the other process does not come, open the file anew, in this process too.
    pub fn release_lock(&self) {
        self.writer.stop();
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The absolute path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The rules of a limit whose key is one of `keys` and no pattern, in the order of `keys`, then of ids. A rule that cannot
    /// be read is a [`ReadError::Content`].
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn exact(&self, limit: &str, keys: &[String]) -> Result<Vec<Result<Stored, ReadError>>, ReadError> {
        self.readers.read(|connection| queries::exact(connection, limit, keys))
    }

    /// All rules of all limits whose keys are patterns, in no order, and the version of the store that they are of. A rule that
    /// cannot be read is a [`ReadError::Content`].
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn patterns(&self) -> Result<(u64, Vec<Result<Stored, ReadError>>), ReadError> {
        self.readers.read(queries::patterns)
    }

    /// The rule of this id.
    ///
    /// # Errors
    ///
    /// If the file or the rule cannot be read.
    pub fn get(&self, id: &str) -> Result<Option<Stored>, ReadError> {
        self.readers.read(|connection| queries::get(connection, id))
    }

    /// A page of rules: at most `most` of them in the order of the bytes of their ids, those after the id `after`; only
    /// those of a limit and only those with exactly this key or pattern, if given. The last id of a page is the `after` of
    /// the next one.
    ///
    /// # Errors
    ///
    /// If the file or a rule in it cannot be read.
    pub fn list(
        &self,
        limit: Option<&str>,
        key: Option<&str>,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<Stored>, ReadError> {
        self.page(limit, key, after, most)?.into_iter().collect()
    }

    /// The same, with an error in the place of each rule that cannot be read.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn page(
        &self,
        limit: Option<&str>,
        key: Option<&str>,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<Result<Stored, ReadError>>, ReadError> {
        self.readers.read(|connection| queries::page(connection, limit, key, after, most))
    }

    /// Where the store stands.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn version(&self) -> Result<Head, ReadError> {
        self.readers.read(queries::head)
    }

    /// The changes after the version `since`, about `most` of them: all of a version or none, and at least those of the
    /// next version. The last 100,000 changes are kept.
    ///
    /// # Errors
    ///
    /// If the file or a change in it cannot be read.
    pub fn changes(&self, since: u64, most: usize) -> Result<Changes, ReadError> {
        self.readers.read(|connection| queries::changes(connection, since, most))
    }

    /// The limits that have rules, in the order of their names.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn limits(&self) -> Result<Vec<String>, ReadError> {
        self.readers.read(queries::limits)
    }

    /// How many rules there are. It counts them: a million take about twenty milliseconds.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn count(&self) -> Result<u64, ReadError> {
        self.readers.read(queries::count)
    }

    /// Writes a batch, all of it or nothing, and returns when it is on disk. Batches of other threads that come at the
    /// same time share the commit.
    ///
    /// # Errors
    ///
    /// See [`WriteError`].
    pub fn write(&self, batch: Batch) -> Result<Written, WriteError> {
        self.writer.write(batch)
    }

    /// How many transactions this gateway has committed since it opened the file; batches that shared one count once.
    pub fn commits(&self) -> u64 {
        self.writer.commits()
    }
}

impl Drop for RuleFile {
    fn drop(&mut self) {
        self.readers.close();
        self.writer.stop();
    }
}
