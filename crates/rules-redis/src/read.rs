//! Questions, each answered by one call.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};
use sluicegate_rules::{Change, Changes, Stored};

use crate::entry;
use crate::error::ReadError;
use crate::names::{Names, random_text};
use crate::news::Position;
use crate::script::{CHANGES, EXACT, HEAD, LIMITS, PATTERNS};
use sluicegate_redis_link::Line;
use sluicegate_redis_link::Script;

/// Answers without a bound on their size may take so many times as long as others.
const UNBOUNDED: u32 = 4;

/// A store as it is asked.
pub(crate) struct Store {
    pub(crate) names: Names,
    pub(crate) line: Arc<Line>,
    /// The longest time for the answer to a question.
    pub(crate) timeout: Duration,
}

/// A rule, or why it cannot be read.
pub(crate) type ReadRule = Result<Stored, ReadError>;

/// Ids, each with its entry.
type Entries = Vec<(String, Vec<u8>)>;

/// The reply about changes: epoch, version, mark, whether they are kept, and ids of the log with fields and values.
type ChangesReply = (String, u64, String, bool, Vec<(String, Vec<Vec<u8>>)>);

/// Changes, and where the store stands.
pub(crate) struct Since {
    /// Where the store stands; no epoch if it has none yet.
    pub(crate) head: Position,
    /// The mark before the first change.
    pub(crate) mark_before: String,
    /// The changes.
    pub(crate) changes: Changes,
}

impl Store {
    /// The longest time for an answer of any size.
    pub(crate) fn long_timeout(&self) -> Duration {
        self.timeout.saturating_mul(UNBOUNDED)
    }

    pub(crate) async fn ask<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: impl Fn(&mut Cmd),
        within: Duration,
    ) -> Result<T, ReadError> {
        read(self.line.call_repeatable(script, keys, arguments, within).await?)
    }

    pub(crate) async fn exact(&self, limit: &str, keys: &[String]) -> Result<Vec<ReadRule>, ReadError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let arguments = |call: &mut Cmd| _ = call.arg(limit).arg(keys);
        let found: Entries =
            self.ask(&EXACT, &[&self.names.rules, &self.names.keys], arguments, self.timeout).await?;
        let mut rules = Vec::with_capacity(found.len());
        for (id, entry) in found {
            let read = entry::stored(&id, &entry).map(|(stored, _)| stored);
            // The index can be of an entry that could not be read when it was replaced.
            let is_asked = |stored: &Stored| stored.rule.limit == limit && keys.contains(&stored.rule.key);
            if read.as_ref().map_or(true, is_asked) {
                rules.push(read);
            }
        }
        Ok(rules)
    }

    pub(crate) async fn patterns(&self) -> Result<(u64, Vec<ReadRule>), ReadError> {
        let keys = [self.names.meta.as_str(), &self.names.patterns];
        let (version, found): (u64, Entries) =
            self.ask(&PATTERNS, &keys, |_| (), self.long_timeout()).await?;
        let rules = found.iter().map(|(id, entry)| Ok(entry::stored(id, entry)?.0));
        Ok((version, rules.collect()))
    }

    pub(crate) async fn limits(&self) -> Result<Vec<String>, ReadError> {
        self.ask(&LIMITS, &[&self.names.ids], |_| (), self.long_timeout()).await
    }

    pub(crate) async fn get(&self, id: &str) -> Result<Option<Stored>, ReadError> {
        let mut get = redis::cmd("HGET");
        get.arg(&self.names.rules).arg(id);
        let entry: Option<Vec<u8>> = read(self.line.command(&get, self.timeout).await?)?;
        entry.map(|entry| Ok(entry::stored(id, &entry)?.0)).transpose()
    }

    pub(crate) async fn count(&self) -> Result<u64, ReadError> {
        let mut count = redis::cmd("HLEN");
        count.arg(&self.names.rules);
        read(self.line.command(&count, self.timeout).await?)
    }

    /// Where the store stands. Gives a new store its epoch.
    pub(crate) async fn head(&self) -> Result<Position, ReadError> {
        let epoch = random_text();
        let arguments = |call: &mut Cmd| _ = call.arg(&epoch);
        let (epoch, version, mark) = self.ask(&HEAD, &[&self.names.meta], arguments, self.timeout).await?;
        Ok(Position { epoch, version, mark })
    }

    /// The changes after a version. If `bounded`, a version with more than `most` changes counts as trimmed.
    pub(crate) async fn since(&self, since: u64, most: usize, bounded: bool) -> Result<Since, ReadError> {
        let most = most.min(1_000_000); // more than are kept
        let arguments = |call: &mut Cmd| _ = call.arg(since).arg(most).arg(u8::from(bounded));
        let keys = [self.names.meta.as_str(), &self.names.log];
        let (epoch, version, mark, kept, entries): ChangesReply =
            self.ask(&CHANGES, &keys, arguments, self.long_timeout()).await?;
        let mark_before = entries.first().map_or(&[][..], |(_, fields)| value(fields, b"p"));
        let mark_before = String::from_utf8_lossy(mark_before).into_owned();
        let changes = match kept {
            false => Changes::Trimmed,
            true => Changes::List(
                entries.iter().map(|(id, fields)| change(id, fields)).collect::<Result<_, _>>()?,
            ),
        };
        Ok(Since { head: Position { epoch, version, mark }, mark_before, changes })
    }
}

/// A reply as what it should be.
///
/// # Errors
/// If it is something else.
pub(crate) fn read<T: FromRedisValue>(reply: Value) -> Result<T, ReadError> {
    T::from_redis_value(reply)
        .map_err(|error| ReadError::Refused(format!("an answer of another form: {error}")))
}

/// The value of a field among fields and values.
fn value<'f>(fields: &'f [Vec<u8>], name: &[u8]) -> &'f [u8] {
    let mut pairs = fields.chunks_exact(2);
    pairs.find(|pair| pair[0] == name).map_or(&[], |pair| &pair[1])
}

fn change(id: &str, fields: &[Vec<u8>]) -> Result<Change, ReadError> {
    let wrong = |detail: &str| ReadError::Content { id: format!("change {id}"), detail: detail.to_owned() };
    let numbers =
        id.split_once('-').and_then(|(version, seq)| Some((version.parse().ok()?, seq.parse().ok()?)));
    let (version, seq) = numbers.ok_or_else(|| wrong("its number is none"))?;
    let rule = |name: &[u8]| match value(fields, name) {
        [] => Ok(None),
        tail => entry::of_tail("", tail).map(Some).map_err(|error| match error {
            ReadError::Content { detail, .. } => wrong(&detail),
            other => other,
        }),
    };
    let (before, after) = (rule(b"b")?, rule(b"a")?);
    let pattern = [&before, &after].into_iter().flatten().any(|(_, pattern)| *pattern);
    Ok(Change {
        version,
        seq,
        pattern,
        before: before.map(|(rule, _)| rule),
        after: after.map(|(rule, _)| rule),
        at: std::str::from_utf8(value(fields, b"t")).ok().and_then(|at| at.parse().ok()).unwrap_or(0),
        actor: String::from_utf8_lossy(value(fields, b"w")).into_owned(),
    })
}
