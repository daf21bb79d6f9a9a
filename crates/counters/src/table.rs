//! The counters of one limit: a sharded table of bounded size that never forgets a debt.

mod guard;
mod sweep;

use sluicegate_limiter::{Receipt, Refusal, Span, Time, Usage};

use self::guard::{Exclusive, Guard};
use super::hash_table::HashTable;
use super::open_charges::OpenCharges;
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
    part: Guard<'a, A>,
    key: Fingerprint,
    slot: Option<usize>,
    /// Whether the key was added to the table.
    pub(super) added: bool,
}

impl<A: StateCodec> Table<A> {
    pub(super) fn new(algorithm: A, max_keys: usize) -> Self {
        // With fewer shards, one takes longer to grow; with more, less of the data that all requests need is in the caches.
        let shards =
            if cfg!(feature = "model") { 2 } else { (max_keys / 8192).next_power_of_two().clamp(16, 1024) };
        let part = || ShardState {
            algorithm: algorithm.clone(),
            slots: HashTable::new(),
            hand: 0,
            open: OpenCharges::default(),
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
        self.keys_in(COUNTED, now)
    }

    fn keys_in(&self, slots: usize, now: Time) -> usize {
        let each = slots / self.shards.len();
        let (mut seen, mut owing) = (0, 0);
        for shard in &self.shards {
            for from in (0..each).step_by(COUNTED_AT_ONCE) {
                let part = lock(&shard.0);
                if from >= part.slots.size() {
                    break;
                }
                let (keys, owe) = part.slots.count(from, COUNTED_AT_ONCE, &part.algorithm, now);
                seen += keys as u64;
                owing += owe as u64;
            }
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
    fn part(&self, key: Fingerprint) -> Exclusive<'_, A> {
        match key {
            Fingerprint::OVERFLOW => Exclusive::Overflow(write(&self.overflow.0)),
            _ => Exclusive::Shard(lock(&self.shard(key).0)),
        }
    }

    /// Locks the state of `key`, or the overflow counter if there is no room for a new key. `asked` is the cost, if the key is
    /// charged only after a check.
    #[inline]
    pub(super) fn lock_key(&self, key: Fingerprint, now: Time, asked: Option<u64>) -> LockedEntry<'_, A> {
        let held = self.find(key);
        if held.slot.is_some() { held } else { self.lock_unknown(held, now, asked) }
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
        let key = held.key;
        drop(held);
        self.lock_when_full(key, now, asked)
    }

    #[cold]
    fn lock_when_full(&self, key: Fingerprint, now: Time, asked: Option<u64>) -> LockedEntry<'_, A> {
        self.make_room(now);
        let held = self.find(key);
        if held.slot.is_some() || self.has_room() {
            return held;
        }
        drop(held);
        self.counts.overflowed.fetch_add(1, Ordering::Relaxed);
        if let Some(cost) = asked
            && let Some(held) = self.overflow_refuses(now, cost)
        {
            return held;
        }
        self.find(Fingerprint::OVERFLOW)
    }

