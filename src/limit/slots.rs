//! A flat table: one slot a key, a 64-bit fingerprint beside its state, linear probing.

use sluicegate_limiter::Time;

use super::kept::{BEHIND, Far, Kept};

/// The fewest slots there are.
const SMALLEST: usize = 8;
/// Slots of a page: what is allocated at a time, 4 KiB where a state is a word.
const PAGE: usize = 256;

/// Fingerprints and states. A fingerprint is a keyed hash, so its low bits are as good a place as any.
///
/// Six sevenths full is where probes begin to be long; the table then grows by a quarter, so that it is two thirds full
/// at least and a key of one word takes 24 bytes at most, whatever their number. It grows by pages, which stay: memory
/// that is given back in ever larger pieces is of little use to those who grow.
pub(super) struct Slots<A: Kept> {
    pages: Vec<Box<[Slot<A::Word>]>>,
    size: usize,
    used: usize,
    /// What the words count from.
    base: u128,
    /// The states that do not fit a word.
    far: Far<A::State>,
}

#[derive(Default)]
struct Slot<W> {
    /// Zero where the slot is free.
    key: u64,
    word: W,
}

impl<A: Kept> Slots<A> {
    pub(super) fn new() -> Self {
        Self { pages: Vec::new(), size: 0, used: 0, base: 0, far: Far::default() }
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// The slots, free ones too: the bound of a walk over indices.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    #[inline]
    fn slot(&self, at: usize) -> &Slot<A::Word> {
        &self.pages[at / PAGE][at % PAGE]
    }

    /// Where the probes for `key` begin: the slots are not a power of two.
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

    /// The index of `key`, good until the next change.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<usize> {
        if self.size == 0 {
            return None;
        }
        let mut at = self.home(key);
        loop {
            match self.slot(at).key {
                found if found == key => return Some(at),
                0 => return None,
                _ => at = self.next(at),
            }
        }
    }

