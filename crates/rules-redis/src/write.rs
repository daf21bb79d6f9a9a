//! One batch: how it is sent and what the script answers.

use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};
use sluicegate_rules::{
    Batch, Effect, Failure, FailureKind, Op, Outcome, Precondition, Stored, Write, Written,
};
use tokio::time::Instant;

use crate::entry;
use crate::error::{MAX_CHANGES, ReadError, WriteError};
use crate::names::random_text;
use crate::read::Store;
use crate::script::WRITE;
use sluicegate_redis_link::CallError;

/// A batch with more changes is sent in pieces before it is made.
const STAGED_FROM: usize = 5_000;
/// So many changes are in a piece.
const PIECE: usize = 1_000;
/// The time that a change of a batch adds to the longest time for the answer.
const TIME_PER_CHANGE: Duration = Duration::from_micros(100);
/// The seconds after which a batch that was not sent to its end is forgotten.
const STAGED_SECONDS: u64 = 60;

/// What the script is told of a change: id, precondition, limit, key, and the entry without its version.
type ChangeArguments<'b> = [std::borrow::Cow<'b, str>; 5];

impl Store {
    pub(crate) async fn write(&self, batch: Batch) -> Result<Written, WriteError> {
        let count = batch.changes.len();
        if count > MAX_CHANGES {
            return Err(WriteError::TooLarge(count));
        }
        let changes: Vec<ChangeArguments<'_>> =
            batch.changes.iter().map(change_arguments).collect::<Result<_, _>>()?;
        let within = self.timeout + TIME_PER_CHANGE.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        let staged = match count > STAGED_FROM {
            true => Some(self.stage(&changes, within).await?),
            false => None,
        };
        let names = &self.names;
        let mut keys =
            vec![names.meta.as_str(), &names.rules, &names.ids, &names.keys, &names.patterns, &names.log];
        keys.extend(staged.as_deref());
        let (epoch, mark) = (random_text(), random_text());
        let arguments = |call: &mut Cmd| {
            call.arg(if batch.dry_run { "dry" } else { "write" }).arg(&epoch).arg(&mark);
            call.arg(batch.at).arg(&batch.actor).arg(&names.channel).arg(count);
            if staged.is_none() {
                changes.iter().flatten().for_each(|text| _ = call.arg(text.as_bytes()));
            }
        };
        let answered = self.line.call_once(&WRITE, &keys, arguments, within).await;
        let answered = answered.map_err(|error| match error {
            // Nothing can have been written.
            CallError::Unanswered(why) if batch.dry_run => CallError::Unsent(why),
            error => error,
        });
        drop(changes);
        answer(answered?, batch)
    }

    /// Sends the changes ahead. Returns the name of the list.
    async fn stage(&self, changes: &[ChangeArguments<'_>], within: Duration) -> Result<String, WriteError> {
        let (name, until) = (self.names.staged(), Instant::now() + within);
        for piece in changes.chunks(PIECE) {
            let mut push = redis::cmd("RPUSH");
            push.arg(&name);
            piece.iter().flatten().for_each(|text| _ = push.arg(text.as_bytes()));
            let mut expire = redis::cmd("EXPIRE");
            expire.arg(&name).arg(STAGED_SECONDS);
            for command in [push, expire] {
                let left = until.saturating_duration_since(Instant::now());
                // A piece that is there twice is noticed: the list is too long.
                self.line.command(&command, left).await.map_err(|error| match error {
                    CallError::Unanswered(why) => WriteError::Away(why),
                    error => error.into(),
                })?;
            }
        }
        Ok(name)
    }
}

fn change_arguments(write: &Write) -> Result<ChangeArguments<'_>, WriteError> {
    let (limit, key, tail) = match &write.op {
        Op::Put { rule, pattern } => (
            rule.limit.as_str(),
            rule.key.as_str(),
            entry::tail(rule, *pattern).map_err(WriteError::Unreadable)?,
        ),
        Op::Delete { .. } => ("", "", String::new()),
    };
    let id = write.op.id();
    if id.is_empty() || id.contains('\0') || limit.contains('\0') {
        return Err(WriteError::Unstorable(id.to_owned()));
    }
    let precondition = match &write.precondition {
        Precondition::None => "".into(),
        Precondition::Absent => "absent".into(),
        Precondition::Exists => "exists".into(),
        Precondition::Version(versions) => {
            versions.iter().fold(String::from(","), |text, version| text + &version.to_string() + ",").into()
        }
    };
    Ok([id.into(), precondition, limit.into(), key.into(), tail.into()])
}

