//! What is written.

use rusqlite::Connection;

use crate::error::Unwritten;

/// Something to write, entirely or not at all.
pub trait Job: Send + Sized + 'static {
    /// What is answered to who writes it.
    type Answer: Send;
    /// Why it was not written.
    type Error: From<Unwritten> + Send;
    /// The statements that write it.
    type Statements<'c>;

    /// How many changes it makes, to bound what waits and what one transaction takes.
    fn changes(&self) -> usize {
        1
    }

    /// Prepares the statements, once for a connection.
    ///
    /// # Errors
    /// If SQLite refuses one.
    fn prepare(connection: &Connection) -> rusqlite::Result<Self::Statements<'_>>;

    /// Makes these jobs in one transaction, which has begun, each in a savepoint of its own if it can fail alone. The answers
    /// are given once the transaction is on disk. Also returns whether anything was changed; if nothing was, the transaction
    /// is rolled back.
    ///
    /// # Errors
    /// If the file cannot be written: none of the jobs is made.
    fn make(
        statements: &mut Self::Statements<'_>,
        jobs: &[&Self],
    ) -> rusqlite::Result<(Vec<Outcome<Self>>, bool)>;
}

/// What became of a job.
pub type Outcome<J> = Result<<J as Job>::Answer, <J as Job>::Error>;
