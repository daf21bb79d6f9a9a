//! The consumers that are known: a bounded number of them exactly, the others by a hash.

use std::collections::HashMap;

use sluicegate_limiter::Time;

/// The consumers that are known exactly. The others share as many entries by their hash.
pub(crate) const KNOWN: usize = 1_024;
/// So many of the least demanding are forgotten if there is no room, so that others can be known.
const FORGOTTEN: usize = KNOWN / 8;

/// One consumer, or those of one hash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// Its name, the same on all gateways; 0 for several consumers.
    pub(crate) name: u64,
    pub(crate) weight: u32,
    /// The tokens that were asked for since the last tick.
    pub(crate) asked: u64,
    /// What it asks for, in millionths of a token per second.
    pub(crate) demand: u64,
    /// What it has asked for over about two seconds, and over less than half of one.
    pub(crate) usual: u64,
    pub(crate) latest: u64,
    /// The demand at the other processes, in the same unit.
    pub(crate) elsewhere: u64,
    /// Its fair share of all processes together, in the same unit.
    pub(crate) share: u64,
    /// What it may have of this process, in the same unit.
    pub(crate) rate: u64,
    /// What its requests cost in the end, on average, if that is known late.
    pub(crate) late: u64,
    /// The millionths of tokens in its bucket at `at`.
    pub(crate) tokens: i64,
    pub(crate) at: Time,
}

/// All entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    known: HashMap<u64, Entry>,
    /// Empty until there are more consumers than can be known.
    hashed: Vec<Entry>,
}

impl Table {
    /// The entry of a consumer. `new` makes one that is not known.
    pub(crate) fn entry(&mut self, key: u64, new: impl FnOnce() -> Entry) -> &mut Entry {
        if self.known.len() >= KNOWN && !self.known.contains_key(&key) {
            if self.hashed.is_empty() {
                self.hashed.resize_with(KNOWN, Entry::default);
            }
            let entry = &mut self.hashed[(key % KNOWN as u64) as usize];
            if entry.weight == 0 {
                *entry = Entry { name: 0, ..new() };
            }
            return entry;
        }
        self.known.entry(key).or_insert_with(new)
    }

    /// The entry of a consumer, if there is one.
    pub(crate) fn find(&mut self, key: u64) -> Option<&mut Entry> {
        if let Some(entry) = self.known.get_mut(&key) {
            return Some(entry);
        }
        self.hashed.get_mut((key % KNOWN as u64) as usize).filter(|entry| entry.weight > 0)
    }

    /// All entries that are in use.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.known.values_mut().chain(self.hashed.iter_mut().filter(|entry| entry.weight > 0))
    }

    /// Forgets consumers that ask for nothing any more, and makes room if there is none.
    pub(crate) fn clean(&mut self) {
        // What late costs have left to pay off is not forgotten.
        let is_used = |entry: &Entry| entry.demand > 0 || entry.tokens < 0;
        self.known.retain(|_, entry| is_used(entry));
        for entry in self.hashed.iter_mut().filter(|entry| !is_used(entry)) {
            *entry = Entry::default();
        }
        if self.known.len() >= KNOWN {
            let mut demands: Vec<(u64, u64)> =
                self.known.iter().map(|(key, entry)| (entry.demand, *key)).collect();
            demands.select_nth_unstable(FORGOTTEN);
            for (_, key) in &demands[..FORGOTTEN] {
                self.known.remove(key);
            }
        }
    }

    /// The number of entries in use.
    pub(crate) fn len(&mut self) -> usize {
        self.all().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(demand: u64) -> impl FnOnce() -> Entry {
        move || Entry { weight: 1, demand, ..Entry::default() }
    }

    /// A flood of new names takes no memory, and those that ask for much stay known.
    #[test]
    fn a_flood_of_names_is_bounded() {
        let mut table = Table::default();
        for key in 0..10 {
            table.entry(key, new(1_000_000));
        }
        for round in 0..20 {
            for key in 0..10_000 {
                table.entry(1_000 + round * 10_000 + key, new(1));
            }
            assert!(table.len() <= 2 * KNOWN);
            table.clean();
        }
        assert!((0..10).all(|key| table.known.contains_key(&key)));
    }

    #[test]
    fn who_asks_for_nothing_is_forgotten() {
        let mut table = Table::default();
        table.entry(1, new(0));
        table.entry(2, new(1));
        table.clean();
        assert_eq!((table.len(), table.find(1).is_some(), table.find(2).is_some()), (1, false, true));
    }
}
