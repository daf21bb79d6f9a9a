//! Rules in a file of one gateway: `rules: {file: rules.db}`. All calls block; they belong on threads that may.
//!
//! | module | |
//! | --- | --- |
//! | `rule_file` | READ FIRST: opening, writing, handing over, closing |
//! | `error` | what can go wrong; what goes in and comes out is in `sluicegate_rules` |
//! | `schema`, `rows` | the tables; a rule as a row |
//! | `transaction`, `queries` | a batch that is written; what is read |
//!
//! The file itself is a [`SqliteFile`](sluicegate_sqlite_file::SqliteFile).

mod error;
mod queries;
mod rows;
mod rule_file;
mod schema;
mod transaction;

pub use sluicegate_rules::{
    Batch, Change, Changes, Effect, Failure, FailureKind, Head, Op, Outcome, Precondition, Write, Written,
};

pub use self::error::{ReadError, WriteError};
pub use self::rule_file::RuleFile;
pub use sluicegate_sqlite_file::OpenError;
