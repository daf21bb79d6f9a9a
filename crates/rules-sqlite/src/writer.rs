//! The thread that writes. Whoever comes while it commits waits for the next commit, which is one for all of them.

use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use sluicegate_rules::{Batch, Written};

use crate::connection;
use crate::error::{OpenError, WriteError};
use crate::queue::{Job, Queue};
use crate::schema::set_meta;
use crate::transaction::Statements;

/// The writer of a file. Stopped when dropped.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// Which file it is: its device and its number there.
    file: Option<(u64, u64)>,
    queue: Queue,
    commits: AtomicU64,
}

/// The device and the number of the file at a path; `None` if there is none.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

impl Writer {
    /// Opens a file for writing, notes in it that it is open, and starts the thread. The log of the database is used from
    /// now on.
    pub(crate) fn start(path: &Path) -> Result<Writer, OpenError> {
        let refused =
            |error: rusqlite::Error| OpenError::Sqlite { path: path.to_owned(), detail: error.to_string() };
        let connection = first(path).map_err(refused)?;
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            file: file_at(path),
            queue: Queue::default(),
            commits: AtomicU64::new(0),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("rules-writer".into())
            .spawn(move || run(&of_thread, connection))
            .map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        Ok(Writer { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Writes a batch and waits until it is on disk.
    pub(crate) fn write(&self, batch: Batch) -> Result<Written, WriteError> {
        let answer = self.shared.queue.push(batch)?.recv();
        answer.unwrap_or_else(|_| {
            Err(WriteError::Storage("the writer has failed; it goes on with the next batch".into()))
        })
    }

    /// How many transactions have been committed.
    pub(crate) fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// Writes what waits, notes in the file that it was closed in order, and closes it. Refuses batches from now on.
    pub(crate) fn stop(&self) {
        self.shared.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic has been reported where it happened.
        thread.map(JoinHandle::join);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The first connection to a file that was closed.
fn first(path: &Path) -> rusqlite::Result<Connection> {
    let connection = connection::writing(path)?;
    connection.query_row("PRAGMA journal_mode = WAL", (), |_| Ok(()))?;
    set_meta(&connection, "clean", 0)?;
    Ok(connection)
}

/// The thread: one connection after the other, a new one after each failure of the file or of this program.
fn run(shared: &Shared, first: Connection) {
    let mut next = Some(first);
    while shared.queue.wait() || next.is_some() {
        let connection = next.take().map_or_else(|| connection::writing(&shared.path), Ok);
        // The batches of a transaction that panics are dropped, which answers them.
        let served = connection.and_then(|connection| {
            catch_unwind(AssertUnwindSafe(|| serve(shared, &connection))).unwrap_or(Ok(()))
        });
        if let Err(error) = served {
            answer_all(shared.queue.take(), &error.into());
        }
    }
}

/// Commits what waits until the queue is closed, which is noted in the file, or until a commit has failed and the
/// connection may be of no use. An error says that nothing could be tried.
fn serve(shared: &Shared, connection: &Connection) -> rusqlite::Result<()> {
    let mut statements = Statements::prepare(connection)?;
    while shared.queue.wait() {
        let jobs = shared.queue.take();
        #[cfg(test)]
        assert!(jobs.iter().all(|job| job.batch.actor != tests::PANIC), "a test asked for this panic");
        if file_at(&shared.path) != shared.file {
            answer_all(jobs, &WriteError::Replaced(shared.path.clone()));
            continue;
        }
        match statements.commit(&jobs) {
            Ok((answers, changed)) => {
                shared.commits.fetch_add(u64::from(changed), Ordering::Relaxed);
                jobs.into_iter().zip(answers).for_each(|(job, answer)| job.answer(answer));
            }
            Err(error) => {
                answer_all(jobs, &error.into());
                return Ok(());
            }
        }
    }
    drop(statements);
    set_meta(connection, "clean", 1)
}

fn answer_all(jobs: Vec<Job>, error: &WriteError) {
    jobs.into_iter().for_each(|job| job.answer(Err(error.clone())));
}

#[cfg(test)]
mod tests {
    use sluicegate_rules::{Op, Precondition, Rule, Write};

    use super::*;
    use crate::schema;

    /// The actor whose batches make the writer panic.
    pub(super) const PANIC: &str = "panic";

    fn put(actor: &str) -> Batch {
        let op = Op::Put { rule: Rule { id: "a".into(), ..Rule::default() }, pattern: false };
        Batch {
            actor: actor.into(),
            changes: vec![Write { op, precondition: Precondition::None }],
            ..Batch::default()
        }
    }

    #[test]
    fn a_panic_answers_the_caller_and_the_next_batch_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.db");
        schema::create(&path).unwrap();
        let writer = Writer::start(&path).unwrap();
        assert!(matches!(writer.write(put(PANIC)), Err(WriteError::Storage(_))));
        assert_eq!(writer.write(put("operator")).unwrap().version, 1);
        writer.stop();
        assert_eq!(writer.write(put("operator")), Err(WriteError::Released));
    }

    /// What is written into a file without a name, or beside the one that has the name, would be gone with the process.
    #[test]
    fn nothing_is_written_into_a_file_that_was_removed_or_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join("rules.db"), folder.path().join("away.db"));
        schema::create(&path).unwrap();
        let writer = Writer::start(&path).unwrap();
        assert_eq!(writer.write(put("operator")).unwrap().version, 1);
        std::fs::rename(&path, &away).unwrap();
        assert_eq!(writer.write(put("operator")), Err(WriteError::Replaced(path.clone())));
        std::fs::copy(&away, &path).unwrap();
        assert_eq!(writer.write(put("operator")), Err(WriteError::Replaced(path.clone())));
        std::fs::rename(&away, &path).unwrap();
        assert!(writer.write(put("operator")).is_ok());
    }
}
