//! Places of concurrency limits.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use sluicegate_counters::Fingerprint;

use super::key_name::StoreKey;

/// Places of one key.
pub(super) struct Places {
    pub(super) key: StoreKey,
    pub(super) places: u64,
}

/// Merges the places of each key: a call reads all of its keys before it changes any.
pub(super) fn by_key(places: Vec<Places>) -> Vec<Places> {
    let mut by_key: HashMap<(u64, Fingerprint), Places> = HashMap::new();
    for freed in places {
        match by_key.entry(freed.key.id()) {
            Entry::Occupied(mut same) => same.get_mut().places += freed.places,
            Entry::Vacant(new) => _ = new.insert(freed),
        }
    }
    by_key.into_values().collect()
}
