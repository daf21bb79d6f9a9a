//! The thread that writes. Whoever comes while it commits waits for the next commit, which is one for all of them.

use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;

use crate::connection;
use crate::error::{OpenError, Unwritten};
use crate::job::{Job, Outcome};
use crate::kind::Kind;
use crate::meta::set_meta;
use crate::queue::{Queue, Reply, Waiting};

/// The writer of a file. Stopped when dropped.
#[derive(Debug)]
pub(crate) struct Writer<J: Job> {
    shared: Arc<Shared<J>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared<J: Job> {
    path: PathBuf,
    /// Which file it is: its device and its number there.
    file: Option<(u64, u64)>,
    queue: Queue<J>,
    commits: AtomicU64,
}

/// The device and the number of the file at a path; `None` if there is none.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

impl<J: Job> Writer<J> {
    /// Opens a file for writing, notes in it that it is open, and starts the thread. The log of the database is used from
    /// now on.
    pub(crate) fn start(path: &Path, kind: &Kind) -> Result<Self, OpenError> {
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
            .name(kind.thread.into())
            .spawn(move || run(&of_thread, connection))
            .map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Makes a job and waits until it is on disk.
    pub(crate) fn write(&self, job: J) -> Outcome<J> {
        let (caller, outcome) = sync_channel(1);
        // The channel has a place for it, and the caller waits as long as it takes.
        self.write_then(job, Box::new(move |outcome| _ = caller.send(outcome)))?;
        outcome.recv().unwrap_or_else(|_| Err(Unwritten::failed().into()))
    }

    /// Makes a job and calls `reply` when it is on disk.
    pub(crate) fn write_then(&self, job: J, reply: Reply<J>) -> Result<(), Unwritten> {
        self.shared.queue.push(job, reply)
    }

    /// How many transactions have been committed.
    pub(crate) fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// Makes what waits, notes in the file that it was closed in order, and closes it. Refuses jobs from now on.
    pub(crate) fn stop(&self) {
        self.shared.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic has been reported where it happened.
        thread.map(JoinHandle::join);
    }
}

impl<J: Job> Drop for Writer<J> {
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
fn run<J: Job>(shared: &Shared<J>, first: Connection) {
    let mut next = Some(first);
    while shared.queue.wait() || next.is_some() {
        let connection = next.take().map_or_else(|| connection::writing(&shared.path), Ok);
        // The jobs of a transaction that panics are dropped, which answers them.
        let served = connection.and_then(|connection| {
            catch_unwind(AssertUnwindSafe(|| serve(shared, &connection))).unwrap_or(Ok(()))
        });
        if let Err(error) = served {
            refuse_all(shared.queue.take(), &error.into());
        }
    }
}

/// Commits what waits until the queue is closed, which is noted in the file, or until a commit has failed and the
/// connection may be of no use. An error says that nothing could be tried.
fn serve<J: Job>(shared: &Shared<J>, connection: &Connection) -> rusqlite::Result<()> {
    let mut statements = J::prepare(connection)?;
    while shared.queue.wait() {
        let all = shared.queue.take();
        if file_at(&shared.path) != shared.file {
            refuse_all(all, &Unwritten::Replaced(shared.path.clone()));
            continue;
        }
        match commit(connection, &mut statements, &all) {
            Ok((answers, changed)) => {
                shared.commits.fetch_add(u64::from(changed), Ordering::Relaxed);
                all.into_iter().zip(answers).for_each(|(waiting, answer)| waiting.answer(answer));
            }
            Err(error) => {
                refuse_all(all, &error.into());
                return Ok(());
            }
        }
    }
    drop(statements);
    set_meta(connection, "clean", 1)
}

/// Makes the jobs and commits once, if anything changed. An error concerns all of them: none was made.
fn commit<J: Job>(
    connection: &Connection,
    statements: &mut J::Statements<'_>,
    all: &[Waiting<J>],
) -> rusqlite::Result<(Vec<Outcome<J>>, bool)> {
    let jobs: Vec<&J> = all.iter().map(|waiting| &waiting.job).collect();
    let mut attempt = || {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let (answers, changed) = J::make(statements, &jobs)?;
        connection.execute_batch(if changed { "COMMIT" } else { "ROLLBACK" })?;
        Ok((answers, changed))
    };
    let result = attempt();
    if result.is_err() && !connection.is_autocommit() {
        // The error that led here is the one to report.
        _ = connection.execute_batch("ROLLBACK");
    }
    result
}

fn refuse_all<J: Job>(all: Vec<Waiting<J>>, why: &Unwritten) {
    all.into_iter().for_each(|waiting| waiting.answer(Err(why.clone().into())));
}
