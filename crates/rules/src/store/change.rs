//! The log of changes, and where it ends.

use crate::Rule;

/// Where the store stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Of this store, chosen at random when it was created: versions of another epoch mean nothing.
    pub epoch: String,
    /// How many batches have changed something.
    pub version: u64,
}

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The version that its batch gave the store.
    pub version: u64,
    /// Its place among the changes of that version, from 0.
    pub seq: u64,
    /// Whether the rule before or the rule after is a pattern, so that it may be in force for many keys.
    pub pattern: bool,
    /// The rule before; nothing if it was created. It may be of another limit or key than the rule after.
    pub before: Option<Rule>,
    /// The rule after; nothing if it was deleted.
    pub after: Option<Rule>,
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// Who asked for it.
    pub actor: String,
}

/// What changed since a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// The changes in order; all changes of a version, or none. Empty if there is nothing newer.
    List(Vec<Change>),
    /// Some are not kept any more, or the store never had the version that was asked for: everything has to be read anew.
    Trimmed,
}
