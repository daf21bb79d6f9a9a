//! Which keys were warned, so that each crossing is counted once.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_limiter::Usage;

use crate::keys::Fingerprint;

/// The keys that are remembered. Two of the same place forget each other, and may be counted again.
const PLACES: usize = 4_096;
/// A key may be warned again when it uses so much less than the part at which it is warned, in millionths.
const HYSTERESIS: u32 = 50_000;

/// The keys of a limit that have used the part from which on clients are warned.
pub struct Warned {
    /// In millionths.
    part: u32,
    keys: Box<[AtomicU64]>,
}

impl Warned {
    /// No key was warned at this part of the limit, in millionths.
    pub fn new(part: u32) -> Self {
        Self { part, keys: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Whether a client is warned that has so much left.
    #[inline]
    pub fn warns(&self, usage: Usage) -> bool {
        has_used(usage, self.part)
    }

    /// A key has so much left. Whether it has come to the part at which it is warned, and was below by more than 5 points before.
    pub fn crosses(&self, key: Fingerprint, usage: Usage) -> bool {
        let place = &self.keys[(key.get() % PLACES as u64) as usize];
        if has_used(usage, self.part) {
            return place.swap(key.get(), Ordering::Relaxed) != key.get();
        }
        if place.load(Ordering::Relaxed) == key.get()
            && !has_used(usage, self.part.saturating_sub(HYSTERESIS))
        {
            place.store(0, Ordering::Relaxed);
        }
        false
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
        assert!((1..100).all(|key| warned.crosses(Fingerprint::from_hash(key), usage)));
        assert!(!(1..100).any(|key| warned.crosses(Fingerprint::from_hash(key), usage)));
    }
}
