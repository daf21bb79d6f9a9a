//! A flat hash table with linear probing: one slot per key, with its 64-bit fingerprint and its state.

use sluicegate_limiter::{Acquired, Time};

use super::state_codec::{BEHIND, Overlong, StateCodec};

/// The smallest number of slots.
const SMALLEST: usize = 8;
/// The number of slots of the first pages: 4 KiB if a state is a word.
const PAGE: usize = 256;
/// The number of pages of each size; of the first size there are twice as many.
const PAGES: usize = 4;
/// Where the second half of the pages of the first size begins.
const FIRST: usize = PAGES * PAGE;

/// Fingerprints and states. A fingerprint is a keyed hash, so its low bits are evenly distributed.
///
/// The table grows by a page when it is six sevenths full: probes are long beyond that. Pages double in size after every
/// four, so the table grows by a quarter at most and is at least two thirds full. A key of one word takes 24 bytes at
/// most, and the list of pages is short enough to stay in the caches. Pages are never moved: an allocator makes little use
/// of freed pieces that are smaller than the next page.
pub(super) struct HashTable<A: StateCodec> {
    pages: Vec<Box<[Slot<A::Word>]>>,
    size: usize,
    used: usize,
    /// The base of the words.
    base: u128,
    /// States that do not fit a word.
    overlong: Overlong<A::State>,
}

#[derive(Default)]
struct Slot<W> {
    /// Zero where the slot is free.
    key: u64,
    word: W,
}

impl<A: StateCodec> HashTable<A> {
    pub(super) fn new() -> Self {
        Self { pages: Vec::new(), size: 0, used: 0, base: 0, overlong: Overlong::default() }
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// The number of slots, including free ones.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    #[inline]
    fn slot(&self, at: usize) -> &Slot<A::Word> {
        let (page, offset) = place(at);
        &self.pages[page][offset]
    }

    #[inline]
    fn slot_mut(&mut self, at: usize) -> &mut Slot<A::Word> {
        let (page, offset) = place(at);
        &mut self.pages[page][offset]
    }

    /// The first slot to probe for `key`; the number of slots is not a power of two.
    #[inline]
    fn home(&self, key: u64) -> usize {
        ((u64::from(key as u32) * self.size as u64) >> 32) as usize
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.size { 0 } else { at + 1 }
    }

    /// The steps from one slot to another.
    fn steps(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.size - from }
    }

