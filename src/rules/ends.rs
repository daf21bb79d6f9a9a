//! When the rules of keys end, which holds while the source of the rules is away.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_limiter::Time;

/// The ends of rules, by the place of their key in the cache. Keys whose rule has no end take no memory.
#[derive(Debug)]
pub(super) struct Ends {
    known: Mutex<HashMap<u64, Time>>,
    most: usize,
}

impl Ends {
    /// At most so many are kept.
    pub(super) fn new(most: usize) -> Self {
        Self { known: Mutex::default(), most }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Time>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes until when the rule of a key is in force.
    pub(super) fn note(&self, slot: u64, until: Option<Time>, now: Time) {
        let mut known = self.known();
        let Some(until) = until else {
            known.remove(&slot);
            return;
        };
        if known.len() >= self.most && !known.contains_key(&slot) {
            known.retain(|_, until| *until > now);
        }
        if known.len() < self.most || known.contains_key(&slot) {
            known.insert(slot, until);
        }
    }

    /// Whether the rule that was last known of a key has ended.
    pub(super) fn has_ended(&self, slot: u64, now: Time) -> bool {
        self.known().get(&slot).is_some_and(|until| *until <= now)
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_limiter::Span;

    use super::*;

    #[test]
    fn ends_are_known_and_their_number_is_bounded() {
        let now = Time::from_nanos(1_795_000_000_000_000_000);
        let (soon, late) = (now.plus(Span::SECOND), now.plus(Span::from_secs(60)));
        let ends = Ends::new(2);
        ends.note(1, Some(soon), now);
        ends.note(2, Some(late), now);
        ends.note(3, Some(soon), now);
        assert!(!ends.has_ended(1, now) && ends.has_ended(1, soon) && !ends.has_ended(2, soon));
        assert!(!ends.has_ended(3, late), "there was no room");
        ends.note(3, Some(late), soon);
        assert!(ends.has_ended(3, late) && !ends.has_ended(1, late), "what has ended made room");
        ends.note(3, None, soon);
        assert!(!ends.has_ended(3, late));
    }
}
