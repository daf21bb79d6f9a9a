//! What is known of credentials, by a hash of them, so that the next request with one costs a hash.
//!
//! The number of entries is bounded: when there are too many, those that nobody asked for lately go. All workers share a
//! table, as they share counters: clients come on several connections.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};

const SHARDS: usize = 16;

/// A hash that nobody finds a second source for.
pub(super) type Digest = [u8; 32];

/// The hash of a credential.
pub(super) fn hash(bytes: &[u8]) -> Digest {
    let digest = digest(&SHA256, bytes);
    std::array::from_fn(|at| digest.as_ref()[at])
}

/// A bounded table of what is known.
pub(super) struct Remembered<V> {
    shards: [Mutex<Shard<V>>; SHARDS],
    /// Entries of a shard in one generation, of two.
    most: usize,
}

/// When the young ones are too many they become the old ones, and the old ones, of which nobody asked since, go. So
/// room is made without a search.
struct Shard<V> {
    young: HashMap<Digest, V>,
    old: HashMap<Digest, V>,
}

impl<V> Default for Shard<V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<V: Clone> Remembered<V> {
    /// A table of about `most` entries, at least one for each shard.
    pub(super) fn new(most: usize) -> Self {
        Self { shards: Default::default(), most: (most / SHARDS / 2).max(1) }
    }

    /// What is known, however old it is.
    pub(super) fn get(&self, key: &Digest) -> Option<V> {
        let mut shard = self.shard(key);
        if let Some(found) = shard.young.get(key) {
            return Some(found.clone());
        }
        let found = shard.old.remove(key)?;
        shard.insert(*key, found.clone(), self.most);
        Some(found)
    }

    /// Remembers a value, instead of an earlier one.
    pub(super) fn insert(&self, key: Digest, value: V) {
        let mut shard = self.shard(&key);
        shard.old.remove(&key);
        shard.insert(key, value, self.most);
    }

    /// Forgets a value.
    pub(super) fn remove(&self, key: &Digest) {
        let mut shard = self.shard(key);
        shard.young.remove(key);
        shard.old.remove(key);
    }

    fn shard(&self, key: &Digest) -> MutexGuard<'_, Shard<V>> {
        self.shards[usize::from(key[0]) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Shard<V> {
    fn insert(&mut self, key: Digest, value: V, most: usize) {
        if self.young.len() >= most && !self.young.contains_key(&key) {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear(); // and keeps its memory
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_bounded_and_keeps_what_is_asked_for() {
        let table = Remembered::new(64);
        let key = |n: u32| hash(&n.to_be_bytes());
        table.insert(key(0), 0);
        for n in 1..10_000 {
            table.insert(key(n), n);
            assert_eq!(table.get(&key(0)), Some(0), "asked for all the time");
        }
        let known = (0..10_000).filter(|n| table.get(&key(*n)).is_some()).count();
        assert!((16..=64).contains(&known), "{known}");
        table.insert(key(0), 1);
        assert_eq!(table.get(&key(0)), Some(1));
        table.remove(&key(0));
        assert_eq!(table.get(&key(0)), None);
    }
}
