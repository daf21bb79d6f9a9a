//! The total order of rules: which of several applies to a key now, and until when that is known.

use std::cmp::Reverse;
use std::sync::Arc;

use sluicegate_limiter::Time;

use crate::check::Mistake;
use crate::key::KeyPart;
use crate::pattern::{Exactness, Pattern};
use crate::patterns::Patterns;
use crate::rule::Stored;
use crate::times::time_of;

/// A rule with its times and its pattern read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The rule as it is stored.
    pub stored: Stored,
    /// From when on it is in force (inclusive).
    pub from: Option<Time>,
    /// Until when it is in force (exclusive).
    pub until: Option<Time>,
    /// Its pattern; `None` if it is an exact rule.
    pub pattern: Option<Pattern>,
}

/// What applies to a key.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// The rule; `None` if the limit's own numbers apply.
    pub rule: Option<&'a Arc<Compiled>>,
    /// The answer is valid before this time, the next at which a rule for the key begins or ends; `None` if there is
    /// none.
    pub until: Option<Time>,
}

impl Compiled {
    /// Reads the times and the pattern of a rule.
    ///
    /// # Errors
    /// The mistakes that [`Rule::check`](crate::Rule::check) finds; times may have other forms.
    pub fn new(stored: Stored) -> Result<Self, Vec<Mistake>> {
        let rule = &stored.rule;
        rule.check_stored()?;
        let time = |field, text: &Option<String>| {
            time_of(field, text.as_deref()).map_err(|detail| vec![Mistake { field, detail }])
        };
        let (from, until) = (time("from", &rule.from)?, time("until", &rule.until)?);
        let pattern = Pattern::parse(&rule.key);
        Ok(Self { stored, from, until, pattern })
    }

    /// Whether it is in force.
    pub fn in_force(&self, now: Time) -> bool {
        self.from.is_none_or(|from| from <= now) && self.until.is_none_or(|until| now < until)
    }

    /// The next time after `now` at which it begins or ends to be in force.
    pub fn next_change(&self, now: Time) -> Option<Time> {
        [self.from, self.until].into_iter().flatten().filter(|time| *time > now).min()
    }
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