    /// The overflow counter under a read lock, if it refuses `cost` and does not count refusals.
    fn overflow_refuses(&self, now: Time, cost: u64) -> Option<LockedEntry<'_, A>> {
        let part = read(&self.overflow.0);
        if part.algorithm.counts_refusals() {
            return None;
        }
        let key = Fingerprint::OVERFLOW;
        let slot = part.slots.find(key.get());
        let held = LockedEntry { table: self, part: Guard::Refused(part), key, slot, added: false };
        held.check(now, cost).is_err().then_some(held)
    }

    /// Checks and charges one key where there is no other limit.
    #[inline]
    pub(super) fn acquire(&self, key: Fingerprint, now: Time, cost: u64) -> CheckResult {
        let mut part = lock(&self.shard(key).0);
        let ShardState { algorithm, slots, .. } = &mut *part;
        match slots.acquire(key.get(), algorithm, now, cost) {
            Ok((answer, usage)) => {
                CheckResult { answer: answer.map(|(delay, _)| delay), usage, key, added: false }
            }
            Err(slot) => {
                let part = Guard::Exclusive(Exclusive::Shard(part));
                self.acquire_slowly(LockedEntry { table: self, part, key, slot, added: false }, now, cost)
            }
        }
    }

    /// Like [`acquire`](Self::acquire), for a key without a state in a word. A new key gets a state if it then owes
    /// something.
    #[inline(never)]
    fn acquire_slowly<'a>(&'a self, held: LockedEntry<'a, A>, now: Time, cost: u64) -> CheckResult {
        let mut held = if held.slot.is_some() { held } else { self.lock_unknown(held, now, Some(cost)) };
        if let Guard::Refused(_) = held.part {
            let (answer, usage) = (held.check(now, cost), held.usage(now));
            return CheckResult { answer, usage, key: held.key, added: false };
        }
        let (answer, usage) = match held.slot {
            Some(_) => held.change(now, |algorithm, state| algorithm.acquire(state, now, cost)),
            None => {
                let mut state = A::State::default();
                let acquired = held.part.algorithm.acquire(&mut state, now, cost);
                if !held.part.algorithm.is_idle(&state, now) {
                    held.change(now, |_, new| *new = state);
                }
                acquired
            }
        };
        CheckResult { answer: answer.map(|(delay, _)| delay), usage, key: held.key, added: held.added }
    }

    #[inline]
    fn find(&self, key: Fingerprint) -> LockedEntry<'_, A> {
        let part = self.part(key);
        let slot = part.slots.find(key.get());
        LockedEntry { table: self, part: Guard::Exclusive(part), key, slot, added: false }
    }

    fn has_room(&self) -> bool {
        self.entries() < self.max_keys.load(Ordering::Relaxed)
    }

    /// The usage of `key`; `None` if it has no state.
    pub(super) fn usage(&self, key: Fingerprint, now: Time) -> Option<Usage> {
        let part = self.part(key);
        part.slots.inspect(part.slots.find(key.get())?, |state| part.algorithm.usage(state, now))
    }

    /// The debt of `key` in whole requests, rounded up.
    pub(super) fn owed(&self, key: Fingerprint, now: Time) -> u64 {
        let part = self.part(key);
        let owed = |slot| part.slots.inspect(slot, |state| part.algorithm.owed(state, now));
        part.slots.find(key.get()).and_then(owed).unwrap_or(0)
    }

    /// The usage of a key that was never seen.
    pub(super) fn fresh(&self, now: Time) -> Usage {
        lock(&self.shards[0].0).algorithm.usage(&A::State::default(), now)
    }

    /// Removes the state of `key`; returns whether it had one.
    pub(super) fn pardon(&self, key: Fingerprint) -> bool {
        let mut part = self.part(key);
        let found = part.slots.find(key.get());
        if let Some(slot) = found {
            self.remove(&mut part, slot);
        }
        found.is_some()
    }

    /// Ends the charge of `key` with this ticket and refunds the last `cost` of the `whole` that was charged. `first` is called
    /// before that, while the key is locked.
    pub(super) fn give_back(
        &self,
        key: Fingerprint,
        now: Time,
        ticket: u32,
        (cost, whole): (u64, u64),
        first: impl FnOnce(&A),
    ) {
        let mut guard = self.part(key);
        let part = &mut *guard;
        let ShardState { algorithm, slots, open, .. } = &mut *part;
        first(algorithm);
        let idle = open.take(key.get(), ticket, |charge, others| {
            let slot = slots.find(key.get()).filter(|_| cost > 0)?;
            let idle = slots.change(slot, algorithm, now, |state| {
                algorithm.take_back(state, now, charge.last_part(cost, whole), others);
                algorithm.is_idle(state, now)
            });
            idle.then_some(slot)
        });
        if let Some(Some(slot)) = idle {
            self.remove(part, slot);
        }
    }

    /// Frees places, which do not depend on the time.
    pub(super) fn free(&self, key: Fingerprint, places: u64) {
        let mut guard = self.part(key);
        let part = &mut *guard;
        let ShardState { algorithm, slots, .. } = &mut *part;
        let Some(slot) = slots.find(key.get()) else { return };
        let idle = slots.change(slot, algorithm, Time::EPOCH, |state| {
            algorithm.refund(state, Time::EPOCH, places, Receipt::default());
            algorithm.is_idle(state, Time::EPOCH)
        });
        if idle {
            self.remove(part, slot);
        }
    }

    /// The refusal of a request by the state of `key`.
    pub(super) fn refusal(&self, key: Fingerprint, now: Time, cost: u64) -> Option<Refusal> {
        let part = self.part(key);
        let check = |state: &A::State| part.algorithm.check(state, now, cost).err();
        match part.slots.find(key.get()) {
            Some(slot) => part.slots.inspect(slot, check)?,
            None => check(&A::State::default()),
        }
    }

    /// Removes all keys.
    pub(super) fn forget(&self) {
        for shard in &self.shards {
            let mut part = lock(&shard.0);
            let gone = part.slots.clear();
            self.counts.entries.fetch_sub(gone, Ordering::Relaxed);
        }
        self.pardon(Fingerprint::OVERFLOW);
    }

    /// Replaces the state of `key` by `state`, which a store counted under the quota `counted_by`, if there is room for the key.
    /// Returns whether the key is new.
    pub(super) fn learn(&self, key: Fingerprint, counted_by: &A, mut state: A::State, now: Time) -> bool {
        for full_before in [false, true] {
            let mut guard = self.part(key);
            let part = &mut *guard;
            if !full_before {
                part.algorithm.rescale(counted_by, &mut state, now);
            }
            let idle = part.algorithm.is_idle(&state, now);
            match part.slots.find(key.get()) {
                Some(slot) if idle => self.remove(part, slot),
                Some(slot) => part.put(slot, std::mem::take(&mut state), now),
                None if idle => {}
                None if self.has_room() => {
                    self.counts.entries.fetch_add(1, Ordering::Relaxed);
                    let slot = part.slots.insert(key.get());
                    part.put(slot, state, now);
                    return true;
                }
                None if !full_before => {
                    drop(guard);
                    self.make_room(now);
                    continue;
                }
                None => {}
            }
            break;
        }
        false
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
}

