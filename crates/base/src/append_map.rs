//! A map that only grows, up to a bound: its values never move, so that they can be borrowed while others are added, and
//! looking one up takes no lock and writes nothing.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of slots of the first table; each further one is twice as large as the one before.
const FIRST: usize = 64;
/// The number of tables: together they have twice as many slots as the largest map has entries.
const TABLES: usize = 11;
/// The number of slots of a table that a key can be in.
const PROBES: usize = 8;

/// A table of slots, each of which is filled once. It is made when the ones before it have no room.
type Table<K, V> = OnceLock<Box<[OnceLock<(K, V)>]>>;

/// A map of at most `MOST` entries.
pub struct AppendMap<K, V, const MOST: usize> {
    tables: [Table<K, V>; TABLES],
    len: AtomicUsize,
    hasher: RandomState,
}

impl<K, V, const MOST: usize> Default for AppendMap<K, V, MOST> {
    fn default() -> Self {
        const { assert!(MOST <= FIRST << (TABLES - 1)) };
        Self {
            tables: [const { OnceLock::new() }; TABLES],
            len: AtomicUsize::new(0),
            hasher: RandomState::new(),
        }
    }
}

impl<K, V, const MOST: usize> AppendMap<K, V, MOST> {
    /// The values of all keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        let tables = self.tables.iter().filter_map(OnceLock::get);
        tables.flatten().filter_map(OnceLock::get).map(|(_, value)| value)
    }
}

impl<K: Clone + Eq + Hash, V, const MOST: usize> AppendMap<K, V, MOST> {
    /// The value of a key, made by `make` if there is none yet; `None` if there are too many. Threads that race may
    /// exceed the bound by their number.
    pub fn get_or_insert(&self, key: &K, make: impl Fn() -> V) -> Option<&V> {
        let hash = self.hasher.hash_one(key) as usize;
        for (number, table) in self.tables.iter().enumerate() {
            let size = FIRST << number;
            let table = table.get_or_init(|| (0..size).map(|_| OnceLock::new()).collect());
            for probe in 0..PROBES {
                let slot = &table[hash.wrapping_add(probe) & (size - 1)];
                if slot.get().is_none() && self.len.load(Ordering::Relaxed) >= MOST {
                    return None; // a key that is there is in no later slot
                }
                let fill = || {
                    self.len.fetch_add(1, Ordering::Relaxed);
                    (key.clone(), make())
                };
                // Another thread may fill the slot with another key.
                let (known, value) = slot.get_or_init(fill);
                if known == key {
                    return Some(value);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_value_of_its_own_up_to_the_bound() {
        let map = AppendMap::<u64, u64, 5_000>::default();
        let kept = map.get_or_insert(&0, || 0).unwrap();
        for key in 0..5_000 {
            assert_eq!(map.get_or_insert(&key, || key), Some(&key));
        }
        for key in 0..5_000 {
            assert_eq!(map.get_or_insert(&key, || unreachable!("it is there")), Some(&key));
        }
        assert_eq!(map.get_or_insert(&5_000, || 1), None);
        assert_eq!(*kept, 0);
    }

    #[test]
    fn threads_agree_on_the_value_of_a_key() {
        let map = AppendMap::<u64, usize, 65_536>::default();
        let fill =
            |number: usize| (0..20_000).map(|key| *map.get_or_insert(&key, || number).unwrap()).collect();
        let values: Vec<Vec<usize>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|number| scope.spawn(move || fill(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(values.iter().all(|of_thread| *of_thread == values[0]));
    }
}