    /// The index of `key`, valid until the next change.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<usize> {
        self.seek(key).map(|(index, ..)| index)
    }

    /// The index of `key`, with its page and its offset there.
    #[inline]
    fn seek(&self, key: u64) -> Option<(usize, usize, usize)> {
        let mut at = self.home(key);
        loop {
            let (number, mut offset) = place(at);
            let page = self.pages.get(number)?; // there is none before the first key
            while let Some(slot) = page.get(offset) {
                match slot.key {
                    found if found == key => return Some((at, number, offset)),
                    0 => return None,
                    _ => (at, offset) = (at + 1, offset + 1),
                }
            }
            if at == self.size {
                at = 0;
            }
        }
    }

    /// Adds `key`, which is not in the table, with the default state; returns its index.
    pub(super) fn insert(&mut self, key: u64) -> usize {
        debug_assert!(key != 0 && self.find(key).is_none());
        if (self.used + 1) * 7 > self.size * 6 {
            self.grow();
        }
        self.used += 1;
        self.place(Slot { key, word: A::Word::default() })
    }

    fn place(&mut self, slot: Slot<A::Word>) -> usize {
        let mut at = self.home(slot.key);
        while self.slot(at).key != 0 {
            at = self.next(at);
        }
        *self.slot_mut(at) = slot;
        at
    }

    fn grow(&mut self) {
        let all = self.pages.iter_mut().flatten().filter(|slot| slot.key != 0);
        let keys: Vec<Slot<A::Word>> = all.map(std::mem::take).collect();
        let page = if self.size < PAGE {
            self.pages.clear(); // the only page is replaced until it has full size
            (self.size * 2).clamp(SMALLEST, PAGE)
        } else {
            page_size(self.pages.len())
        };
        self.pages.reserve_exact(1);
        self.pages.push(std::iter::repeat_with(Slot::default).take(page).collect());
        self.size = self.pages.iter().map(|page| page.len()).sum();
        for slot in keys {
            self.place(slot);
        }
    }

    /// The number of slots from `from` on, at most `most`, before the first whose key owes nothing.
    pub(super) fn before_idle(&self, from: usize, most: usize, algorithm: &A, now: Time) -> usize {
        let mut passed = 0;
        while passed < most {
            let (page, offset) = place(self.after(from, passed));
            for slot in self.pages[page][offset..].iter().take(most - passed) {
                if slot.key != 0 && self.is_idle(slot, algorithm, now) {
                    return passed;
                }
                passed += 1;
            }
        }
        passed
    }

    /// The number of keys in at most `most` slots from `from` on, and of those with such a state.
    pub(super) fn count(
        &self,
        from: usize,
        most: usize,
        is_counted: impl Fn(&A::State) -> bool,
    ) -> (usize, usize) {
        let end = self.size.min(from + most);
        let (mut at, mut keys, mut counted) = (from, 0, 0);
        while at < end {
            let (page, offset) = place(at);
            for slot in self.pages[page][offset..].iter().take(end - at) {
                at += 1;
                if slot.key != 0 {
                    keys += 1;
                    let is = A::inspect(&slot.word, self.base, || self.overlong.get(slot.key), &is_counted);
                    counted += usize::from(is);
                }
            }
        }
        (keys, counted)
    }

    #[inline]
    fn is_idle(&self, slot: &Slot<A::Word>, algorithm: &A, now: Time) -> bool {
        let idle = |state: &A::State| algorithm.is_idle(state, now);
        A::inspect(&slot.word, self.base, || self.overlong.get(slot.key), idle)
    }

    /// The slot that follows another one after `steps`, which are at most the number of slots.
    #[inline]
    pub(super) fn after(&self, at: usize, steps: usize) -> usize {
        let after = at + steps;
        if after < self.size { after } else { after - self.size }
    }

    /// The result of `look` on the state at `index`; `None` if the slot is free.
    #[inline]
    pub(super) fn inspect<T>(&self, index: usize, look: impl FnOnce(&A::State) -> T) -> Option<T> {
        let slot = Some(self.slot(index)).filter(|slot| slot.key != 0)?;
        Some(A::inspect(&slot.word, self.base, || self.overlong.get(slot.key), look))
    }

    /// Checks and charges the state of `key` in its slot.
    ///
    /// # Errors
    /// The index of `key`, if it has a slot, when that cannot be computed in a word.
    #[inline]
    pub(super) fn acquire(
        &mut self,
        key: u64,
        algorithm: &A,
        now: Time,
        cost: u64,
    ) -> Result<Acquired, Option<usize>> {
        let Some((index, page, offset)) = self.seek(key) else { return Err(None) };
        let word = &mut self.pages[page][offset].word;
        algorithm.acquire_word(word, self.base, now, cost).ok_or(Some(index))
    }

    /// Changes the state at `index` and returns the result of `change`.
    #[inline]
    pub(super) fn change<T>(
        &mut self,
        index: usize,
        algorithm: &A,
        now: Time,
        change: impl FnOnce(&mut A::State) -> T,
    ) -> T {
        let (page, offset) = place(index);
        let slot = &mut self.pages[page][offset];
        let mut state = match A::decode(&mut slot.word, self.base) {
            Some(state) => state,
            None => self.overlong.take(slot.key),
        };
        let said = change(&mut state);
        match A::encode(state, self.base) {
            Ok(word) => slot.word = word,
            Err(state) => self.encode_overlong(index, algorithm, now, state),
        }
        said
    }

    /// Stores a state that does not fit a word: moves the base of all words, or keeps the state outside of the slots.
    #[cold]
    fn encode_overlong(&mut self, index: usize, algorithm: &A, now: Time, state: A::State) {
        let base = algorithm.base(now);
        if base.saturating_sub(self.base) >= BEHIND {
            for slot in self.pages.iter_mut().flatten().filter(|slot| slot.key != 0) {
                A::rebase(&mut slot.word, base - self.base);
            }
            self.base = base;
        }
        let (page, offset) = place(index);
        let slot = &mut self.pages[page][offset];
        slot.word = A::encode(state, self.base).unwrap_or_else(|state| {
            self.overlong.put(slot.key, state);
            A::overlong()
        });
    }

    /// Changes all states from the words of one quota to those of another.
    pub(super) fn change_all(&mut self, algorithm: &A, now: Time, change: impl Fn(&mut A::State)) {
        let (old, new) = (self.base, algorithm.base(now));
        self.base = new;
        for slot in self.pages.iter_mut().flatten().filter(|slot| slot.key != 0) {
            let mut state = A::decode(&mut slot.word, old).unwrap_or_else(|| self.overlong.take(slot.key));
            change(&mut state);
            slot.word = A::encode(state, new).unwrap_or_else(|state| {
                self.overlong.put(slot.key, state);
                A::overlong()
            });
        }
    }

    /// Removes all keys; returns their number.
    pub(super) fn clear(&mut self) -> usize {
        self.pages = Vec::new();
        self.size = 0;
        self.overlong = Overlong::default();
        std::mem::take(&mut self.used)
    }

    /// Removes the key at `index`, closes the gap so that later keys are still found, and returns the key. The slot may then
    /// hold another key.
    pub(super) fn remove(&mut self, index: usize) -> u64 {
        let gone = std::mem::take(self.slot_mut(index));
        self.overlong.drop(gone.key);
        self.used -= 1;
        let (mut gap, mut at) = (index, self.next(index));
        while self.slot(at).key != 0 {
            let home = self.home(self.slot(at).key);
            // It may move into the gap unless its home lies behind the gap.
            if self.steps(home, at) >= self.steps(gap, at) {
                *self.slot_mut(gap) = std::mem::take(self.slot_mut(at));
                gap = at;
            }
            at = self.next(at);
        }
        gone.key
    }
}

