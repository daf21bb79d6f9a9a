//! The most frequent keys of a stream, in a fixed amount of memory (Space-Saving: Metwally, Agrawal, El Abbadi, "Efficient
//! computation of frequent and top-k elements in data streams", 2005).
//!
//! Of N requests in a summary of k places, every key with more than N/k requests has a place, and the count of a place is at
//! most N/k too high.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use sluicegate_route::keys::{Fingerprint, KeyText};

/// The count of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The key.
    pub key: Fingerprint,
    /// The key in full; empty for requests without the key.
    pub text: KeyText,
    /// Its requests, or more.
    pub count: u64,
    /// By how much `count` may be too high.
    pub error: u64,
}

/// A summary of a bounded number of keys.
#[derive(Clone, Debug)]
pub struct Summary {
    capacity: usize,
    /// Whether a key has lost its place to another one.
    has_forgotten: bool,
    places: Vec<Counted>,
    /// The index of the place of each key.
    by_key: HashMap<u64, u32, BuildHasherDefault<AsItIs>>,
    /// Indices of places, a heap by count: the first has the smallest.
    heap: Vec<u32>,
    /// Where in the heap each place is.
    position: Vec<u32>,
}

/// A hasher of fingerprints, which are hashes already.
#[derive(Clone, Debug, Default)]
pub struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

impl Summary {
    /// A summary of at most so many keys.
    pub fn new(capacity: usize) -> Self {
        let (places, heap, position) = (Vec::new(), Vec::new(), Vec::new());
        Self { capacity, has_forgotten: false, places, by_key: HashMap::default(), heap, position }
    }

    /// Counts a request of a key. `text` is the key in full. `may_grow` is asked for one more place.
    #[inline]
    pub fn count(&mut self, key: Fingerprint, text: &KeyText, may_grow: impl FnOnce(usize) -> bool) {
        match self.by_key.get(&key.get()) {
            Some(index) => {
                let index = *index;
                self.places[index as usize].count += 1;
                self.sink(self.position[index as usize] as usize);
            }
            None => self.enter(key, text, may_grow),
        }
    }

    /// Gives a new key a free place, or the place of the key with the smallest count.
    #[inline(never)]
    fn enter(&mut self, key: Fingerprint, text: &KeyText, may_grow: impl FnOnce(usize) -> bool) {
        if self.places.len() < self.capacity && may_grow(self.places.len()) {
            let index = self.places.len() as u32; // there are some thousands at most
            self.places.push(Counted { key, text: text.clone(), count: 1, error: 0 });
            self.by_key.insert(key.get(), index);
            self.position.push(self.heap.len() as u32);
            self.heap.push(index);
            self.rise(self.heap.len() - 1);
            return;
        }
        let Some(index) = self.heap.first().copied() else { return };
        self.has_forgotten = true;
        let place = &mut self.places[index as usize];
        self.by_key.remove(&place.key.get());
        self.by_key.insert(key.get(), index);
        (place.key, place.error) = (key, place.count);
        place.text.clone_from(text);
        place.count += 1;
        self.sink(0);
    }

    /// The keys with their counts, in no order.
    pub fn places(&self) -> &[Counted] {
        &self.places
    }

    /// The most requests that a key without a place can have had.
    pub fn unseen(&self) -> u64 {
        match self.heap.first() {
            Some(least) if self.has_forgotten => self.places[*least as usize].count,
            _ => 0,
        }
    }

    fn key_at(&self, at: usize) -> u64 {
        self.places[self.heap[at] as usize].count
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.position[self.heap[one] as usize] = one as u32;
        self.position[self.heap[other] as usize] = other as u32;
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.key_at((at - 1) / 2) > self.key_at(at) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    #[inline]
    fn sink(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.heap.len() {
                return;
            }
            let least =
                if right < self.heap.len() && self.key_at(right) < self.key_at(left) { right } else { left };
            if self.key_at(at) <= self.key_at(least) {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn key(number: u64) -> Fingerprint {
        Fingerprint::from_hash((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    proptest! {
        /// Counts are at most `error` too high, never too low, and who is frequent has a place.
        #[test]
        fn counts_are_bounds(requests in proptest::collection::vec(0..60_u64, 0..3_000), capacity in 1..40_usize) {
            let mut summary = Summary::new(capacity);
            let mut truth: BTreeMap<u64, u64> = BTreeMap::new();
            for number in &requests {
                let number = number * number / 60; // small numbers are more frequent
                summary.count(key(number), &KeyText::from_slice(&number.to_be_bytes()), |_| true);
                *truth.entry(number).or_default() += 1;
            }
            prop_assert!(summary.places().len() <= capacity);
            let most = requests.len() as u64 / capacity as u64;
            for place in summary.places() {
                let number = u64::from_be_bytes(place.text[..].try_into().unwrap());
                prop_assert_eq!(key(number), place.key);
                let count = truth[&number];
                prop_assert!(place.count - place.error <= count && count <= place.count && place.error <= most);
            }
            for (number, count) in truth {
                let placed = summary.places().iter().any(|place| place.key == key(number));
                prop_assert!(placed || count <= summary.unseen() && summary.unseen() <= most);
            }
        }
    }
}