impl<A: StateCodec> ShardState<A> {
    fn put(&mut self, slot: usize, state: A::State, now: Time) {
        self.slots.change(slot, &self.algorithm, now, |known| *known = state);
    }

    /// Takes another quota and converts the states.
    fn reconfigure(&mut self, algorithm: &A, now: Time) {
        let Self { algorithm: current, slots, open, .. } = self;
        if current == algorithm {
            return;
        }
        let old = std::mem::replace(current, algorithm.clone());
        open.each(|key, charges| {
            let known = slots.find(key);
            known.and_then(|slot| slots.inspect(slot, |state| algorithm.carry(&old, state, now, charges)));
        });
        slots.change_all(current, now, |state| current.rescale(&old, state, now));
    }
}

impl<A: StateCodec> LockedEntry<'_, A> {
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
        if self.slot.is_none() {
            self.part.algorithm.refused(&mut state, now, cost);
            if self.part.algorithm.is_idle(&state, now) {
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
        let charge = self.part.algorithm.charged(cost, receipt);
        match &mut self.part {
            Guard::Exclusive(part) => part.open.put(self.key.get(), charge),
            Guard::Refused(_) => u32::MAX, // unreachable: nothing was charged
        }
    }

    /// The algorithm of the limit.
    pub(super) fn algorithm(&self) -> &A {
        &self.part.algorithm
    }

    #[inline]
    pub(super) fn usage(&self, now: Time) -> Usage {
        self.inspect(|algorithm, state| algorithm.usage(state, now))
    }

    #[inline]
    fn inspect<T>(&self, look: impl Fn(&A, &A::State) -> T) -> T {
        let ShardState { algorithm, slots, .. } = &*self.part;
        let known = self.slot.and_then(|slot| slots.inspect(slot, |state| look(algorithm, state)));
        known.unwrap_or_else(|| look(algorithm, &A::State::default()))
    }

    #[inline]
    fn change<T>(&mut self, now: Time, change: impl FnOnce(&A, &mut A::State) -> T) -> T {
        let Guard::Exclusive(part) = &mut self.part else {
            // A refusal that is not counted changes nothing.
            return change(&self.part.algorithm, &mut A::State::default());
        };
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
mod tests;
