//! The entries of one shard of the cache: a table of fixed size with open addressing, and the choice of what is evicted.

/// What is stored for a key. Times are in the units of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The fingerprint; 0 in a free slot.
    pub(crate) key: u64,
    /// The caller's value.
    pub(crate) verdict: u32,
    /// The generation of the cache when it was stored; of 31 bits.
    pub(crate) generation: u32,
    /// Whether it was asked for since it was considered for eviction.
    pub(crate) used: bool,
    /// When it ends.
    pub(crate) expires: u32,
    /// When the next caller is told to refresh it.
    pub(crate) refresh: u32,
}

/// An entry in memory, all zeros if the slot is free. Plain numbers, so that the memory of a table comes zeroed from the
/// system and is not touched before it is used.
type Slot = [u64; 3];

/// The size of a slot in bytes.
pub(crate) const SLOT_BYTES: usize = size_of::<Slot>();

/// At most so many slots are looked at to find what is evicted.
const MAX_STEPS: usize = 32;

/// A hash table with linear probing and without marks for what was deleted.
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    used: usize,
    capacity: usize,
    /// Where the search for what is evicted goes on.
    hand: usize,
}

impl Entry {
    fn pack(self) -> Slot {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let marked = self.generation << 1 | u32::from(self.used);
        [self.key, pair(self.verdict, marked), pair(self.expires, self.refresh)]
    }

    fn unpack([key, second, third]: Slot) -> Self {
        let (high, low) = (|pair: u64| (pair >> 32) as u32, |pair: u64| pair as u32);
        Self {
            key,
            verdict: high(second),
            generation: low(second) >> 1,
            used: low(second) & 1 == 1,
            expires: high(third),
            refresh: low(third),
        }
    }
}

impl Slots {
    /// A table of at most `capacity` entries, at least one. It has half as many slots more, so that searches are short.
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let slots = vec![[0; 3]; capacity + capacity.div_ceil(2)].into_boxed_slice();
        Self { slots, used: 0, capacity, hand: 0 }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// The bytes that it allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * SLOT_BYTES
    }

    pub(crate) fn get(&self, key: u64) -> Option<Entry> {
        let slot = self.slots[self.find(key)];
        (slot[0] != 0).then(|| Entry::unpack(slot))
    }

    /// Stores the entry in place of one with the same key, or of one that is evicted if the table is full.
    pub(crate) fn set(&mut self, entry: Entry) {
        let mut at = self.find(entry.key);
        if self.slots[at][0] == 0 {
            if self.used == self.capacity {
                self.evict();
                at = self.find(entry.key);
            }
            self.used += 1;
        }
        self.slots[at] = entry.pack();
    }

    /// The slot with the key, or the free one where it belongs. There always is one of the two.
    fn find(&self, key: u64) -> usize {
        let mut at = self.home(key);
        while self.slots[at][0] != key && self.slots[at][0] != 0 {
            at = self.after(at);
        }
        at
    }

    /// Where the search for a key begins.
    fn home(&self, key: u64) -> usize {
        ((u128::from(spread(key) << SHARD_BITS) * self.slots.len() as u128) >> 64) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    /// Frees the slot of an entry that was not asked for since the last time; after [`MAX_STEPS`] slots of any entry.
    fn evict(&mut self) {
        let mut steps = 0;
        loop {
            let at = self.hand;
            self.hand = self.after(at);
            steps += 1;
            if self.slots[at][0] == 0 {
                continue;
            }
            let mut entry = Entry::unpack(self.slots[at]);
            if !entry.used || steps >= MAX_STEPS {
                self.free(at);
                return;
            }
            entry.used = false;
            self.slots[at] = entry.pack();
        }
    }

    /// Frees a slot. Entries behind it move up, so that the search for them does not end at the gap.
    fn free(&mut self, mut gap: usize) {
        let length = self.slots.len();
        let distance = |from: usize, to: usize| if to >= from { to - from } else { to + length - from };
        let mut at = self.after(gap);
        while self.slots[at][0] != 0 {
            // It may stand in the gap if its search begins there or before.
            if distance(self.home(self.slots[at][0]), at) >= distance(gap, at) {
                self.slots[gap] = self.slots[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.slots[gap] = [0; 3];
        self.used -= 1;
    }
}

/// The highest bits of a spread key that choose the shard; the slot is chosen by the others.
pub(crate) const SHARD_BITS: u32 = 6;

/// The key with all its bits in the higher ones.
pub(crate) fn spread(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: u64) -> Entry {
        Entry {
            key,
            verdict: key as u32,
            generation: 0x7fff_fff0,
            used: false,
            expires: 1,
            refresh: u32::MAX,
        }
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        for used in [false, true] {
            let entry = Entry { used, ..entry(u64::MAX) };
            assert_eq!(Entry::unpack(entry.pack()), entry);
        }
    }

    #[test]
    fn a_full_table_loses_one_for_each_new_one_and_finds_all_others() {
        for capacity in [1, 2, 3, 7, 64, 500] {
            let mut table = Slots::new(capacity);
            for key in 1..=4 * capacity as u64 {
                table.set(entry(key));
                let kept: Vec<u64> = (1..=key).filter(|key| table.get(*key).is_some()).collect();
                assert_eq!(kept.len(), table.len());
                assert_eq!(table.len(), capacity.min(key as usize));
                assert!(kept.contains(&key));
                kept.iter().for_each(|key| assert_eq!(table.get(*key).unwrap().verdict, *key as u32));
            }
        }
    }

    #[test]
    fn what_is_used_outlives_a_flood() {
        let mut table = Slots::new(100);
        table.set(entry(1));
        for key in 2..10_000 {
            let hot = table.get(1).expect("used between any two others");
            table.set(Entry { used: true, ..hot });
            table.set(entry(key));
        }
    }
}
