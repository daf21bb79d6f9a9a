//! Keys that have a quota of their own, apart from the slots of the others.
//!
//! The word of a slot counts in units of the quota of its table, so a state under another quota cannot be stored there. It is
//! kept with its quota, under the lock of the shard that the key is in.

use std::hash::{BuildHasherDefault, Hasher};

use indexmap::IndexMap;
use sluicegate_limiter::Time;

use super::state_codec::StateCodec;

/// The states of the keys of one shard that have a quota of their own. Most limits have none.
#[allow(
    clippy::box_collection,
    reason = "most tables have none, and a lock and all behind it fit two cache lines"
)]
pub(super) struct OwnQuotas<A: StateCodec>(Option<Box<Keys<A>>>);

/// The keys, and the one that is swept next.
struct Keys<A: StateCodec> {
    states: IndexMap<u64, OwnState<A>, BuildHasherDefault<FingerprintHasher>>,
    hand: usize,
}

/// A state with the quota under which it counts.
pub(super) struct OwnState<A: StateCodec> {
    pub(super) algorithm: A,
    pub(super) state: A::State,
}

/// A fingerprint is a hash already.
#[derive(Default)]
struct FingerprintHasher(u64);

impl Hasher for FingerprintHasher {
    fn write(&mut self, _bytes: &[u8]) {}

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl<A: StateCodec> Default for OwnQuotas<A> {
    fn default() -> Self {
        Self(None)
    }
}

impl<A: StateCodec> OwnQuotas<A> {
    #[inline]
    pub(super) fn get(&self, key: u64) -> Option<&OwnState<A>> {
        self.0.as_ref()?.states.get(&key)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut OwnState<A>> {
        self.0.as_mut()?.states.get_mut(&key)
    }

    #[inline]
    pub(super) fn contains(&self, key: u64) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn insert(&mut self, key: u64, algorithm: A, state: A::State) {
        let new = || Box::new(Keys { states: IndexMap::default(), hand: 0 });
        self.0.get_or_insert_with(new).states.insert(key, OwnState { algorithm, state });
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<OwnState<A>> {
        let keys = self.0.as_mut()?;
        let removed = keys.states.swap_remove(&key);
        if keys.states.is_empty() {
            self.0 = None;
        }
        removed
    }

    /// Removes all keys; returns their number.
    pub(super) fn clear(&mut self) -> usize {
        self.0.take().map_or(0, |keys| keys.states.len())
    }

    /// The number of keys, and of those that owe something at `now`.
    pub(super) fn count(&self, now: Time) -> (usize, usize) {
        let Some(keys) = &self.0 else { return (0, 0) };
        let owes = |own: &&OwnState<A>| !own.algorithm.is_idle(&own.state, now);
        (keys.states.len(), keys.states.values().filter(owes).count())
    }

    /// Visits the next `most` keys and removes those that owe nothing; returns how many were removed.
    pub(super) fn sweep(&mut self, most: usize, now: Time) -> usize {
        let Some(keys) = &mut self.0 else { return 0 };
        let before = keys.states.len();
        for _ in 0..most.min(before) {
            if keys.hand >= keys.states.len() {
                keys.hand = 0;
            }
            match keys.states.get_index(keys.hand) {
                // The last key takes the place of the removed one and is visited next.
                Some((_, own)) if own.algorithm.is_idle(&own.state, now) => {
                    keys.states.swap_remove_index(keys.hand);
                }
                _ => keys.hand += 1,
            }
        }
        let removed = before - keys.states.len();
        if keys.states.is_empty() {
            self.0 = None;
        }
        removed
    }
}
