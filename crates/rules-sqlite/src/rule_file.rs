//! The file of rules of one gateway.

use std::path::Path;
use std::time::Duration;

use sluicegate_rules::{Batch, Changes, Head, Stored, Written};
use sluicegate_sqlite_file::{OpenError, SqliteFile};

use crate::error::{ReadError, WriteError};
use crate::queries;
use crate::schema::RULES;
use crate::transaction::BatchJob;

/// Rules in a file that this gateway alone writes; anything may read it meanwhile, such as the sqlite3 shell.
///
/// Any number of threads may use it; every call blocks. Dropping it writes what waits and closes the file in order; after
/// any other end the next one to open it reads all of it first.
#[derive(Debug)]
pub struct RuleFile(SqliteFile<BatchJob>);

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
        SqliteFile::open(path, &RULES).map(Self)
    }

    /// Opens a file as [`RuleFile::open`] does, but waits about `timeout` for another gateway that uses it: the one that
    /// this process takes over from and that will call [`RuleFile::release_lock`].
    ///
    /// # Errors
    ///
    /// As [`RuleFile::open`]; [`OpenError::InUse`] after the time.
    pub fn open_waiting(path: &Path, timeout: Duration) -> Result<RuleFile, OpenError> {
        SqliteFile::open_waiting(path, &RULES, timeout).map(Self)
    }

    /// Hands the file over to another process: writes what waits, refuses writes from now on with
    /// [`WriteError::Released`], and then lets another one open it. This one can still read, also what the other one
    /// writes. If the other process does not come, open the file anew, in this process too.
    pub fn release_lock(&self) {
        self.0.release_lock();
    }

    /// The absolute path of the file.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The rules of a limit whose key is one of `keys` and no pattern, in the order of `keys`, then of ids. A rule that cannot
    /// be read is a [`ReadError::Content`].
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn exact(&self, limit: &str, keys: &[String]) -> Result<Vec<Result<Stored, ReadError>>, ReadError> {
        self.0.read(|connection| queries::exact(connection, limit, keys))
    }

    /// All rules of all limits whose keys are patterns, in no order, and the version of the store that they are of. A rule that
    /// cannot be read is a [`ReadError::Content`].
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn patterns(&self) -> Result<(u64, Vec<Result<Stored, ReadError>>), ReadError> {
        self.0.read(queries::patterns)
    }

    /// The rule of this id.
    ///
    /// # Errors
    ///
    /// If the file or the rule cannot be read.
    pub fn get(&self, id: &str) -> Result<Option<Stored>, ReadError> {
        self.0.read(|connection| queries::get(connection, id))
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
        self.0.read(|connection| queries::page(connection, limit, key, after, most))
    }

    /// Where the store stands.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn version(&self) -> Result<Head, ReadError> {
        self.0.read(queries::head)
    }

    /// The changes after the version `since`, about `most` of them: all of a version or none, and at least those of the
    /// next version. The last 100,000 changes are kept.
    ///
    /// # Errors
    ///
    /// If the file or a change in it cannot be read.
    pub fn changes(&self, since: u64, most: usize) -> Result<Changes, ReadError> {
        self.0.read(|connection| queries::changes(connection, since, most))
    }

    /// The limits that have rules, in the order of their names.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn limits(&self) -> Result<Vec<String>, ReadError> {
        self.0.read(queries::limits)
    }

    /// How many rules there are. It counts them: a million take about twenty milliseconds.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn count(&self) -> Result<u64, ReadError> {
        self.0.read(queries::count)
    }

    /// Writes a batch, all of it or nothing, and returns when it is on disk. Batches of other threads that come at the
    /// same time share the commit.
    ///
    /// # Errors
    ///
    /// See [`WriteError`].
    pub fn write(&self, batch: Batch) -> Result<Written, WriteError> {
        self.0.write(BatchJob(batch))
    }

    /// How many transactions this gateway has committed since it opened the file; batches that shared one count once.
    pub fn commits(&self) -> u64 {
        self.0.commits()
    }
}
