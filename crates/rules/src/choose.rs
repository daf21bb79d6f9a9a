//! The total order of rules: which of several applies to a key now, and until when that is known.

use std::cmp::Reverse;
use std::sync::Arc;

use sluicegate_limiter::Time;

use crate::compiled::Compiled;
use crate::key::KeyPart;
use crate::pattern::Exactness;
use crate::patterns::Patterns;
use crate::rule::Stored;

/// What applies to a key.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// The rule; `None` if the limit's own numbers apply.
    pub rule: Option<&'a Arc<Compiled>>,
    /// The answer is valid before this time, the next at which a rule for the key begins or ends; `None` if there is
    /// none.
    pub until: Option<Time>,
}

/// The rule that applies to a key: of all in force that one with the highest priority; then the most exact; then the one
/// that was changed last, which has the highest version; then the one with the smallest id.
///
/// `exact` are the exact rules that name the key: those that are stored under one of its [`spellings`](crate::spellings).
/// `patterns` are the other rules of the same limit.
pub fn choose<'a>(
    exact: &'a [Arc<Compiled>],
    patterns: &'a Patterns,
    key: &[KeyPart<'_>],
    now: Time,
) -> Choice<'a> {
    let matching = patterns.matching(key);
    let candidates = exact.iter().map(|rule| (rule, Exactness::EXACT)).chain(matching);
    let mut until: Option<Time> = None;
    let in_force = candidates.filter(|(rule, _)| {
        until = until.into_iter().chain(rule.next_change(now)).min();
        rule.in_force(now)
    });
    let rule = in_force.max_by_key(|(rule, exactness)| {
        let Stored { rule, version } = &rule.stored;
        (rule.priority, *exactness, *version, Reverse(rule.id.as_str()))
    });
    Choice { rule: rule.map(|(rule, _)| rule), until }
}
