//! Batches in one transaction: each is made in a savepoint of its own, entirely or not at all.

use rusqlite::{Connection, OptionalExtension, Statement};
use sluicegate_rules::{Batch, Effect, Failure, FailureKind, Op, Outcome, Rule, Stored, Write, Written};
use sluicegate_sqlite_file::{Job, meta_number, set_meta};

use crate::error::{ReadError, WriteError};
use crate::rows;

/// So many failures of a batch are reported.
const MOST_FAILURES: usize = 100;

/// So many changes are kept for those who follow them.
const KEPT_CHANGES: i64 = 100_000;

/// The statements of a connection that writes.
pub(crate) struct Statements<'c> {
    connection: &'c Connection,
    find: Statement<'c>,
    put: Statement<'c>,
    delete: Statement<'c>,
    log: Statement<'c>,
}

/// Why a batch was not made.
enum Refusal {
    /// For a reason of its own; the others are not concerned.
    Batch(WriteError),
    /// The file cannot be written.
    Storage(rusqlite::Error),
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Refusal {
        Refusal::Storage(error)
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Refusal {
        Refusal::Batch(WriteError::Unreadable(error))
    }
}

/// What became of each batch, in order.
type Answers = Vec<Result<Written, WriteError>>;

/// A batch to write.
#[derive(Debug)]
pub(crate) struct BatchJob(pub(crate) Batch);

impl Job for BatchJob {
    type Answer = Written;
    type Error = WriteError;
    type Statements<'c> = Statements<'c>;

    fn changes(&self) -> usize {
        self.0.changes.len()
    }

    fn prepare(connection: &Connection) -> rusqlite::Result<Statements<'_>> {
        Statements::prepare(connection)
    }

    /// A batch sees those before it in the same transaction.
    fn make(statements: &mut Statements<'_>, jobs: &[&Self]) -> rusqlite::Result<(Answers, bool)> {
        statements.make_all(jobs)
    }
}

/// A rule as it is in the file.
struct Current {
    stored: Stored,
    body: String,
    pattern: bool,
}

impl<'c> Statements<'c> {
    /// Prepares them.
    fn prepare(connection: &'c Connection) -> rusqlite::Result<Statements<'c>> {
        Ok(Statements {
            connection,
            find: connection.prepare("SELECT body, version, pattern FROM rules WHERE id = ?1")?,
            put: connection.prepare(
                "INSERT INTO rules (id, lim, key, pattern, body, version) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (id) DO UPDATE SET lim = ?2, key = ?3, pattern = ?4, body = ?5, version = ?6",
            )?,
            delete: connection.prepare("DELETE FROM rules WHERE id = ?1")?,
            log: connection.prepare(
                "INSERT INTO changes (version, seq, id, lim, key, pattern, before, after, at, actor)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?,
        })
    }

    /// Makes the batches. Also returns whether any of them changed something.
    fn make_all(&mut self, jobs: &[&BatchJob]) -> rusqlite::Result<(Answers, bool)> {
        let before = meta_number(self.connection, "version")?;
        let mut version = before;
        let mut answers = Vec::with_capacity(jobs.len());
        for BatchJob(batch) in jobs {
            self.connection.execute_batch("SAVEPOINT batch")?;
            let answer = match self.make(batch, version) {
                Ok(written) => Ok(written),
                Err(Refusal::Batch(error)) => Err(error),
                Err(Refusal::Storage(error)) => return Err(error),
            };
            match &answer {
                Ok(written) if !batch.dry_run => version = written.version,
                _ => self.connection.execute_batch("ROLLBACK TO batch")?,
            }
            self.connection.execute_batch("RELEASE batch")?;
            answers.push(answer);
        }
        let changed = version != before;
        if changed {
            set_meta(self.connection, "version", version)?;
            self.trim()?;
        }
        Ok((answers, changed))
    }

    /// Makes all changes of a batch, on a store of the version.
    fn make(&mut self, batch: &Batch, version: u64) -> Result<Written, Refusal> {
        let next = version + 1;
        let mut results = Vec::with_capacity(batch.changes.len());
        let mut failures = Vec::new();
        let mut made = 0;
        for (index, write) in batch.changes.iter().enumerate() {
            let current = self.current(write.op.id())?;
            match judge(write, current.as_ref()) {
                Err(kind) => failures.push(Failure { index, kind }),
                Ok(effect) => {
                    let mut outcome = Outcome { effect, before: None, after: None };
                    if effect != Effect::Unchanged {
                        self.change(batch, &write.op, current.as_ref(), next, made)?;
                        made += 1;
                    }
                    outcome.before = current.map(|current| current.stored);
                    outcome.after = match (&write.op, effect) {
                        (_, Effect::Unchanged) => outcome.before.clone(),
                        (Op::Put { rule, .. }, _) => Some(Stored { rule: rule.clone(), version: next }),
                        (Op::Delete { .. }, _) => None,
                    };
                    results.push(outcome);
                }
            }
            if failures.len() == MOST_FAILURES {
                break;
            }
        }
        if !failures.is_empty() {
            return Err(Refusal::Batch(WriteError::Failed(failures)));
        }
        Ok(Written { version: if made > 0 { next } else { version }, results })
    }

    /// Makes one change and logs it.
    fn change(
        &mut self,
        batch: &Batch,
        op: &Op,
        current: Option<&Current>,
        version: u64,
        seq: i64,
    ) -> Result<(), Refusal> {
        let version = version.cast_signed();
        let before = current.map(|current| &current.stored.rule);
        let was_pattern = current.is_some_and(|current| current.pattern);
        let (rule, after, pattern) = match op {
            Op::Put { rule, pattern } => {
                let body = rows::body(rule)?;
                self.put.execute((&rule.id, &rule.limit, &rule.key, pattern, &body, version))?;
                (Some(rule), Some(body), *pattern)
            }
            Op::Delete { id } => {
                self.delete.execute([id])?;
                (before, None, false)
            }
        };
        let name = |part: fn(&Rule) -> &String| rule.map_or("", |rule| part(rule).as_str());
        self.log.execute((
            version,
            seq,
            op.id(),
            name(|rule| &rule.limit),
            name(|rule| &rule.key),
            pattern || was_pattern,
            current.map(|current| &current.body),
            after,
            i64::try_from(batch.at).unwrap_or(i64::MAX),
            &batch.actor,
        ))?;
        Ok(())
    }

    fn current(&mut self, id: &str) -> Result<Option<Current>, Refusal> {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get(2)?));
        let Some((body, version, pattern)) = self.find.query_row([id], read).optional()? else {
            return Ok(None);
        };
        let body: String = body;
        let stored = Stored { rule: rows::rule(id, &body)?, version: version.cast_unsigned() };
        Ok(Some(Current { stored, body, pattern }))
    }

