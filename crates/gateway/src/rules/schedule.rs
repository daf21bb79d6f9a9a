//! What will apply to keys later, which holds while the source of the rules is away.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_limiter::Time;
use smallvec::SmallVec;

/// From these times on these verdicts apply to a key, in the order of the times.
pub(super) type Changes = SmallVec<[(Time, u32); 1]>;

/// The most changes of one key that are known.
pub(super) const MOST_CHANGES: usize = 4;

/// The times at which rules begin or end, by the place of their key in the cache. Keys whose rules have no times take no
/// memory.
#[derive(Debug)]
pub(super) struct Schedule {
    known: Mutex<HashMap<u64, Changes>>,
    most: usize,
}

impl Schedule {
    /// For a cache of at most `max_cached` keys.
    pub(super) fn new(max_cached: usize) -> Self {
        Self { known: Mutex::default(), most: max_cached.saturating_mul(2) }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Changes>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what will apply to a key. If there is no room, what is known of keys that are not cached any more is dropped.
    pub(super) fn note(&self, slot: u64, changes: Changes, is_cached: impl Fn(u64) -> bool) {
        let mut known = self.known();
        if changes.is_empty() {
            known.remove(&slot);
            return;
        }
        if known.len() >= self.most {
            // At most half of them are cached, so this is done for every `most / 2` keys at most.
            known.retain(|slot, _| is_cached(*slot));
        }
        known.insert(slot, changes);
    }

    /// What applies to a key by now; `None` if nothing has changed since its rule was read.
    pub(super) fn now(&self, slot: u64, now: Time) -> Option<u32> {
        let known = self.known();
        let begun = known.get(&slot)?.iter().take_while(|(from, _)| *from <= now);
        begun.last().map(|(_, verdict)| *verdict)
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_limiter::Span;
    use smallvec::smallvec;

    use super::*;

    #[test]
    fn changes_apply_in_their_order_and_their_number_is_bounded() {
        let begin = Time::from_nanos(1_795_000_000_000_000_000);
        let at = |seconds| begin.plus(Span::from_secs(seconds));
        let schedule = Schedule::new(1);
        let cached = |slot: u64| slot == 3;
        schedule.note(1, smallvec![(at(1), 10), (at(60), 0)], cached);
        assert_eq!(
            [0, 1, 59, 60, 99].map(|s| schedule.now(1, at(s))),
            [None, Some(10), Some(10), Some(0), Some(0)]
        );
        schedule.note(3, smallvec![(at(1), 30)], cached);
        schedule.note(5, smallvec![(at(1), 50)], cached);
        let now = [1, 3, 5].map(|slot| schedule.now(slot, at(2)));
        assert_eq!(now, [None, Some(30), Some(50)], "key 1 is not cached any more");
        schedule.note(3, Changes::new(), cached);
        assert_eq!(schedule.now(3, at(2)), None);
    }
}
