//! A flat table: one slot a key, a 64-bit fingerprint beside its state, linear probing.

/// The fewest slots there are.
const SMALLEST: usize = 8;

/// Fingerprints and states. A fingerprint is a keyed hash, so its low bits are as good a place as any.
#[derive(Debug)]
pub(super) struct Slots<S> {
    slots: Vec<Slot<S>>,
    used: usize,
}

#[derive(Debug, Default)]
struct Slot<S> {
    /// Zero where the slot is free.
    key: u64,
    state: S,
}

impl<S: Default> Slots<S> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), used: 0 }
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// The slots, free ones too: the bound of a walk over indices.
    pub(super) fn size(&self) -> usize {
        self.slots.len()
    }

    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    /// The index of `key`, good until the next change.
    pub(super) fn find(&self, key: u64) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = key as usize & self.mask();
        loop {
            match self.slots[at].key {
                0 => return None,
                found if found == key => return Some(at),
                _ => at = (at + 1) & self.mask(),
            }
        }
    }

    /// Adds `key`, which is not there yet, and returns its index.
    pub(super) fn insert(&mut self, key: u64, state: S) -> usize {
        debug_assert!(key != 0 && self.find(key).is_none());
        // Three quarters full is where probes begin to be long.
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        self.used += 1;
        self.place(Slot { key, state })
    }

    fn place(&mut self, slot: Slot<S>) -> usize {
        let mut at = slot.key as usize & self.mask();
        while self.slots[at].key != 0 {
            at = (at + 1) & self.mask();
        }
        self.slots[at] = slot;
        at
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(SMALLEST);
        let old = std::mem::take(&mut self.slots);
        self.slots.resize_with(size, Slot::default);
        for slot in old.into_iter().filter(|slot| slot.key != 0) {
            self.place(slot);
        }
    }

    /// The state at `index`, if the slot is taken.
    pub(super) fn get(&self, index: usize) -> Option<&S> {
        self.slots.get(index).filter(|slot| slot.key != 0).map(|slot| &slot.state)
    }

    /// The state at `index`, if the slot is taken.
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut S> {
        self.slots.get_mut(index).filter(|slot| slot.key != 0).map(|slot| &mut slot.state)
    }

    /// All states, in no order.
    pub(super) fn states_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.slots.iter_mut().filter(|slot| slot.key != 0).map(|slot| &mut slot.state)
    }

    /// Removes all keys; how many there were.
    pub(super) fn clear(&mut self) -> usize {
        self.slots.clear();
        std::mem::take(&mut self.used)
    }

    /// Removes the key at `index` and closes the gap, so that later keys are still found. The slot may then
    /// hold another key.
    pub(super) fn remove(&mut self, index: usize) {
        self.slots[index] = Slot::default();
        self.used -= 1;
        let mask = self.mask();
        let (mut gap, mut at) = (index, (index + 1) & mask);
        while self.slots[at].key != 0 {
            let home = self.slots[at].key as usize & mask;
            // It may move into the gap unless its home lies behind the gap.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.slots.swap(gap, at);
                gap = at;
            }
            at = (at + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Keys that crowd the same slots, added and removed at random, are as in a map of the standard library.
        #[test]
        fn as_a_map(steps in prop::collection::vec((1_u64..40, any::<bool>(), any::<u32>()), 1..400)) {
            let mut slots = Slots::new();
            let mut map = HashMap::new();
            for (key, remove, value) in steps {
                let key = (key % 5) << 40 | key; // few homes
                match (slots.find(key), remove) {
                    (Some(at), true) => { slots.remove(at); map.remove(&key); }
                    (Some(at), false) => { *slots.get_mut(at).unwrap() = value; map.insert(key, value); }
                    (None, true) => {}
                    (None, false) => { slots.insert(key, value); map.insert(key, value); }
                }
                prop_assert_eq!(slots.used(), map.len());
                for (key, value) in &map {
                    let at = slots.find(*key);
                    prop_assert_eq!(at.and_then(|at| slots.get(at)), Some(value));
                }
            }
        }
    }
}
