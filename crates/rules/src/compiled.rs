//! A rule whose times and pattern are read.

use sluicegate_limiter::Time;

use crate::check::Mistake;
use crate::pattern::Pattern;
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
