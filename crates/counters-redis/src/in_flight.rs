//! Costs of calls in flight, which the store may admit at any moment.
//!
//! While the store does not answer, a gateway decides from the last state that it knows. A call that was only delayed may
//! still be admitted by the store, so its cost is taken into account.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluicegate_counters::{CallsInFlight, Fingerprint};
use smallvec::SmallVec;

use super::key_name::StoreKey;

/// The number of locks over which keys are spread.
const SHARDS: usize = 16;

/// The costs of all calls in flight of a gateway, by limit and key.
#[derive(Default)]
pub(super) struct InFlightCosts([Mutex<HashMap<Key, u64>>; SHARDS]);

type Key = (u64, Fingerprint);

/// The costs of one call. They are in flight until this is dropped.
pub(super) struct Call {
    all: Arc<InFlightCosts>,
    costs: SmallVec<[(Key, u64); 2]>,
}

impl InFlightCosts {
    /// Adds the costs of a call.
    pub(super) fn begin<'a>(self: &Arc<Self>, costs: impl Iterator<Item = (&'a StoreKey, u64)>) -> Call {
        let costs: SmallVec<[(Key, u64); 2]> = costs.map(|(key, cost)| (key.id(), cost)).collect();
        for (key, cost) in &costs {
            *self.shard(*key).entry(*key).or_default() += cost;
        }
        Call { all: Arc::clone(self), costs }
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, HashMap<Key, u64>> {
        let shard = &self.0[key.1.get() as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallsInFlight for InFlightCosts {
    fn costs(&self, counters: u64, key: Fingerprint) -> u64 {
        let key = (counters, key);
        self.shard(key).get(&key).copied().unwrap_or(0)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        for (key, cost) in &self.costs {
            let mut shard = self.all.shard(*key);
            if let Entry::Occupied(mut known) = shard.entry(*key) {
                *known.get_mut() = known.get().saturating_sub(*cost);
                if *known.get() == 0 {
                    known.remove();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_limiter::{Concurrency, Quota};

    use super::*;
    use crate::fixture;
    use crate::key_name::Tag;
    use sluicegate_counters::KeyText;

    #[test]
    fn costs_are_under_way_until_their_call_has_ended() {
        let limit = std::sync::Arc::new(fixture::limit(
            Quota::Concurrency(Concurrency::new(1).expect("a limit"), 1),
            10,
            0,
        ));
        let (all, key) = (Arc::new(InFlightCosts::default()), Fingerprint::from_hash(7));
        let store_key = StoreKey { limit: Arc::clone(&limit), key, tag: Tag::of(&KeyText::new()) };
        let call = |cost| all.begin([(&store_key, cost)].into_iter());
        let costs = |key| all.costs(limit.counters.id, key);
        let (one, two) = (call(3), call(4));
        assert_eq!((costs(key), costs(Fingerprint::from_hash(8))), (7, 0));
        drop(one);
        assert_eq!(costs(key), 4);
        drop(two);
        assert_eq!(costs(key), 0);
        assert!(all.0.iter().all(|shard| shard.lock().expect("a lock").is_empty()));
    }
}
