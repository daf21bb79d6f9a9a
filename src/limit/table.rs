//! The counters of one limit: sharded, bounded, and never forgetting a debt.

use sluicegate_limiter::{Receipt, Refusal, Span, Standing, Time};

use super::kept::Kept;
use super::open::Open;
use super::slots::Slots;
use super::sync::{AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use crate::key::Fingerprint;

/// Slots that are looked at for idle keys whenever a key is added.
const SWEEP_ON_INSERT: usize = 8;
/// Slots that are looked at when a key found no room.
const SWEEP_WHEN_FULL: usize = 256;
/// Slots that are looked at to count the keys of a table. One with two million keys has more than that.
const COUNTED: usize = 1 << 21;
/// Slots that are counted under one lock: where states are large, that takes ten microseconds.
const COUNTED_AT_ONCE: usize = 256;

/// The states of all keys of a limit.
///
/// A key leaves only when it holds no debt, so that pausing never refills a bucket early. At `max_keys` live
/// keys, new ones share the overflow bucket: memory is bounded and nobody's debt is forgotten.
pub(super) struct Table<A: Kept> {
    /// The last shard holds nothing but the overflow bucket.
    shards: Box<[Shard<A>]>,
    /// The keys that have a state. The overflow bucket is none of them, or it would take a key's place for ever.
    entries: AtomicUsize,
    max_keys: AtomicUsize,
    overflowed: AtomicU64,
    /// The shard that is swept next when there is no room.
    hand: AtomicUsize,
}

/// One lock, on a cache line of its own.
#[repr(align(128))]
struct Shard<A: Kept>(Mutex<Part<A>>);

struct Part<A: Kept> {
    /// Each shard has the quota under its own lock, so that a state is never read by another quota than the
    /// one that wrote it, whatever reload runs.
    algorithm: A,
    slots: Slots<A>,
    /// The slot that is swept next.
    hand: usize,
    /// The charges that may still be given back.
    open: Open,
}

/// What the limit of a table says where no other has a say.
pub(super) struct Asked {
    /// The delay, or the refusal.
    pub(super) answer: Result<Span, Refusal>,
    pub(super) standing: Standing,
    /// The key that was really charged.
    pub(super) key: Fingerprint,
    /// Whether the key was added to the table.
    pub(super) added: bool,
}

/// The state of one key, locked.
pub(super) struct Held<'a, A: Kept> {
    table: &'a Table<A>,
    part: MutexGuard<'a, Part<A>>,
    key: Fingerprint,
    slot: Option<usize>,
    /// Whether the key was added to the table.
    pub(super) added: bool,
}

impl<A: Kept> Table<A> {
    pub(super) fn new(algorithm: A, max_keys: usize) -> Self {
        // The fewer there are, the longer one takes to grow; the more, the less of what all requests need do the caches
        // have.
        let shards =
            if cfg!(feature = "model") { 2 } else { (max_keys / 8192).next_power_of_two().clamp(16, 1024) };
        let part =
            || Part { algorithm: algorithm.clone(), slots: Slots::new(), hand: 0, open: Open::default() };
        Self {
            shards: (0..=shards).map(|_| Shard(Mutex::new(part()))).collect(),
            entries: AtomicUsize::new(0),
            max_keys: AtomicUsize::new(max_keys),
            overflowed: AtomicU64::new(0),
            hand: AtomicUsize::new(0),
        }
    }

