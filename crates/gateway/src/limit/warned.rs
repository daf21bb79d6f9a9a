//! Which keys were warned, so that each crossing is counted once.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use sluicegate_limiter::Usage;

use sluicegate_route::keys::Fingerprint;

/// The keys that are remembered, in so many sets with a lock each. Where more are above the part at once, some are forgotten, and
/// counted again.
const KEYS: usize = 65_536;
const SETS: usize = 16;
/// A key may be warned again when it uses so much less than the part at which it is warned, in millionths.
const HYSTERESIS: u32 = 50_000;

/// The keys of a limit that have used the part from which on clients are warned.
pub struct Warned {
    /// In millionths.
    part: u32,
    keys: [Mutex<HashSet<u64>>; SETS],
}

impl Warned {
    /// No key was warned at this part of the limit, in millionths.
    pub fn new(part: u32) -> Self {
        Self { part, keys: Default::default() }
    }

    /// Whether clients are warned at this part.
    pub fn is_at(&self, part: Option<u32>) -> bool {
        part == Some(self.part)
    }

    /// Whether a client is warned that has so much left.
    #[inline]
    pub fn warns(&self, usage: Usage) -> bool {
        has_used(usage, self.part)
    }

    /// A key has so much left. Whether it has come to the part at which it is warned, and was below by more than 5 points before.
    pub fn crosses(&self, key: Fingerprint, usage: Usage) -> bool {
        let (is_warned, is_near) =
            (has_used(usage, self.part), has_used(usage, self.part.saturating_sub(HYSTERESIS)));
        if is_near && !is_warned {
            return false; // it stays what it is
        }
        let set = &self.keys[(key.get() % SETS as u64) as usize];
        let mut keys = set.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_warned {
            keys.remove(&key.get());
            return false;
        }
        if keys.len() >= KEYS / SETS
            && !keys.contains(&key.get())
            && let Some(other) = keys.iter().next().copied()
        {
            keys.remove(&other);
        }
        keys.insert(key.get())
    }
}

/// Whether so much or more of a limit is used, in millionths.
fn has_used(usage: Usage, part: u32) -> bool {
    let used = usage.capacity.saturating_sub(usage.remaining);
    u128::from(used) * 1_000_000 >= u128::from(usage.capacity) * u128::from(part)
}

#[cfg(test)]
mod tests {
    use sluicegate_limiter::Span;

    use super::*;

    #[test]
    fn a_key_that_stays_near_the_part_is_counted_once() {
        let (warned, key) = (Warned::new(800_000), Fingerprint::from_hash(7));
        let crosses = |used: u64| {
            warned.crosses(key, Usage { remaining: 100 - used, capacity: 100, reset: Span::ZERO })
        };
        let found: Vec<bool> = [79, 80, 81, 79, 80, 76, 85, 75, 80, 74, 80, 80].map(crosses).to_vec();
        let crossings: Vec<usize> = (0..found.len()).filter(|at| found[*at]).collect();
        assert_eq!(crossings, [1, 10]);
    }

    #[test]
    fn keys_are_counted_apart() {
        let warned = Warned::new(800_000);
        let usage = Usage { remaining: 0, capacity: 100, reset: Span::ZERO };
        assert!((1..10_000).all(|key| warned.crosses(Fingerprint::from_hash(key), usage)));
        assert!(!(1..10_000).any(|key| warned.crosses(Fingerprint::from_hash(key), usage)));
        (10_000..200_000).for_each(|key| _ = warned.crosses(Fingerprint::from_hash(key), usage));
        let remembered: usize = warned.keys.iter().map(|keys| keys.lock().unwrap().len()).sum();
        assert!(remembered <= KEYS, "{remembered}");
    }
}
