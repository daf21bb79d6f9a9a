//! Rules in a file of one gateway: `rules: {file: rules.db}`. All calls block; they belong on threads that may.
//!
//! | module | |
//! | --- | --- |
//! | `rule_file` | READ FIRST: opening, writing, handing over, closing |
//! | `error` | what can go wrong; what goes in and comes out is in `sluicegate_rules` |
//! | `inspection`, `lock`, `schema` | which files are accepted; one gateway per file; tables, a new file |
//! | `connection`, `rows` | SQLite's settings; a rule as a row |
//! | `queue`, `writer`, `transaction` | batches that wait; the thread that commits them together; one batch |
//! | `readers`, `queries` | two connections that only read, and what they are asked |

mod connection;
mod error;
mod inspection;
mod lock;
mod queries;
mod queue;
mod readers;
mod rows;
mod rule_file;
mod schema;
mod transaction;
mod writer;

pub use sluicegate_rules::{
    Batch, Change, Changes, Effect, Failure, FailureKind, Head, Op, Outcome, Precondition, Write, Written,
};

pub use self::error::{OpenError, ReadError, WriteError};
pub use self::rule_file::RuleFile;
