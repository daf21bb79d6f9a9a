//! The counters of one limit: a sharded table of bounded size that never forgets a debt.

mod guard;
mod operations;
mod shard;
mod sweep;

use sluicegate_limiter::{Receipt, Refusal, Span, Time, Usage};

use self::guard::{Exclusive, Guard};
use super::hash_table::HashTable;
use super::open_charges::OpenCharges;
use super::own_quotas::OwnQuotas;
use super::state_codec::StateCodec;
use super::sync::{AtomicU64, AtomicUsize, Mutex, Ordering, RwLock, lock, read, write};
use crate::Fingerprint;

/// The number of slots that are visited to count the keys of a table. A table of two million keys has more.
const COUNTED: usize = 1 << 21;
/// The number of slots that are visited under one lock: ten microseconds where states are large.
const COUNTED_AT_ONCE: usize = 256;

/// The states of all keys of a limit.
///
/// A key is removed only when it owes nothing, so that a client cannot reset its counter by a pause. At `max_keys` live keys,
/// new ones share the overflow counter: memory is bounded and no debt is forgotten.
pub(super) struct Table<A: StateCodec> {
    shards: Box<[Shard<A>]>,
    max_keys: AtomicUsize,
    overflow: Overflow<A>,
    counts: Counts,
}

/// Counts that only new keys change, on a cache line of their own: requests of known keys only read the rest of a table.
#[repr(align(128))]
#[derive(Default)]
struct Counts {
    /// The keys that have a state, without the overflow counter, which would take the place of a key.
    entries: AtomicUsize,
    overflowed: AtomicU64,
    /// The shard that is swept next when there is no room.
    hand: AtomicUsize,
}

/// The overflow counter. In a flood of new keys all threads use it and nearly all requests are refused. A refusal changes
/// nothing, so a read lock is enough.
#[repr(align(128))]
struct Overflow<A: StateCodec>(RwLock<ShardState<A>>);

/// One lock, on a cache line of its own.
#[repr(align(128))]
struct Shard<A: StateCodec>(Mutex<ShardState<A>>);

struct ShardState<A: StateCodec> {
    /// The quota is part of each shard, so that a state is never read under another quota than the one that wrote it, even
    /// during a reload.
    algorithm: A,
    slots: HashTable<A>,
    /// The slot that is swept next.
    hand: usize,
    /// Charges that may still be refunded.
    open: OpenCharges,
    /// The keys that have a quota of their own; they have no slot.
    own: OwnQuotas<A>,
}

/// The result of a check of one key, which was charged if it admits.
pub(super) struct CheckResult {
    /// The delay, or the refusal.
    pub(super) answer: Result<Span, Refusal>,
    pub(super) usage: Usage,
    /// The key that was charged: its own, or that of the overflow counter.
    pub(super) key: Fingerprint,
    /// Whether the key was added to the table.
    pub(super) added: bool,
}

/// The state of one key, locked.
pub(super) struct LockedEntry<'a, A: StateCodec> {
    table: &'a Table<A>,
    part: Guard<'a, ShardState<A>>,
    key: Fingerprint,
    slot: Option<usize>,
    /// The quota of its own, if the key has one; then it has no slot.
    own: Option<A>,
    /// The quota under which the state counted until now, if that was another one.
    pub(super) converted: Option<A>,
    /// Whether the key was added to the table.
    pub(super) added: bool,
}

impl<A: StateCodec> Table<A> {
    pub(super) fn new(algorithm: A, max_keys: usize) -> Self {
        // With fewer shards, one takes longer to grow; with more, less of the data that all requests need is in the caches. A
        // limit with a few keys, of which a configuration can have thousands, needs a few.
        let fewest = max_keys.clamp(1, 16).next_power_of_two();
        let shards = match cfg!(feature = "model") {
            true => 2,
            false => (max_keys / 8192).next_power_of_two().clamp(fewest, 1024),
        };
        let part = || ShardState {
            algorithm: algorithm.clone(),
            slots: HashTable::new(),
            hand: 0,
            open: OpenCharges::default(),
            own: OwnQuotas::default(),
        };
        Self {
            shards: (0..shards).map(|_| Shard(Mutex::new(part()))).collect(),
            max_keys: AtomicUsize::new(max_keys),
            overflow: Overflow(RwLock::new(part())),
            counts: Counts::default(),
        }
    }

    /// The number of keys that have a state: they owe something, or were not dropped yet.
    pub(super) fn entries(&self) -> usize {
        self.counts.entries.load(Ordering::Relaxed)
    }