    /// The keys that have a state: those that owe something, and those that nobody has dropped yet.
    pub(super) fn entries(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// The keys that owe something at `now`. Of a table with more slots than are counted the rest is taken to be like
    /// the part that is looked at, because keys are spread by their hashes.
    pub(super) fn keys(&self, now: Time) -> usize {
        self.keys_by_looking_at(COUNTED, now)
    }

    fn keys_by_looking_at(&self, slots: usize, now: Time) -> usize {
        let each = slots / self.spread().len();
        let (mut seen, mut owing) = (0, 0);
        for shard in self.spread() {
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

    /// The requests that shared the overflow bucket.
    pub(super) fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    fn shard(&self, key: Fingerprint) -> &Shard<A> {
        let spread = self.shards.len() - 1;
        match key {
            Fingerprint::OVERFLOW => &self.shards[spread],
            _ => &self.shards[(key.get() >> 40) as usize & (spread - 1)],
        }
    }

    /// All shards but that of the overflow bucket.
    fn spread(&self) -> &[Shard<A>] {
        &self.shards[..self.shards.len() - 1]
    }

    /// The shard that is swept when there is no room: each in turn, but for the last.
    fn next_shard(&self) -> &Shard<A> {
        &self.shards[self.hand.fetch_add(1, Ordering::Relaxed) & (self.shards.len() - 2)]
    }

    /// Locks the state of `key`, or the overflow bucket if there is no room for a new key.
    #[inline]
    pub(super) fn hold(&self, key: Fingerprint, now: Time) -> Held<'_, A> {
        let held = self.find(key);
        if held.slot.is_some() { held } else { self.hold_unknown(held, now) }
    }

    /// Goes on with a key that has no state.
    #[inline]
    fn hold_unknown<'a>(&'a self, held: Held<'a, A>, now: Time) -> Held<'a, A> {
        if self.has_room() {
            return held;
        }
        let key = held.key;
        drop(held);
        self.hold_when_full(key, now)
    }

    #[cold]
    fn hold_when_full(&self, key: Fingerprint, now: Time) -> Held<'_, A> {
        self.make_room(now);
        let held = self.find(key);
        if held.slot.is_some() || self.has_room() {
            return held;
        }
        drop(held);
        self.overflowed.fetch_add(1, Ordering::Relaxed);
        self.find(Fingerprint::OVERFLOW)
    }

    /// Asks for `cost` of `key` where no other limit has a say.
    #[inline]
    pub(super) fn ask(&self, key: Fingerprint, now: Time, cost: u64) -> Asked {
        let mut part = lock(&self.shard(key).0);
        let Part { algorithm, slots, .. } = &mut *part;
        match slots.ask(key.get(), algorithm, now, cost) {
            Ok((answer, standing)) => {
                Asked { answer: answer.map(|(delay, _)| delay), standing, key, added: false }
            }
            Err(slot) => self.ask_slowly(Held { table: self, part, key, slot, added: false }, now, cost),
        }
    }

    /// Asks for `cost` of a key that has no state, or none in a word. A new one gets a state if it then owes something.
    #[inline(never)]
    fn ask_slowly<'a>(&'a self, held: Held<'a, A>, now: Time, cost: u64) -> Asked {
        let mut held = if held.slot.is_some() { held } else { self.hold_unknown(held, now) };
        let (answer, standing) = match held.slot {
            Some(_) => held.change(now, |algorithm, state| algorithm.ask(state, now, cost)),
            None => {
                let mut state = A::State::default();
                let said = held.part.algorithm.ask(&mut state, now, cost);
                if !held.part.algorithm.is_idle(&state, now) {
                    held.change(now, |_, new| *new = state);
                }
                said
            }
        };
        Asked { answer: answer.map(|(delay, _)| delay), standing, key: held.key, added: held.added }
    }

