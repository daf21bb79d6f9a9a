//! What is read.

use rusqlite::{Connection, OptionalExtension, Row};
use sluicegate_queue::{Entry, Figures, Id};

use crate::error::QueueError;
use crate::rows::{id, signed, state, unsigned};

/// The columns of an [`entry`], and the queue for the estimate of its place.
const COLUMNS: &str = "messages.id, messages.lim, consumer, owner, state, ordinal, queues.ended, attempts, messages.accepted, \
                       expires, due, messages.ended, reason, answer, size, number";

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let state = state(row, 4)?;
    let ahead = unsigned(row.get(5)?).saturating_sub(unsigned(row.get(6)?));
    Ok(Entry {
        id: id(row, 0)?,
        limit: row.get(1)?,
        consumer: row.get(2)?,
        owner: row.get(3)?,
        state,
        ahead: if state.has_ended() { 0 } else { ahead },
        attempts: u32::try_from(unsigned(row.get(7)?)).unwrap_or(u32::MAX),
        accepted: unsigned(row.get(8)?),
        expires: unsigned(row.get(9)?),
        due: unsigned(row.get(10)?),
        ended: row.get::<_, Option<i64>>(11)?.map(unsigned),
        reason: row.get(12)?,
        answer: row.get(13)?,
        size: unsigned(row.get(14)?),
        number: unsigned(row.get(15)?),
    })
}

/// The message of this name.
pub(crate) fn get(connection: &Connection, id: Id) -> Result<Option<Entry>, QueueError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM messages JOIN queues ON queues.lim = messages.lim WHERE messages.id = ?1"
    );
    Ok(connection.query_row(&sql, [&id.0[..]], entry).optional()?)
}

/// A page of the dead letters of a queue, or of the messages that have not ended: those whose number is above `after`.
pub(crate) fn list(
    connection: &Connection,
    limit: &str,
    failed: bool,
    after: u64,
    max: usize,
) -> Result<Vec<Entry>, QueueError> {
    let states = if failed { "state = 4" } else { "state < 3" };
    let sql = format!(
        "SELECT {COLUMNS} FROM messages JOIN queues ON queues.lim = messages.lim
         WHERE messages.lim = ?1 AND {states}
         AND number > ?2 ORDER BY number LIMIT ?3"
    );
    let mut statement = connection.prepare(&sql)?;
    let entries = statement.query_map((limit, signed(after), signed(max as u64)), entry)?;
    Ok(entries.collect::<rusqlite::Result<_>>()?)
}

/// The figures of all queues, by their limits.
pub(crate) fn figures(connection: &Connection) -> Result<Vec<(String, Figures)>, QueueError> {
    let mut statement = connection.prepare(
        "SELECT lim, length, bytes, failed,
         (SELECT accepted FROM messages WHERE messages.lim = queues.lim AND state < 3 ORDER BY number LIMIT 1)
         FROM queues ORDER BY lim",
    )?;
    let read = |row: &Row<'_>| {
        let figures = Figures {
            length: unsigned(row.get(1)?),
            bytes: unsigned(row.get(2)?),
            oldest: row.get::<_, Option<i64>>(4)?.map(unsigned),
            failed: unsigned(row.get(3)?),
        };
        Ok((row.get(0)?, figures))
    };
    let all = statement.query_map((), read)?;
    Ok(all.collect::<rusqlite::Result<_>>()?)
}

/// Whether messages of a key have to be delivered before a new one: one is due, or with `in_order` one has not ended.
pub(crate) fn has_backlog(
    connection: &Connection,
    limit: &str,
    key: &[u8],
    in_order: bool,
    now: u64,
) -> Result<bool, QueueError> {
    let mut statement = connection.prepare(
        "SELECT 1 FROM messages WHERE lim = ?1 AND key = ?2 AND state < 3 AND (?3 OR (state = 0 AND due <= ?4)) LIMIT 1",
    )?;
    Ok(statement.exists((limit, key, in_order, signed(now)))?)
}