    /// The number of keys that owe something at `now`. In a very large table a part is counted and the rest is estimated,
    /// because keys are evenly distributed.
    pub(super) fn keys(&self, now: Time) -> usize {
        self.keys_in(COUNTED, now, |algorithm, state| !algorithm.is_idle(state, now))
    }

    /// The number of keys with such a state, which is estimated in the same way.
    pub(super) fn count(&self, now: Time, is_counted: impl Fn(&A, &A::State) -> bool) -> usize {
        self.keys_in(COUNTED, now, is_counted)
    }

    fn keys_in(&self, slots: usize, now: Time, is_counted: impl Fn(&A, &A::State) -> bool) -> usize {
        let each = slots / self.shards.len();
        let (mut seen, mut owing) = (0, 0);
        for shard in &self.shards {
            for from in (0..each).step_by(COUNTED_AT_ONCE) {
                let part = lock(&shard.0);
                if from >= part.slots.size() {
                    break;
                }
                let is_counted = |state: &A::State| is_counted(&part.algorithm, state);
                let (keys, owe) = part.slots.count(from, COUNTED_AT_ONCE, is_counted);
                seen += keys as u64;
                owing += owe as u64;
            }
            let (keys, owe) = lock(&shard.0).own.count(now);
            seen += keys as u64;
            owing += owe as u64;
        }
        let all = u128::from(owing) * self.entries() as u128 / u128::from(seen.max(1));
        usize::try_from(all).unwrap_or(usize::MAX)
    }

    /// The number of requests that used the overflow counter.
    pub(super) fn overflowed(&self) -> u64 {
        self.counts.overflowed.load(Ordering::Relaxed)
    }

    /// The shard of a key of a request.
    fn shard(&self, key: Fingerprint) -> &Shard<A> {
        &self.shards[(key.get() >> 40) as usize & (self.shards.len() - 1)]
    }