    #[inline]
    fn find(&self, key: Fingerprint) -> Held<'_, A> {
        let part = lock(&self.shard(key).0);
        let slot = part.slots.find(key.get());
        Held { table: self, part, key, slot, added: false }
    }

    fn has_room(&self) -> bool {
        self.entries() < self.max_keys.load(Ordering::Relaxed)
    }

    /// What is known of `key` without adding it: its standing, or `None` if it has no state.
    pub(super) fn standing(&self, key: Fingerprint, now: Time) -> Option<Standing> {
        let part = lock(&self.shard(key).0);
        part.slots.see(part.slots.find(key.get())?, |state| part.algorithm.standing(state, now))
    }

    /// What `key` owes, in whole requests, rounded up.
    pub(super) fn owed(&self, key: Fingerprint, now: Time) -> u64 {
        let part = lock(&self.shard(key).0);
        let owed = |slot| part.slots.see(slot, |state| part.algorithm.owed(state, now));
        part.slots.find(key.get()).and_then(owed).unwrap_or(0)
    }

    /// The standing of a key that was never seen.
    pub(super) fn fresh(&self, now: Time) -> Standing {
        lock(&self.shards[0].0).algorithm.standing(&A::State::default(), now)
    }

    /// Forgets `key` and its debt; whether it had a state.
    pub(super) fn pardon(&self, key: Fingerprint) -> bool {
        let mut part = lock(&self.shard(key).0);
        let found = part.slots.find(key.get());
        if let Some(slot) = found {
            self.remove(&mut part, slot);
        }
        found.is_some()
    }

    /// Ends the charge of `key` with this ticket and gives back the last `cost` of the `whole` that was charged. `first` is
    /// called before that, while the key is locked.
    pub(super) fn give_back(
        &self,
        key: Fingerprint,
        now: Time,
        ticket: u32,
        (cost, whole): (u64, u64),
        first: impl FnOnce(&A),
    ) {
        let mut guard = lock(&self.shard(key).0);
        let part = &mut *guard;
        let Part { algorithm, slots, open, .. } = &mut *part;
        first(algorithm);
        let idle = open.take(key.get(), ticket, |charge, others| {
            let slot = slots.find(key.get()).filter(|_| cost > 0)?;
            let idle = slots.change(slot, algorithm, now, |state| {
                algorithm.take_back(state, now, charge.last_part(cost, whole), others.iter_mut());
                algorithm.is_idle(state, now)
            });
            idle.then_some(slot)
        });
        if let Some(Some(slot)) = idle {
            self.remove(part, slot);
        }
    }

    /// Frees places, which know no time.
    pub(super) fn free(&self, key: Fingerprint, places: u64) {
        let mut guard = lock(&self.shard(key).0);
        let part = &mut *guard;
        let Part { algorithm, slots, .. } = &mut *part;
        let Some(slot) = slots.find(key.get()) else { return };
        let idle = slots.change(slot, algorithm, Time::EPOCH, |state| {
            algorithm.refund(state, Time::EPOCH, places, Receipt::default());
            algorithm.is_idle(state, Time::EPOCH)
        });
        if idle {
            self.remove(part, slot);
        }
    }

    /// The refusal of a request by what is known of `key`.
    pub(super) fn refusal(&self, key: Fingerprint, now: Time, cost: u64) -> Option<Refusal> {
        let part = lock(&self.shard(key).0);
        let check = |state: &A::State| part.algorithm.check(state, now, cost).err();
        match part.slots.find(key.get()) {
            Some(slot) => part.slots.see(slot, check)?,
            None => check(&A::State::default()),
        }
    }

    /// Forgets all keys.
    pub(super) fn forget(&self) {
        for shard in self.spread() {
            let mut part = lock(&shard.0);
            let gone = part.slots.clear();
            self.entries.fetch_sub(gone, Ordering::Relaxed);
        }
        self.pardon(Fingerprint::OVERFLOW);
    }

    /// Puts `state`, which was counted elsewhere under the quota of `told`, in place of what is known of `key`,
    /// if there is room for the key. Whether the key is new.
    pub(super) fn learn(&self, key: Fingerprint, told: &A, mut state: A::State, now: Time) -> bool {
        for full_before in [false, true] {
            let mut guard = lock(&self.shard(key).0);
            let part = &mut *guard;
            if !full_before {
                part.algorithm.rescale(told, &mut state, now);
            }
            let idle = part.algorithm.is_idle(&state, now);
            match part.slots.find(key.get()) {
                Some(slot) if idle => self.remove(part, slot),
                Some(slot) => part.put(slot, std::mem::take(&mut state), now),
                None if idle => {}
                None if self.has_room() => {
                    self.entries.fetch_add(1, Ordering::Relaxed);
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

    /// Takes another quota and bound; standing states are carried over shard by shard.
    pub(super) fn reconfigure(&self, algorithm: &A, max_keys: usize, now: Time) {
        self.max_keys.store(max_keys, Ordering::Relaxed);
        for shard in &self.shards {
            let mut guard = lock(&shard.0);
            let Part { algorithm: current, slots, open, .. } = &mut *guard;
            if current == algorithm {
                continue;
            }
            let old = std::mem::replace(current, algorithm.clone());
            open.each(|key, charges| {
                let known = slots.find(key);
                known.and_then(|slot| slots.see(slot, |state| algorithm.carry(&old, state, now, charges)));
            });
            slots.change_all(current, now, |state| current.rescale(&old, state, now));
        }
    }

    /// Looks at a few slots for a key that was added: of its own shard, which the caches have.
    pub(super) fn sweep_a_little(&self, key: Fingerprint, now: Time) {
        self.sweep(self.shard(key), now, SWEEP_ON_INSERT);
    }

    /// Looks for keys that owe nothing, in one shard after the other: where a table is small, the only one may be in
    /// any of them. No shard of the table may be locked.
    fn make_room(&self, now: Time) {
        let mut left = SWEEP_WHEN_FULL;
        for _ in self.spread() {
            let looked_at = self.sweep(self.next_shard(), now, left);
            left = left.saturating_sub(looked_at.max(1)); // a lock is work, too
            if left == 0 || self.has_room() {
                break;
            }
        }
        if self.has_room() {
            self.sweep(self.shard(Fingerprint::OVERFLOW), now, SWEEP_ON_INSERT);
        }
    }

    /// Looks at the next `slots` slots of a shard, or at all if there are fewer, and drops the keys that owe nothing.
    /// How many it looked at.
    fn sweep(&self, shard: &Shard<A>, now: Time, slots: usize) -> usize {
        let mut guard = lock(&shard.0);
        let part = &mut *guard;
        let looked_at = slots.min(part.slots.size());
        let mut left = looked_at;
        let mut at = if part.hand < part.slots.size() { part.hand } else { 0 };
        while left > 0 {
            let passed = part.slots.before_idle(at, left, &part.algorithm, now);
            at = part.slots.after(at, passed);
            left -= passed;
            if left > 0 {
                // What moves into the gap is looked at next.
                self.remove(part, at);
                left -= 1;
            }
        }
        part.hand = at;
        looked_at
    }

    fn remove(&self, part: &mut Part<A>, slot: usize) {
        if part.slots.remove(slot) != Fingerprint::OVERFLOW.get() {
            self.entries.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl<A: Kept> Part<A> {
    fn put(&mut self, slot: usize, state: A::State, now: Time) {
        self.slots.change(slot, &self.algorithm, now, |known| *known = state);
    }
}

impl<A: Kept> Held<'_, A> {
    /// The key that is really held: the asked one, or the overflow bucket's.
    pub(super) fn key(&self) -> Fingerprint {
        self.key
    }

    #[inline]
    pub(super) fn check(&self, now: Time, cost: u64) -> Result<Span, Refusal> {
        self.see(|algorithm, state| algorithm.check(state, now, cost))
    }

    #[inline]
    pub(super) fn charge(&mut self, now: Time, cost: u64) -> Receipt {
        self.change(now, |algorithm, state| algorithm.charge(state, now, cost))
    }

    pub(super) fn refused(&mut self, now: Time, cost: u64) {
        // Only an algorithm that counts refusals changes anything; a new key then gets a state.
        let mut state = A::State::default();
        if self.slot.is_none() {
            self.part.algorithm.refused(&mut state, now, cost);
            if self.part.algorithm.is_idle(&state, now) {
                return;
            }
        }
        self.change(now, |algorithm, state| algorithm.refused(state, now, cost));
    }

    /// Charges what a request cost more than was taken.
    pub(super) fn settle(&mut self, now: Time, cost: u64) {
        self.change(now, |algorithm, state| algorithm.settle(state, now, cost));
    }

    /// Keeps a charge of `cost` that may be given back; its ticket.
    pub(super) fn open(&mut self, cost: u64, receipt: Receipt) -> u32 {
        let charge = self.part.algorithm.charged(cost, receipt);
        self.part.open.put(self.key.get(), charge)
    }

    #[inline]
    pub(super) fn standing(&self, now: Time) -> Standing {
        self.see(|algorithm, state| algorithm.standing(state, now))
    }

    #[inline]
    fn see<T>(&self, look: impl Fn(&A, &A::State) -> T) -> T {
        let Part { algorithm, slots, .. } = &*self.part;
        let known = self.slot.and_then(|slot| slots.see(slot, |state| look(algorithm, state)));
        known.unwrap_or_else(|| look(algorithm, &A::State::default()))
    }

    #[inline]
    fn change<T>(&mut self, now: Time, change: impl FnOnce(&A, &mut A::State) -> T) -> T {
        let slot = match self.slot {
            Some(slot) => slot,
            None => {
                if self.key != Fingerprint::OVERFLOW {
                    self.table.entries.fetch_add(1, Ordering::Relaxed);
                }
                self.added = true;
                self.part.slots.insert(self.key.get())
            }
        };
        self.slot = Some(slot);
        let Part { algorithm, slots, .. } = &mut *self.part;
        slots.change(slot, algorithm, now, |state| change(algorithm, state))
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests;