    /// Adds `key`, which is not there yet, with the state of a key that was never seen; its index.
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
        self.pages[at / PAGE][at % PAGE] = slot;
        at
    }

    fn grow(&mut self) {
        let larger = (self.size + self.size / 4).max(SMALLEST);
        let size = if larger < PAGE { larger } else { larger.next_multiple_of(PAGE) };
        let all = self.pages.iter_mut().flatten().filter(|slot| slot.key != 0);
        let keys: Vec<Slot<A::Word>> = all.map(std::mem::take).collect();
        if self.size < PAGE {
            self.pages.clear(); // a first page that is none yet
        }
        self.pages.reserve_exact(size.div_ceil(PAGE) - self.pages.len());
        while self.pages.len() * PAGE < size {
            self.pages.push(std::iter::repeat_with(Slot::default).take(size.min(PAGE)).collect());
        }
        self.size = size;
        for slot in keys {
            self.place(slot);
        }
    }

    /// What `look` says of the state at `index`; nothing if the slot is free.
    #[inline]
    pub(super) fn see<T>(&self, index: usize, look: impl FnOnce(&A::State) -> T) -> Option<T> {
        let slot = Some(self.slot(index)).filter(|slot| slot.key != 0)?;
        Some(A::see(&slot.word, self.base, || self.far.get(slot.key), look))
    }

    /// Changes the state at `index`, which is that of a key, and says what `change` says of it.
    #[inline]
    pub(super) fn change<T>(
        &mut self,
        index: usize,
        algorithm: &A,
        now: Time,
        change: impl FnOnce(&mut A::State) -> T,
    ) -> T {
        let slot = &mut self.pages[index / PAGE][index % PAGE];
        let mut state = match A::open(&mut slot.word, self.base) {
            Some(state) => state,
            None => self.far.take(slot.key),
        };
        let said = change(&mut state);
        match A::close(state, self.base) {
            Ok(word) => slot.word = word,
            Err(state) => self.close_far(index, algorithm, now, state),
        }
        said
    }

    /// Puts back a state that does not fit: all words count from later on, or it is kept apart.
    #[cold]
    fn close_far(&mut self, index: usize, algorithm: &A, now: Time, state: A::State) {
        let base = algorithm.base(now);
        if base.saturating_sub(self.base) >= BEHIND {
            for slot in self.pages.iter_mut().flatten().filter(|slot| slot.key != 0) {
                A::lift(&mut slot.word, base - self.base);
            }
            self.base = base;
        }
        let slot = &mut self.pages[index / PAGE][index % PAGE];
        slot.word = A::close(state, self.base).unwrap_or_else(|state| {
            self.far.put(slot.key, state);
            A::far()
        });
    }

    /// Changes all states from the words of one quota to those of another.
    pub(super) fn change_all(&mut self, algorithm: &A, now: Time, change: impl Fn(&mut A::State)) {
        let (old, new) = (self.base, algorithm.base(now));
        self.base = new;
        for slot in self.pages.iter_mut().flatten().filter(|slot| slot.key != 0) {
            let mut state = A::open(&mut slot.word, old).unwrap_or_else(|| self.far.take(slot.key));
            change(&mut state);
            slot.word = A::close(state, new).unwrap_or_else(|state| {
                self.far.put(slot.key, state);
                A::far()
            });
        }
    }

    /// Removes all keys; how many there were.
    pub(super) fn clear(&mut self) -> usize {
        self.pages = Vec::new();
        self.size = 0;
        self.far = Far::default();
        std::mem::take(&mut self.used)
    }

    /// Removes the key at `index` and closes the gap, so that later keys are still found. The slot may then
    /// hold another key.
    pub(super) fn remove(&mut self, index: usize) {
        let gone = std::mem::take(&mut self.pages[index / PAGE][index % PAGE]);
        self.far.drop(gone.key);
        self.used -= 1;
        let (mut gap, mut at) = (index, self.next(index));
        while self.slot(at).key != 0 {
            let home = self.home(self.slot(at).key);
            // It may move into the gap unless its home lies behind the gap.
            if self.steps(home, at) >= self.steps(gap, at) {
                let moved = std::mem::take(&mut self.pages[at / PAGE][at % PAGE]);
                self.pages[gap / PAGE][gap % PAGE] = moved;
                gap = at;
            }
            at = self.next(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use sluicegate_limiter::{Algorithm, Concurrency, InFlight, MAX_COUNT, Rate, Span, TokenBucket};

    use super::*;

    const NOW: Time = Time::from_nanos(1_795_000_000_000_000_000);

    proptest! {
        /// Keys that crowd the same slots, added and removed at random, are as in a map of the standard library.
        #[test]
        fn as_a_map(steps in prop::collection::vec((1_u64..1_000, 0..4_u8, any::<u64>()), 1..1_500)) {
            let places = Concurrency::new(1).unwrap();
            let mut slots = Slots::new();
            let mut map = HashMap::new();
            for (key, step, value) in steps {
                let key = (key % 5) << 29 | key; // few homes, the last one among them
                match (slots.find(key), step == 0) {
                    (Some(at), true) => { slots.remove(at); map.remove(&key); }
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
                prop_assert_eq!(slots.see(at, |state| *state), Some(InFlight::new(*value)));
            }
        }

        /// A debt that lies in a word, or beside the table, or was moved to a later base, is the same debt.
        #[test]
        fn a_debt_is_the_same_in_a_slot(
            (count, nanos, burst) in (1..=MAX_COUNT, 1_000_000..=31_622_400_000_000_000_u64, 1..=MAX_COUNT),
            steps in prop::collection::vec((1_u64..6, 0..400_000_000_000_000_u64, 1..=1_000_000_u64), 1..100),
        ) {
            let bucket = TokenBucket::new(Rate::new(count, Span::from_nanos(nanos)).unwrap(), burst).unwrap();
            let mut slots = Slots::new();
            let mut debts = [sluicegate_limiter::Debt::default(); 6];
            let mut now = NOW;
            for (key, later, cost) in steps {
                now = now.plus(Span::from_nanos(later));
                let known = &mut debts[key as usize];
                let key = key << 29;
                let at = slots.find(key).unwrap_or_else(|| slots.insert(key));
                slots.change(at, &bucket, now, |state| {
                    assert_eq!(bucket.standing(state, now), bucket.standing(known, now));
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
                    assert_eq!(other.standing(state, now), other.standing(&known, now));
                });
            }
        }
    }

    /// A key of a bucket is two words.
    #[test]
    fn a_bucket_is_a_word() {
        assert_eq!(size_of::<Slot<<TokenBucket as Kept>::Word>>(), 16);
    }
}