    /// Locks the part that a key is in.
    #[inline]
    fn part(&self, key: Fingerprint) -> Exclusive<'_, ShardState<A>> {
        match key {
            Fingerprint::OVERFLOW => Exclusive::Overflow(write(&self.overflow.0)),
            _ => Exclusive::Shard(lock(&self.shard(key).0)),
        }
    }

    /// Locks the state of `key`, or the overflow counter if there is no room for a new key. `asked` is the cost, if the key is
    /// charged only after a check. `own` is the quota of the key, if it has one of its own.
    #[inline]
    pub(super) fn lock_key(
        &self,
        key: Fingerprint,
        now: Time,
        asked: Option<u64>,
        own: Option<&A>,
    ) -> LockedEntry<'_, A> {
        let held = self.find(key, now, own);
        if held.is_known() { held } else { self.lock_unknown(held, now, asked) }
    }

    /// Locks the state of `key` under the quota that it has.
    pub(super) fn lock_as_it_is(&self, key: Fingerprint, now: Time) -> LockedEntry<'_, A> {
        let part = self.part(key);
        let own = part.own.get(key.get()).map(|own| own.algorithm.clone());
        let slot = part.slots.find(key.get());
        let held = LockedEntry { slot, own, ..LockedEntry::unknown(self, Guard::Exclusive(part), key) };
        if held.is_known() { held } else { self.lock_unknown(held, now, None) }
    }

    /// Locks a key that has no state.
    #[inline]
    fn lock_unknown<'a>(
        &'a self,
        held: LockedEntry<'a, A>,
        now: Time,
        asked: Option<u64>,
    ) -> LockedEntry<'a, A> {
        if self.has_room() {
            return held;
        }
        let (key, own) = (held.key, held.own.clone());
        drop(held);
        self.lock_when_full(key, now, asked, own.as_ref())
    }

    #[cold]
    fn lock_when_full(
        &self,
        key: Fingerprint,
        now: Time,
        asked: Option<u64>,
        own: Option<&A>,
    ) -> LockedEntry<'_, A> {
        self.make_room(now);
        let held = self.find(key, now, own);
        if held.is_known() || self.has_room() {
            return held;
        }
        drop(held);
        self.counts.overflowed.fetch_add(1, Ordering::Relaxed);
        if let Some(cost) = asked
            && let Some(held) = self.overflow_refuses(now, cost)
        {
            return held;
        }
        self.find(Fingerprint::OVERFLOW, now, None)
    }

    /// The overflow counter under a read lock, if it refuses `cost` and does not count refusals.
    fn overflow_refuses(&self, now: Time, cost: u64) -> Option<LockedEntry<'_, A>> {
        let part = read(&self.overflow.0);
        if part.algorithm.counts_refusals() {
            return None;
        }
        let key = Fingerprint::OVERFLOW;
        let slot = part.slots.find(key.get());
        let held = LockedEntry { slot, ..LockedEntry::unknown(self, Guard::Refused(part), key) };
        held.check(now, cost).is_err().then_some(held)
    }

    /// Checks and charges one key where there is no other limit.
    #[inline]
    pub(super) fn acquire(&self, key: Fingerprint, now: Time, cost: u64, own: Option<&A>) -> CheckResult {
        let mut part = lock(&self.shard(key).0);
        if own.is_some() || part.own.contains(key.get()) {
            drop(part);
            return self.acquire_slowly(self.find(key, now, own), now, cost);
        }
        let ShardState { algorithm, slots, .. } = &mut *part;
        match slots.acquire(key.get(), algorithm, now, cost) {
            Ok((answer, usage)) => {
                CheckResult { answer: answer.map(|(delay, _)| delay), usage, key, added: false }
            }
            Err(slot) => {
                let part = Guard::Exclusive(Exclusive::Shard(part));
                self.acquire_slowly(LockedEntry { slot, ..LockedEntry::unknown(self, part, key) }, now, cost)
            }
        }
    }

    /// Like [`acquire`](Self::acquire), for a key without a state in a word. A new key gets a state if it then owes
    /// something.
    #[inline(never)]
    fn acquire_slowly<'a>(&'a self, held: LockedEntry<'a, A>, now: Time, cost: u64) -> CheckResult {
        let mut held = if held.is_known() { held } else { self.lock_unknown(held, now, Some(cost)) };
        if let Guard::Refused(_) = held.part {
            let (answer, usage) = (held.check(now, cost), held.usage(now));
            return CheckResult { answer, usage, key: held.key, added: false };
        }
        let (answer, usage) = if held.is_known() {
            held.change(now, |algorithm, state| algorithm.acquire(state, now, cost))
        } else {
            let mut state = A::State::default();
            let acquired = held.algorithm().acquire(&mut state, now, cost);
            if !held.algorithm().is_idle(&state, now) {
                held.change(now, |_, new| *new = state);
            }
            acquired
        };
        CheckResult { answer: answer.map(|(delay, _)| delay), usage, key: held.key, added: held.added }
    }

    /// Locks the part that a key is in. The state of the key is converted if it counted under another quota until now.
    #[inline]
    fn find(&self, key: Fingerprint, now: Time, own: Option<&A>) -> LockedEntry<'_, A> {
        let mut part = self.part(key);
        let own = own.filter(|own| **own != part.algorithm);
        let converted = match own.is_some() || part.own.contains(key.get()) {
            true => part.convert(key.get(), own, now),
            false => None,
        };
        let slot = part.slots.find(key.get());
        let part = Guard::Exclusive(part);
        LockedEntry { slot, own: own.cloned(), converted, ..LockedEntry::unknown(self, part, key) }
    }

    fn has_room(&self) -> bool {
        self.entries() < self.max_keys.load(Ordering::Relaxed)
    }

    /// The quota that a key has now.
    pub(super) fn algorithm_of(&self, key: Fingerprint) -> A {
        self.part(key).algorithm_of(key.get()).clone()
    }

    /// The quota in force.
    pub(super) fn algorithm(&self) -> A {
        lock(&self.shards[0].0).algorithm.clone()
    }

    /// Takes another quota and bound, and converts the states, shard by shard.
    pub(super) fn reconfigure(&self, algorithm: &A, max_keys: usize, now: Time) {
        self.max_keys.store(max_keys, Ordering::Relaxed);
        for shard in &self.shards {
            lock(&shard.0).reconfigure(algorithm, now);
        }
        write(&self.overflow.0).reconfigure(algorithm, now);
    }

    fn remove(&self, part: &mut ShardState<A>, slot: usize) {
        if part.slots.remove(slot) != Fingerprint::OVERFLOW.get() {
            self.counts.entries.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Removes a key, in whichever place it is; returns whether it had a state.
    fn remove_key(&self, part: &mut ShardState<A>, key: Fingerprint) -> bool {
        if part.own.remove(key.get()).is_some() {
            self.counts.entries.fetch_sub(1, Ordering::Relaxed);
            return true;
        }
        let slot = part.slots.find(key.get());
        if let Some(slot) = slot {
            self.remove(part, slot);
        }
        slot.is_some()
    }
}

impl<'a, A: StateCodec> LockedEntry<'a, A> {
    /// An entry that has no state.
    #[inline]
    fn unknown(table: &'a Table<A>, part: Guard<'a, ShardState<A>>, key: Fingerprint) -> Self {
        Self { table, part, key, slot: None, own: None, converted: None, added: false }
    }

    /// Whether the key has a state.
    #[inline]
    fn is_known(&self) -> bool {
        self.slot.is_some() || (self.own.is_some() && self.part.own.contains(self.key.get()))
    }

    /// The key that is locked: the requested one, or that of the overflow counter.
    pub(super) fn key(&self) -> Fingerprint {
        self.key
    }

    #[inline]
    pub(super) fn check(&self, now: Time, cost: u64) -> Result<Span, Refusal> {
        self.inspect(|algorithm, state| algorithm.check(state, now, cost))
    }

    #[inline]
    pub(super) fn charge(&mut self, now: Time, cost: u64) -> Receipt {
        self.change(now, |algorithm, state| algorithm.charge(state, now, cost))
    }

    pub(super) fn refused(&mut self, now: Time, cost: u64) {
        // Only an algorithm that counts refusals changes the state; a new key then gets one.
        let mut state = A::State::default();
        if !self.is_known() {
            self.algorithm().refused(&mut state, now, cost);
            if self.algorithm().is_idle(&state, now) {
                return;
            }
        }
        self.change(now, |algorithm, state| algorithm.refused(state, now, cost));
    }

    /// Charges what a request cost above what it was charged.
    pub(super) fn settle(&mut self, now: Time, cost: u64) {
        self.change(now, |algorithm, state| algorithm.settle(state, now, cost));
    }

    /// Keeps a charge of `cost` that may be refunded; returns its ticket.
    pub(super) fn open(&mut self, cost: u64, receipt: Receipt) -> u32 {
        let charge = self.algorithm().charged(cost, receipt);
        match &mut self.part {
            Guard::Exclusive(part) => part.open.put(self.key.get(), charge),
            Guard::Refused(_) => u32::MAX, // unreachable: nothing was charged
        }
    }

    /// The algorithm with the quota of the key.
    #[inline]
    pub(super) fn algorithm(&self) -> &A {
        self.own.as_ref().unwrap_or(&self.part.algorithm)
    }

    #[inline]
    pub(super) fn usage(&self, now: Time) -> Usage {
        self.inspect(|algorithm, state| algorithm.usage(state, now))
    }

    #[inline]
    fn inspect<T>(&self, look: impl Fn(&A, &A::State) -> T) -> T {
        let ShardState { algorithm, slots, own, .. } = &*self.part;
        if let Some(algorithm) = &self.own {
            return match own.get(self.key.get()) {
                Some(own) => look(algorithm, &own.state),
                None => look(algorithm, &A::State::default()),
            };
        }
        let known = self.slot.and_then(|slot| slots.inspect(slot, |state| look(algorithm, state)));
        known.unwrap_or_else(|| look(algorithm, &A::State::default()))
    }

    #[inline]
    fn change<T>(&mut self, now: Time, change: impl FnOnce(&A, &mut A::State) -> T) -> T {
        let Guard::Exclusive(part) = &mut self.part else {
            // A refusal that is not counted changes nothing.
            return change(&self.part.algorithm, &mut A::State::default());
        };
        if let Some(algorithm) = &self.own {
            if !part.own.contains(self.key.get()) {
                self.table.counts.entries.fetch_add(1, Ordering::Relaxed);
                self.added = true;
                part.own.insert(self.key.get(), algorithm.clone(), A::State::default());
            }
            let known = part.own.get_mut(self.key.get()).map(|own| &mut own.state);
            return change(algorithm, known.unwrap_or(&mut A::State::default()));
        }
        let slot = match self.slot {
            Some(slot) => slot,
            None => {
                if self.key != Fingerprint::OVERFLOW {
                    self.table.counts.entries.fetch_add(1, Ordering::Relaxed);
                }
                self.added = true;
                part.slots.insert(self.key.get())
            }
        };
        self.slot = Some(slot);
        let ShardState { algorithm, slots, .. } = &mut **part;
        slots.change(slot, algorithm, now, |state| change(algorithm, state))
    }
}

#[cfg(all(test, not(feature = "model")))]
mod own_tests;
#[cfg(all(test, not(feature = "model")))]
mod tests;
