//! One job after the other, in one transaction. A job sees those before it.

use rusqlite::{Connection, OptionalExtension};
use sluicegate_queue::{Id, MAX_DEAD_LETTERS, State};
use sluicegate_sqlite_file::{Job, Outcome};

use crate::arrivals::{Arrivals, Count};
use crate::error::QueueError;
use crate::job::{Answer, Change, Times};
use crate::rows::{id, signed, state, unsigned};
use crate::statements::Statements;

/// A connection with its statements, and whether the transaction that has begun changed anything.
pub(crate) struct Transaction<'c> {
    pub(crate) connection: &'c Connection,
    pub(crate) statements: Statements<'c>,
    pub(crate) has_changed: bool,
}

/// A message that a job is about.
pub(crate) struct Found {
    pub(crate) number: i64,
    pub(crate) limit: String,
    pub(crate) key: Vec<u8>,
    pub(crate) consumer: String,
    pub(crate) owner: [u8; 32],
    pub(crate) is_ordered: bool,
    pub(crate) state: State,
    pub(crate) attempts: u32,
    pub(crate) claims: u64,
    pub(crate) size: i64,
}

impl Job for Change {
    type Answer = Answer;
    type Error = QueueError;
    type Statements<'c> = Transaction<'c>;

    fn prepare(connection: &Connection) -> rusqlite::Result<Transaction<'_>> {
        Ok(Transaction { connection, statements: Statements::prepare(connection)?, has_changed: false })
    }

    fn changes(&self) -> usize {
        match self {
            Self::Claim { max, .. } | Self::Expire { max, .. } => *max,
            Self::Retry { .. } | Self::Drop(_) => MAX_DEAD_LETTERS as usize,
            _ => 1,
        }
    }

    fn make(
        transaction: &mut Transaction<'_>,
        jobs: &[&Self],
    ) -> rusqlite::Result<(Vec<Outcome<Self>>, bool)> {
        transaction.has_changed = false;
        let mut arrivals = Arrivals::default();
        let mut answers = Vec::with_capacity(jobs.len());
        for job in jobs {
            answers.push(Ok(transaction.make(&mut arrivals, job)?));
        }
        transaction.arrived(&mut arrivals)?;
        Ok((answers, transaction.has_changed))
    }
}

impl Transaction<'_> {
    /// Makes a job, which sees all those before it.
    fn make<'m>(&mut self, arrivals: &mut Arrivals<'m>, job: &'m Change) -> rusqlite::Result<Answer> {
        if !matches!(job, Change::Accept(..)) {
            self.arrived(arrivals)?;
        }
        match job {
            Change::Accept(message, bounds) => self.accept(arrivals, message, *bounds).map(Answer::Accepted),
            Change::Claim { limit, times, max } => self.claim(limit, *times, *max).map(Answer::Claimed),
            Change::End { id, claim, end, times } => self.end(*id, *claim, end, *times).map(Answer::Ended),
            Change::Cancel { id, owner, times } => self.cancel(*id, owner, *times).map(Answer::Cancelled),
            Change::Expire { limit, times, max } => self.expire(limit, *times, *max).map(Answer::Overdue),
            Change::Retry { which, now, expires } => self.retry(which, *now, *expires).map(Answer::Count),
            Change::Drop(which) => self.drop_failed(which).map(Answer::Count),
            Change::Wake(limit) => self.wake(limit).map(Answer::Count),
            Change::Recover => self.recover().map(Answer::Count),
        }
    }

    /// The message of this name.
    pub(crate) fn find(&mut self, name: Id) -> rusqlite::Result<Option<Found>> {
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Found {
                number: row.get(0)?,
                limit: row.get(1)?,
                key: row.get(2)?,
                consumer: row.get(3)?,
                owner: row.get(4)?,
                is_ordered: row.get(5)?,
                state: state(row, 6)?,
                attempts: u32::try_from(unsigned(row.get(7)?)).unwrap_or(u32::MAX),
                claims: unsigned(row.get(8)?),
                size: row.get(9)?,
            })
        };
        self.statements.find.query_row([&name.0[..]], read).optional()
    }

    /// Adds to the figures of a queue.
    pub(crate) fn count(&mut self, limit: &str, count: &Count) -> rusqlite::Result<()> {
        self.has_changed = true;
        let Count { length, bytes, failed, accepted, ended } = count;
        self.statements.count.execute((limit, length, bytes, failed, accepted, ended))?;
        Ok(())
    }

    /// More messages of the flow wait for their turns.
    pub(crate) fn join_flow(&mut self, limit: &str, consumer: &str, messages: i64) -> rusqlite::Result<()> {
        self.has_changed = true;
        if self.statements.join_awake.execute((limit, consumer, messages))? == 0 {
            self.statements.join_flow.execute((limit, consumer, messages))?;
        }
        Ok(())
    }

    /// One message fewer of the flow waits. A flow in which none waits is removed.
    pub(crate) fn leave_flow(&mut self, limit: &str, consumer: &str) -> rusqlite::Result<()> {
        self.has_changed = true;
        self.statements.leave_flow.execute((limit, consumer))?;
        self.statements.remove_flow.execute((limit, consumer))?;
        Ok(())
    }

    /// Ends a message that waits or was claimed, and lets the next one of its key wait.
    pub(crate) fn finish(
        &mut self,
        message: &Found,
        state: State,
        reason: Option<&str>,
        answer: Option<&[u8]>,
        times: Times,
    ) -> rusqlite::Result<()> {
        if message.state == State::Waiting {
            self.leave_flow(&message.limit, &message.consumer)?;
        }
        let number = message.number;
        // A dead letter stays until somebody decides about it.
        let keep_until = (state != State::Failed).then(|| signed(times.keep_until));
        let now = signed(times.now);
        self.statements.finish.execute((number, state as u8, now, keep_until, reason, answer))?;
        let is_dead = state == State::Failed;
        if !is_dead {
            self.statements.remove_request.execute([number])?; // a dead letter may be tried again
        }
        let bytes = if is_dead { 0 } else { -message.size };
        let count = Count { length: -1, bytes, failed: is_dead.into(), ended: 1, ..Count::default() };
        self.count(&message.limit, &count)?;
        if message.is_ordered && message.state != State::Blocked {
            self.promote(&message.limit, &message.key)?;
        }
        Ok(())
    }

    /// The oldest message of a key that is blocked waits for its turn from now on.
    fn promote(&mut self, limit: &str, key: &[u8]) -> rusqlite::Result<()> {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?));
        let next = self.statements.next_of_key.query_row((limit, key), read).optional()?;
        if let Some((number, consumer)) = next {
            self.statements.promote.execute([number])?;
            self.join_flow(limit, &consumer, 1)?;
        }
        Ok(())
    }

    /// The names of messages that a query finds.
    pub(crate) fn names(&self, sql: &str, parameters: impl rusqlite::Params) -> rusqlite::Result<Vec<Id>> {
        let mut statement = self.connection.prepare(sql)?;
        let names = statement.query_map(parameters, |row| id(row, 0))?;
        names.collect()
    }
}