    /// Forgets the oldest changes.
    fn trim(&self) -> rusqlite::Result<()> {
        let newest: i64 = self.connection.query_row("SELECT max(n) FROM changes", (), |row| row.get(0))?;
        let last = newest - KEPT_CHANGES;
        let version: Option<i64> =
            self.connection
                .query_row("SELECT max(version) FROM changes WHERE n <= ?1", [last], |row| row.get(0))?;
        if let Some(version) = version {
            self.connection.execute("DELETE FROM changes WHERE n <= ?1", [last])?;
            set_meta(self.connection, "trimmed", version.cast_unsigned())?;
        }
        Ok(())
    }
}

/// What a change does to the rule as it is, or why it may not.
fn judge(write: &Write, current: Option<&Current>) -> Result<Effect, FailureKind> {
    let stored = current.map(|current| &current.stored);
    if !write.precondition.holds(stored) {
        return Err(FailureKind::PreconditionFailed(stored.cloned().map(Box::new)));
    }
    match (&write.op, current) {
        (Op::Put { .. }, None) => Ok(Effect::Created),
        (Op::Put { rule, pattern }, Some(current)) => {
            let same = current.stored.rule == *rule && current.pattern == *pattern;
            Ok(if same { Effect::Unchanged } else { Effect::Replaced })
        }
        (Op::Delete { .. }, Some(_)) => Ok(Effect::Deleted),
        (Op::Delete { .. }, None) => Err(FailureKind::NotFound),
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_rules::{Changes, Precondition};

    use super::*;
    use crate::{RuleFile, queries};

    fn put(id: &str, precondition: Precondition) -> Write {
        Write {
            op: Op::Put { rule: Rule { id: id.into(), ..Rule::default() }, pattern: false },
            precondition,
        }
    }

    #[test]
    fn batches_of_one_transaction_succeed_and_fail_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.db");
        drop(RuleFile::open(&path).unwrap());
        let connection = Connection::open(&path).unwrap();
        let batches = [
            (false, vec![put("a", Precondition::None)]),
            (false, vec![put("b", Precondition::None), put("a", Precondition::Absent)]),
            (true, vec![put("c", Precondition::None)]),
            (false, vec![put("d", Precondition::None), put("a", Precondition::Version(vec![1]))]),
        ];
        let batches =
            batches.map(|(dry_run, changes)| BatchJob(Batch { dry_run, changes, ..Batch::default() }));
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let (answers, changed) =
            BatchJob::make(&mut Statements::prepare(&connection).unwrap(), &batches.each_ref()).unwrap();
        connection.execute_batch("COMMIT").unwrap();
        let versions: Vec<_> =
            answers.iter().map(|answer| answer.as_ref().ok().map(|written| written.version)).collect();
        assert_eq!((versions, changed), (vec![Some(1), None, Some(2), Some(2)], true));

        let rules = queries::page(&connection, None, None, None, 10).unwrap();
        let rules: Vec<_> = rules.into_iter().map(Result::unwrap).collect();
        let rules: Vec<_> = rules.iter().map(|stored| (stored.rule.id.as_str(), stored.version)).collect();
        assert_eq!(rules, [("a", 1), ("d", 2)]);
        let Changes::List(changes) = queries::changes(&connection, 0, 10).unwrap() else { panic!("trimmed") };
        assert_eq!(changes.len(), 2);
        assert_eq!(queries::head(&connection).unwrap().version, 2);
    }
}
