//! A vector that only grows: its items never move, so that they can be borrowed while others are added.

use std::sync::OnceLock;

/// The number of items in the first chunk.
const FIRST: u32 = 64;
/// The number of chunks; each is twice as large as the one before. There is room for all numbers of 26 bits.
const CHUNKS: usize = 21;

/// Items by index, made when they are first asked for.
pub struct Slots<T>([OnceLock<Box<[OnceLock<T>]>>; CHUNKS]);

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self([const { OnceLock::new() }; CHUNKS])
    }
}

impl<T> Slots<T> {
    /// The item at `index`, made by `make` if there is none yet.
    ///
    /// # Panics
    /// If the index has more than 26 bits.
    #[inline]
    pub fn get_or_init(&self, index: u32, make: impl FnOnce() -> T) -> &T {
        let (chunk, offset) = place(index);
        let length = (FIRST << chunk) as usize;
        let chunk = self.0[chunk].get_or_init(|| (0..length).map(|_| OnceLock::new()).collect());
        chunk[offset].get_or_init(make)
    }

    /// All items.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(OnceLock::get).flatten().filter_map(OnceLock::get)
    }
}

/// The chunk of an index, and its offset there.
#[inline]
fn place(index: u32) -> (usize, usize) {
    let chunk = (index / FIRST + 1).ilog2();
    let before = FIRST * ((1 << chunk) - 1);
    (chunk as usize, (index - before) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_a_slot_of_its_own() {
        let slots = Slots::default();
        for index in (0..5_000).chain([(1 << 26) - 1]) {
            assert_eq!(*slots.get_or_init(index, || index), index);
        }
        for index in 0..5_000 {
            assert_eq!(*slots.get_or_init(index, || unreachable!("it is there")), index);
        }
    }
}