/// The page of a slot, and its offset there.
#[inline]
fn place(at: usize) -> (usize, usize) {
    let doubled = (at | FIRST).ilog2() - FIRST.ilog2();
    let bits = doubled + PAGE.ilog2();
    ((at >> bits) + doubled as usize * PAGES, at & ((1 << bits) - 1))
}

/// The number of slots of a page.
fn page_size(page: usize) -> usize {
    PAGE << (page / PAGES).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use sluicegate_limiter::{Algorithm, Concurrency, InFlight, MAX_COUNT, Rate, Span, TokenBucket};

    use super::*;

    const NOW: Time = Time::from_nanos(1_795_000_000_000_000_000);

    proptest! {
        /// Keys in the same slots, added and removed at random, are the same as in a map of the standard library.
        #[test]
        fn as_a_map(steps in prop::collection::vec((1_u64..1_000, 0..4_u8, any::<u64>()), 1..1_500)) {
            let places = Concurrency::new(1).unwrap();
            let mut slots = HashTable::new();
            let mut map = HashMap::new();
            for (key, step, value) in steps {
                let key = (key % 5) << 29 | key; // few homes, the last one among them
                match (slots.find(key), step == 0) {
                    (Some(at), true) => { prop_assert_eq!(slots.remove(at), key); map.remove(&key); }
                    (None, true) => {}
                    (found, false) => {
                        let at = found.unwrap_or_else(|| slots.insert(key));
                        slots.change(at, &places, NOW, |state| *state = InFlight::new(value));
                        map.insert(key, value);
                    }
                }
                prop_assert_eq!(slots.used(), map.len());
            }
            for (key, value) in &map {
                let at = slots.find(*key).unwrap();
                prop_assert_eq!(slots.inspect(at, |state| *state), Some(InFlight::new(*value)));
            }
        }

        /// A debt is the same after it was stored in a word, outside of the slots, or with a later base.
        #[test]
        fn a_slot_does_not_change_a_debt(
            (count, nanos, burst) in (1..=MAX_COUNT, 1_000_000..=31_622_400_000_000_000_u64, 1..=MAX_COUNT),
            steps in prop::collection::vec((1_u64..6, 0..400_000_000_000_000_u64, 1..=1_000_000_u64), 1..100),
        ) {
            let bucket = TokenBucket::new(Rate::new(count, Span::from_nanos(nanos)).unwrap(), burst).unwrap();
            let mut slots = HashTable::new();
            let mut debts = [sluicegate_limiter::Tat::default(); 6];
            let mut now = NOW;
            for (key, later, cost) in steps {
                now = now.plus(Span::from_nanos(later));
                let known = &mut debts[key as usize];
                let key = key << 29;
                let at = slots.find(key).unwrap_or_else(|| slots.insert(key));
                slots.change(at, &bucket, now, |state| {
                    assert_eq!(bucket.usage(state, now), bucket.usage(known, now));
                    if bucket.check(state, now, cost).is_ok() {
                        let receipts = [state, known].map(|debt| bucket.charge(debt, now, cost));
                        assert_eq!(receipts[0], receipts[1]);
                    }
                });
            }
            let other = TokenBucket::new(Rate::new(7, Span::from_secs(90)).unwrap(), 1_000).unwrap();
            slots.change_all(&other, now, |state| other.rescale(&bucket, state, now));
            for (key, mut known) in debts.into_iter().enumerate() {
                let Some(at) = slots.find((key as u64) << 29).filter(|_| key > 0) else { continue };
                other.rescale(&bucket, &mut known, now);
                slots.change(at, &other, now, |state| {
                    assert_eq!(other.usage(state, now), other.usage(&known, now));
                });
            }
        }
    }

    /// Slots follow each other through all pages.
    #[test]
    fn every_slot_has_its_place() {
        let mut at = 0;
        for page in 0..40 {
            for offset in [0, 1, page_size(page) - 1] {
                assert_eq!(place(at + offset), (page, offset));
            }
            at += page_size(page);
        }
    }

    /// A key of a bucket is two words.
    #[test]
    fn a_bucket_is_a_word() {
        assert_eq!(size_of::<Slot<<TokenBucket as StateCodec>::Word>>(), 16);
    }
}