fn answer(reply: Value, batch: Batch) -> Result<Written, WriteError> {
    let form =
        |error: redis::ParsingError| WriteError::Refused(format!("an answer of another form: {error}"));
    let Value::Array(mut parts) = reply else { return Err(WriteError::Refused("no answer".into())) };
    let kind = String::from_redis_value(parts.first().cloned().unwrap_or_default()).map_err(form)?;
    let mut part = |index: usize| parts.get_mut(index).map(std::mem::take).unwrap_or_default();
    match kind.as_str() {
        "written" => {
            let version = u64::from_redis_value(part(1)).map_err(form)?;
            let results = Vec::<Vec<u8>>::from_redis_value(part(2)).map_err(form)?;
            let outcomes = batch.changes.into_iter().zip(results);
            let results = outcomes.map(|(write, result)| outcome(write.op, &result, version)).collect();
            Ok(Written { version, results })
        }
        "failed" => {
            let failures = Vec::<Vec<Value>>::from_redis_value(part(1)).map_err(form)?;
            let failures = failures.into_iter().map(|failure| failed(failure, &batch));
            Err(WriteError::Failed(failures.collect::<Result<_, _>>()?))
        }
        "lost" => Err(WriteError::Away("Redis lost a part of the batch before it was made".into())),
        other => Err(WriteError::Refused(format!("an answer of another form: {other}"))),
    }
}

/// What one change did: a letter and the entry before it.
fn outcome(op: Op, result: &[u8], version: u64) -> Outcome {
    let (effect, entry) = match result {
        [b'c', ..] => (Effect::Created, &[][..]),
        [b'u', entry @ ..] => (Effect::Unchanged, entry),
        [b'd', entry @ ..] => (Effect::Deleted, entry),
        [_, entry @ ..] => (Effect::Replaced, entry),
        [] => (Effect::Replaced, &[][..]),
    };
    // What cannot be read may be replaced and deleted: that is how to get rid of it.
    let before = entry::stored(op.id(), entry).ok().map(|(stored, _)| stored);
    let after = match (op, effect) {
        (_, Effect::Unchanged) => before.clone(),
        (Op::Put { rule, .. }, _) => Some(Stored { rule, version }),
        (Op::Delete { .. }, _) => None,
    };
    Outcome { effect, before, after }
}

/// Why one change could not be made: its place from 1, the kind, and the entry if there is one.
fn failed(failure: Vec<Value>, batch: &Batch) -> Result<Failure, WriteError> {
    let wrong = || WriteError::Refused("an answer of another form: a failure".into());
    let mut failure = failure.into_iter();
    let index = match failure.next() {
        Some(Value::Int(place)) => usize::try_from(place).ok().and_then(|place| place.checked_sub(1)),
        _ => None,
    };
    let (index, kind) = (index.ok_or_else(wrong)?, failure.next().ok_or_else(wrong)?);
    let write = batch.changes.get(index).ok_or_else(wrong)?;
    let kind = match (kind, failure.next()) {
        (Value::BulkString(kind), _) if kind == b"absent" => FailureKind::NotFound,
        (_, Some(Value::BulkString(entry))) => {
            let current: Result<_, ReadError> = entry::stored(write.op.id(), &entry);
            FailureKind::PreconditionFailed(Some(Box::new(current.map_err(WriteError::Unreadable)?.0)))
        }
        _ => FailureKind::PreconditionFailed(None),
    };
    Ok(Failure { index, kind })
}
