//! What a batch asks for and what became of it.

use crate::{Rule, Stored};

/// Changes that are made together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Who asks, for the log of changes.
    pub actor: String,
    /// When, in milliseconds since 1970, for the log of changes.
    pub at: u64,
    /// Whether to find out only: everything is done and then undone.
    pub dry_run: bool,
    /// The changes, made in this order: each one sees those before it.
    pub changes: Vec<Write>,
}

/// One change of a batch.
#[derive(Clone, Debug)]
pub struct Write {
    /// What to do.
    pub op: Op,
    /// What must hold for it.
    pub precondition: Precondition,
}

/// What a change does.
#[derive(Clone, Debug)]
pub enum Op {
    /// Creates the rule or replaces the one with its id. A rule that is stored already is left as it is, with its version.
    Put {
        /// The rule.
        rule: Rule,
        /// Whether its key is a pattern; the caller knows the keys of the limit.
        pattern: bool,
    },
    /// Removes a rule, which must exist.
    Delete {
        /// The name of the rule.
        id: String,
    },
}

impl Op {
    /// The rule that it is about.
    pub fn id(&self) -> &str {
        match self {
            Op::Put { rule, .. } => &rule.id,
            Op::Delete { id } => id,
        }
    }
}

/// What must hold for a change, at the moment of the change.
#[derive(Clone, Debug, Default)]
pub enum Precondition {
    /// Nothing.
    #[default]
    None,
    /// There is no rule with the id.
    Absent,
    /// There is one, and it has one of these versions.
    Version(Vec<u64>),
    /// There is one.
    Exists,
}

impl Precondition {
    /// Whether it holds for the rule as it is now; `None` if there is none.
    pub fn holds(&self, current: Option<&Stored>) -> bool {
        match self {
            Precondition::None => true,
            Precondition::Absent => current.is_none(),
            Precondition::Version(versions) => {
                current.is_some_and(|stored| versions.contains(&stored.version))
            }
            Precondition::Exists => current.is_some(),
        }
    }
}

/// A batch that was written, or that could have been if it was a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The version of the store after the batch; of a dry run, the one that it would have. All rules that the batch
    /// changed have this version. It is the version before if nothing changed.
    pub version: u64,
    /// What each change did, in the order of the batch.
    pub results: Vec<Outcome>,
}

/// What one change did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What it did.
    pub effect: Effect,
    /// The rule before.
    pub before: Option<Stored>,
    /// The rule after.
    pub after: Option<Stored>,
}

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// There was no rule with this id.
    Created,
    /// There was another rule with this id.
    Replaced,
    /// The rule was stored already.
    Unchanged,
    /// The rule is gone.
    Deleted,
}

/// Why a change could not be made. Changes after it are judged as if it had not been in the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its place in the batch, from 0.
    pub index: usize,
    /// Why.
    pub kind: FailureKind,
}

/// Why a change could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Its precondition does not hold; with the rule as it is at that place in the batch, or nothing if there is none.
    PreconditionFailed(Option<Box<Stored>>),
    /// There is no rule to delete.
    NotFound,
}
