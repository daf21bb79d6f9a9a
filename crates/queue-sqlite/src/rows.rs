//! Values of columns.

use rusqlite::Row;
use rusqlite::types::{FromSqlError, Type};
use sluicegate_queue::{Id, State};

/// A number that is never negative. A negative one, which only another program can have written, is read as zero.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A number that SQLite can store; the largest one in place of larger ones.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn id(row: &Row<'_>, column: usize) -> rusqlite::Result<Id> {
    row.get(column).map(Id)
}

pub(crate) fn state(row: &Row<'_>, column: usize) -> rusqlite::Result<State> {
    let number: i64 = row.get(column)?;
    let state = u8::try_from(number).ok().and_then(State::of);
    let wrong = || FromSqlError::OutOfRange(number);
    state.ok_or_else(|| rusqlite::Error::FromSqlConversionFailure(column, Type::Integer, Box::new(wrong())))
}
