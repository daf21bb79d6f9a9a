//! What was chosen, per key, bounded, with a time to live.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_limiter::{Span, Time};

use crate::slots::{Entry, SHARD_BITS, Slots, spread};

/// A bounded map from the fingerprint of a key to a verdict, which the caller numbers.
///
/// An entry takes 24 bytes in a table that is two thirds full, 36 in all. A full shard evicts what was not asked for
/// lately (second chance). An entry that has ended or was invalidated is kept, so that it can be served while the source
/// of rules is away.
///
/// Times are kept in units of 2²⁶ ns (67 ms) modulo 2³²: an entry ends up to one unit early, never late. One that nobody
/// asks for in four years could seem fresh again.
pub struct VerdictCache {
    shards: Box<[Shard]>,
    /// How often all entries were invalidated, modulo 2³¹.
    generation: AtomicU32,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The verdict.
    Fresh(u32),
    /// The verdict; it ends soon, and this caller should ask the source.
    Refresh(u32),
    /// A verdict that has ended or was invalidated. The caller should ask the source.
    Stale(u32),
    /// Nothing.
    Missing,
}

/// The state of invalidations before the source was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    generation: u32,
    invalidations: u64,
}

/// Aligned so that two shards never share a cache line, nor a pair of them, which processors load together.
#[repr(align(128))]
struct Shard(Mutex<Contents>);

struct Contents {
    slots: Slots,
    /// How often an entry of this shard was invalidated.
    invalidations: u64,
}

/// As a power of two: the nanoseconds of a unit.
const UNIT: u32 = 26;
/// About a second, in units.
const SECOND: u32 = 15;
/// The longest time to live, of a year; times that are further apart than 2³¹ units cannot be compared.
const MAX_TTL: Span = Span::from_secs(365 * 86_400);
/// A shard with fewer entries is not worth its lock.
const MIN_SHARD: usize = 1_024;
/// Generations have 31 bits.
const GENERATIONS: u32 = u32::MAX >> 1;

impl VerdictCache {
    /// A cache of at most `max` entries, at least one. Its memory is reserved, and used as entries come.
    pub fn new(max: usize) -> Self {
        let most = 1 << SHARD_BITS;
        let shards = (max / MIN_SHARD).next_power_of_two().min(most);
        let shard = || Shard(Mutex::new(Contents { slots: Slots::new(max / shards), invalidations: 0 }));
        Self { shards: (0..shards).map(|_| shard()).collect(), generation: AtomicU32::new(0) }
    }

    /// Looks a key up. `key` is a keyed hash and never 0.
    ///
    /// When 80 % of an entry's time to live are over, one caller gets [`Lookup::Refresh`], and one more each second until
    /// the entry is [`put`](Self::put) again.
    pub fn get(&self, key: u64, now: Time) -> Lookup {
        let now = units(now);
        let mut shard = self.shard(key);
        let Some(mut entry) = shard.slots.get(key.max(1)) else { return Lookup::Missing };
        let verdict = entry.verdict;
        let (lookup, refresh) = if self.is_stale(&entry, now) {
            (Lookup::Stale(verdict), entry.refresh)
        } else if is_reached(entry.refresh, now) {
            (Lookup::Refresh(verdict), now.wrapping_add(SECOND))
        } else {
            (Lookup::Fresh(verdict), entry.refresh)
        };
        if !entry.used || refresh != entry.refresh {
            entry.used = true;
            entry.refresh = refresh;
            shard.slots.set(entry);
        }
        lookup
    }

    /// To be called before the source is asked for a key; [`put`](Self::put) takes the token.
    pub fn begin(&self, key: u64) -> Token {
        let shard = self.shard(key);
        Token { generation: self.generation(), invalidations: shard.invalidations }
    }

