//! Where rules are kept: a file, or Redis. These functions block, because the file does.

use std::fmt::Display;
use std::sync::Arc;

use arc_swap::ArcSwap;
use sluicegate_rules::{Batch, Changes, Failure, Stored, Written};
use sluicegate_rules_sqlite::RuleFile;

use super::remote::Remote;

/// Where rules are kept.
pub enum Source {
    /// A file of this gateway. It is opened anew if a successor that it was handed over to has not come.
    File(Arc<ArcSwap<RuleFile>>),
    /// Redis, for several gateways.
    Redis(Arc<Remote>),
    /// In a service, which is only read, and only for single keys. Its URL.
    Service(String),
}

/// Why the rules could not be read, in words for operators.
pub type Unreadable = String;

/// Why changes were not written.
#[derive(Debug)]
pub enum NotWritten {
    /// Changes of the batch could not be made.
    Failed(Vec<Failure>),
    /// The source cannot take more at the moment.
    Busy(String),
    /// The source does not take them, now or for ever.
    Refused(String),
    /// The source has not said whether they are written.
    Unknown(String),
    /// A limit would have too many patterns.
    TooManyPatterns(String),
}

/// A rule, or the id of one that cannot be read and the reason. It hides no other.
pub type ListedRule = Result<Stored, (String, Unreadable)>;

impl Source {
    /// What it is, for operators.
    pub fn describe(&self) -> String {
        match self {
            Self::File(file) => file.load().path().display().to_string(),
            Self::Redis(_) => "redis".to_owned(),
            Self::Service(url) => url.clone(),
        }
    }

    /// Where rules are read and changed, if not here.
    pub fn elsewhere(&self) -> Option<String> {
        match self {
            Self::Service(url) => Some(kept_by(url)),
            _ => None,
        }
    }

    /// The largest batch that may be written.
    pub const fn largest_batch(&self) -> usize {
        match self {
            Self::File(_) => 100_000,
            // Counters in the same server wait while a batch is written: about 0.1 s.
            Self::Redis(_) => 10_000,
            Self::Service(_) => 0,
        }
    }

    /// The rules of a limit whose key is one of `keys`.
    pub fn exact(&self, limit: &str, keys: &[String]) -> Result<Vec<ListedRule>, Unreadable> {
        match self {
            Self::File(file) => file.load().exact(limit, keys).map(listed).map_err(text),
            Self::Redis(redis) => redis.wait_for(redis.rules.exact(limit, keys)).map(listed).map_err(text),
            Self::Service(url) => Err(kept_by(url)),
        }
    }

    /// The limits that have rules.
    pub fn limits(&self) -> Result<Vec<String>, Unreadable> {
        match self {
            Self::File(file) => file.load().limits().map_err(text),
            Self::Redis(redis) => redis.wait_for(redis.rules.limits()).map_err(text),
            Self::Service(_) => Ok(Vec::new()),
        }
    }

    /// The rules for patterns of keys.
    pub fn patterns(&self) -> Result<Vec<ListedRule>, Unreadable> {
        match self {
            Self::File(file) => file.load().patterns().map(|(_, patterns)| listed(patterns)).map_err(text),
            Self::Redis(redis) => {
                let patterns = redis.wait_for(redis.rules.patterns());
                patterns.map(|(_, patterns)| listed(patterns)).map_err(text)
            }
            Self::Service(_) => Ok(Vec::new()),
        }
    }

    /// The rule of this id.
    pub fn get(&self, id: &str) -> Result<Option<Stored>, Unreadable> {
        match self {
            Self::File(file) => file.load().get(id).map_err(text),
            Self::Redis(redis) => redis.wait_for(redis.rules.get(id)).map_err(text),
            Self::Service(url) => Err(kept_by(url)),
        }
    }

    /// A page of rules in the order of their ids: those after `after`, of this limit and key if given.
    pub fn page(
        &self,
        (limit, key): (Option<&str>, Option<&str>),
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<ListedRule>, Unreadable> {
        match self {
            Self::File(file) => file.load().page(limit, key, after, most).map(listed).map_err(text),
            Self::Redis(redis) => {
                redis.wait_for(redis.rules.page(limit, key, after, most)).map(listed).map_err(text)
            }
            Self::Service(url) => Err(kept_by(url)),
        }
    }

    /// The changes after a version, about `most` of them. If one of them cannot be read, they count as not kept: whoever
    /// follows them reads the rules anew.
    pub fn changes(&self, since: u64, most: usize) -> Result<Changes, Unreadable> {
        match self {
            Self::File(file) => readable(file.load().changes(since, most)),
            Self::Redis(redis) => readable(redis.wait_for(redis.rules.changes(since, most))),
            Self::Service(url) => Err(kept_by(url)),
        }
    }

    /// Writes changes, all or none.
    pub fn write(&self, batch: Batch) -> Result<Written, NotWritten> {
        match self {
            Self::File(file) => {
                use sluicegate_rules_sqlite::WriteError;
                file.load().write(batch).map_err(|error| match error {
                    WriteError::Failed(failures) => NotWritten::Failed(failures),
                    WriteError::Busy => NotWritten::Busy(error.to_string()),
                    _ => NotWritten::Refused(error.to_string()),
                })
            }
            Self::Redis(redis) => {
                use sluicegate_rules_redis::WriteError;
                redis.wait_for(redis.rules.write(batch)).map_err(|error| match error {
                    WriteError::Failed(failures) => NotWritten::Failed(failures),
                    WriteError::Unanswered(_) => NotWritten::Unknown(error.to_string()),
                    _ => NotWritten::Refused(error.to_string()),
                })
            }
            Self::Service(url) => Err(NotWritten::Refused(kept_by(url))),
        }
    }
}

fn kept_by(url: &str) -> String {
    format!("the rules of this gateway are kept by {url}, and are read and changed there")
}

/// Rules as they were read, with the ids of those that could not be.
pub(super) fn listed<E: NamesRule>(read: Vec<Result<Stored, E>>) -> Vec<ListedRule> {
    let unreadable = |error: E| (error.rule().to_owned(), error.to_string());
    read.into_iter().map(|read| read.map_err(unreadable)).collect()
}

/// Changes, which are trimmed if one of them cannot be read.
fn readable<E: NamesRule>(changes: Result<Changes, E>) -> Result<Changes, Unreadable> {
    changes.or_else(|error| match error.rule() {
        "" => Err(text(error)),
        _ => Ok(Changes::Trimmed),
    })
}

/// An error that can be of a single rule.
pub(super) trait NamesRule: Display {
    /// The id of that rule; empty if it is of the source.
    fn rule(&self) -> &str;
}

impl NamesRule for sluicegate_rules_sqlite::ReadError {
    fn rule(&self) -> &str {
        match self {
            Self::Content { id, .. } => id,
            _ => "",
        }
    }
}

impl NamesRule for sluicegate_rules_redis::ReadError {
    fn rule(&self) -> &str {
        match self {
            Self::Content { id, .. } => id,
            _ => "",
        }
    }
}

fn text(error: impl Display) -> String {
    error.to_string()
}
