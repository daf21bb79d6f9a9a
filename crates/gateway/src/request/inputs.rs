//! What matching takes besides the request.

use sluicegate_limiter::Time;

use crate::rules::RuleAnswer;
use crate::snapshot::Snapshot;
use sluicegate_auth::Answers;

/// What matching takes besides the request. The answers to its steps are added here.
pub struct Inputs<'s> {
    /// The configuration in force.
    pub snapshot: &'s Snapshot,
    /// The time of the next step.
    pub now: Time,
    /// What services outside, or a log, say of the identity of the sender.
    pub answers: Answers,
    /// The rules of its keys that had to be loaded.
    pub rules: Vec<RuleAnswer>,
    /// Whether keys whose rules are not known are taken to have none.
    pub without_rules: bool,
}