    /// Stores the verdict of a key for `ttl`, changed by up to 10 % either way depending on the key, or until `until` if
    /// that is earlier. A time to live of more than a year is one of a year.
    ///
    /// If the key may have been invalidated since the token was given, what the source said may be older than that: the
    /// verdict is stored as stale, unless there is a fresh one, which is newer.
    pub fn put(&self, key: u64, verdict: u32, now: Time, ttl: Span, until: Option<Time>, token: Token) {
        let end = now.plus(jittered(ttl.min(MAX_TTL), key));
        let expires = units(until.map_or(end, |until| until.min(end).max(now)));
        let now = units(now);
        let mut shard = self.shard(key);
        let generation = self.generation();
        let current = Token { generation, invalidations: shard.invalidations };
        let key = key.max(1);
        let existing = shard.slots.get(key);
        if token != current && existing.is_some_and(|entry| !self.is_stale(&entry, now)) {
            return;
        }
        let left = u64::from(expires.wrapping_sub(now));
        let refresh = now.wrapping_add((left * 4 / 5) as u32);
        let generation = if token == current { generation } else { outdated(generation) };
        let used = existing.is_some_and(|entry| entry.used);
        shard.slots.set(Entry { key, verdict, generation, used, expires, refresh });
    }

    /// The verdict of a key whose source gave no answer, which is kept for `pause`: the one that is known, or `instead` if that
    /// is known to apply by now, or `otherwise` if none is known. It replaces none that is fresh.
    pub fn keep(&self, key: u64, otherwise: u32, instead: Option<u32>, now: Time, pause: Span) -> u32 {
        let end = units(now.plus(pause));
        let now = units(now);
        let mut shard = self.shard(key);
        let key = key.max(1);
        let existing = shard.slots.get(key);
        if let Some(entry) = existing.filter(|entry| !self.is_stale(entry, now)) {
            return entry.verdict;
        }
        let verdict = instead.unwrap_or_else(|| existing.map_or(otherwise, |entry| entry.verdict));
        let used = existing.is_some_and(|entry| entry.used);
        let generation = self.generation();
        shard.slots.set(Entry { key, verdict, generation, used, expires: end, refresh: end });
        verdict
    }

    /// Makes the entry of a key stale: its rule has changed. So is what a [`put`](Self::put) stores whose source was
    /// asked before. Returns whether there was an entry, even a stale one.
    pub fn invalidate(&self, key: u64) -> bool {
        let mut shard = self.shard(key);
        shard.invalidations += 1;
        let entry = shard.slots.get(key.max(1));
        if let Some(entry) = entry {
            shard.slots.set(Entry { generation: outdated(self.generation()), ..entry });
        }
        entry.is_some()
    }

    /// Whether there is an entry of a key, even a stale one.
    pub fn contains(&self, key: u64) -> bool {
        self.shard(key).slots.get(key.max(1)).is_some()
    }

    /// Makes all entries stale, in constant time.
    pub fn invalidate_all(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of entries, with those that are stale.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().slots.len()).sum()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that it reserved.
    pub fn bytes(&self) -> usize {
        let slots: usize = self.shards.iter().map(|shard| shard.lock().slots.bytes()).sum();
        size_of_val(&*self.shards) + slots
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, Contents> {
        let index = (spread(key.max(1)) >> (64 - SHARD_BITS)) as usize;
        self.shards[index & (self.shards.len() - 1)].lock()
    }

    fn generation(&self) -> u32 {
        self.generation.load(Ordering::SeqCst) & GENERATIONS
    }

    fn is_stale(&self, entry: &Entry, now: u32) -> bool {
        entry.generation != self.generation() || is_reached(entry.expires, now)
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        // No code that holds the lock panics between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for VerdictCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerdictCache").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A time in units, rounded down, modulo 2³².
fn units(time: Time) -> u32 {
    (time.as_nanos() >> UNIT) as u32
}

fn is_reached(time: u32, now: u32) -> bool {
    time.wrapping_sub(now).cast_signed() <= 0
}

/// A generation that is not this one, and will not be for the longest time.
fn outdated(generation: u32) -> u32 {
    generation.wrapping_sub(1) & GENERATIONS
}

/// 90 % to 110 % of the time, depending on the key, so that what was stored together does not end together.
fn jittered(ttl: Span, key: u64) -> Span {
    // Other bits than those that choose the slot: neighbours should not end together.
    let share = u128::from(spread(key) as u32);
    let ttl = u128::from(ttl.as_nanos());
    let jittered = ttl - ttl / 10 + ((ttl / 5 * share) >> 32);
    Span::from_nanos(u64::try_from(jittered).unwrap_or(u64::MAX))
}
