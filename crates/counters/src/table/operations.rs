//! What is done with one key outside of a decision: reading, refunding, removing, and learning what a store counted.

use sluicegate_limiter::{Charge, Receipt, Refusal, Time, Usage};

use super::super::state_codec::StateCodec;
use super::super::sync::{Ordering, lock};
use super::{ShardState, Table};
use crate::Fingerprint;

impl<A: StateCodec> Table<A> {
    /// The usage of `key` under the quota with which it was last counted; `None` if it has no state.
    pub(crate) fn usage(&self, key: Fingerprint, now: Time) -> Option<Usage> {
        self.part(key).look(key.get(), |algorithm, state| algorithm.usage(state, now))
    }

    /// The usage of `key` that a request would meet, under the quota `own` if the key has one of its own; `None` if it has no
    /// state.
    pub(crate) fn usage_under(&self, key: Fingerprint, now: Time, own: Option<&A>) -> Option<Usage> {
        let part = self.part(key);
        let wanted = own.unwrap_or(&part.algorithm);
        part.look_under(key.get(), now, wanted, |state| wanted.usage(state, now))
    }

    /// The quota and the state that a request of `key` would meet, under the quota `own` if the key has one of its own.
    pub(crate) fn copy(&self, key: Fingerprint, now: Time, own: Option<&A>) -> (A, A::State) {
        let part = self.part(key);
        let wanted = own.unwrap_or(&part.algorithm).clone();
        let known = part.look_under(key.get(), now, &wanted, A::State::clone);
        drop(part);
        match known {
            Some(state) => (wanted, state),
            None if own.is_none() && key != Fingerprint::OVERFLOW && !self.has_room() => {
                self.copy(Fingerprint::OVERFLOW, now, None)
            }
            None => (wanted, A::State::default()),
        }
    }

    /// The debt of `key` in whole requests, rounded up.
    pub(crate) fn owed(&self, key: Fingerprint, now: Time) -> u64 {
        self.part(key).look(key.get(), |algorithm, state| algorithm.owed(state, now)).unwrap_or(0)
    }

    /// The usage of a key that was never seen and has no quota of its own.
    pub(crate) fn fresh(&self, now: Time) -> Usage {
        lock(&self.shards[0].0).algorithm.usage(&A::State::default(), now)
    }

    /// Removes the state of `key`; returns whether it had one.
    pub(crate) fn pardon(&self, key: Fingerprint) -> bool {
        let mut part = self.part(key);
        part.open.of(key.get()).fill(Charge::NONE); // they are forgotten too: later charges are not theirs to give back
        self.remove_key(&mut part, key)
    }

    /// Ends the charge of `key` with this ticket and refunds the last `cost` of the `whole` that was charged. `first` is called
    /// before that, while the key is locked.
    pub(crate) fn give_back(
        &self,
        key: Fingerprint,
        now: Time,
        ticket: u32,
        (cost, whole): (u64, u64),
        first: impl FnOnce(&A),
    ) {
        let mut guard = self.part(key);
        let part = &mut *guard;
        first(part.algorithm_of(key.get()));
        let ShardState { algorithm, slots, open, own, .. } = &mut *part;
        let idle = open.take(key.get(), ticket, |charge, others| {
            let mut take_back = |algorithm: &A, state: &mut A::State| {
                algorithm.take_back(state, now, charge.last_part(cost, whole), others);
                algorithm.is_idle(state, now)
            };
            if cost == 0 {
                return false;
            }
            if let Some(own) = own.get_mut(key.get()) {
                return take_back(&own.algorithm, &mut own.state);
            }
            let Some(slot) = slots.find(key.get()) else { return false };
            slots.change(slot, algorithm, now, |state| take_back(algorithm, state))
        });
        if idle == Some(true) {
            self.remove_key(part, key);
        }
    }

    /// Frees places, which do not depend on the time.
    pub(crate) fn free(&self, key: Fingerprint, places: u64) {
        let mut part = self.part(key);
        let idle = part.alter(key.get(), Time::EPOCH, |algorithm, state| {
            algorithm.refund(state, Time::EPOCH, places, Receipt::default());
            algorithm.is_idle(state, Time::EPOCH)
        });
        if idle == Some(true) {
            self.remove_key(&mut part, key);
        }
    }

    /// The refusal of a request by the state of `key`, under the quota `own` if the key has one of its own.
    pub(crate) fn refusal(&self, key: Fingerprint, now: Time, cost: u64, own: Option<&A>) -> Option<Refusal> {
        let part = self.part(key);
        let wanted = own.unwrap_or(&part.algorithm);
        let known = part.look(key.get(), |algorithm, state| {
            if algorithm == wanted {
                return wanted.check(state, now, cost).err();
            }
            let mut state = state.clone(); // a change of its quota that no request has met yet
            wanted.rescale(algorithm, &mut state, now);
            wanted.check(&state, now, cost).err()
        });
        known.unwrap_or_else(|| wanted.check(&A::State::default(), now, cost).err())
    }

    /// Whether the state of a key was counted under the quota that it has now. `own` is that quota, if the key has one of its own.
    pub(crate) fn is_current(&self, key: Fingerprint, own: Option<&A>) -> bool {
        let part = self.part(key);
        let wanted = own.unwrap_or(&part.algorithm);
        part.look(key.get(), |algorithm, _| algorithm == wanted).unwrap_or(true)
    }

    /// Removes all keys.
    pub(crate) fn forget(&self) {
        for shard in &self.shards {
            let mut part = lock(&shard.0);
            part.open.each(|_, charges| charges.fill(Charge::NONE));
            let gone = part.slots.clear() + part.own.clear();
            self.counts.entries.fetch_sub(gone, Ordering::Relaxed);
        }
        self.pardon(Fingerprint::OVERFLOW);
    }

    /// Replaces the state of `key` by `state`, which a store counted under the quota `counted_by`, if there is room for the key.
    /// `own` is the quota of the key, if it has one of its own. Returns whether the key is new.
    pub(crate) fn learn(
        &self,
        key: Fingerprint,
        (counted_by, mut state): (&A, A::State),
        now: Time,
        own: Option<&A>,
    ) -> bool {
        for full_before in [false, true] {
            let mut guard = self.part(key);
            let part = &mut *guard;
            let own = own.filter(|own| **own != part.algorithm);
            let algorithm = own.unwrap_or(&part.algorithm);
            if !full_before {
                algorithm.rescale(counted_by, &mut state, now);
            }
            if algorithm.is_idle(&state, now) {
                self.remove_key(part, key);
                return false;
            }
            let is_known = part.own.contains(key.get()) || part.slots.find(key.get()).is_some();
            if is_known || self.has_room() {
                if !is_known {
                    self.counts.entries.fetch_add(1, Ordering::Relaxed);
                }
                part.replace(key.get(), state, own, now);
                return !is_known;
            }
            drop(guard);
            if !full_before {
                self.make_room(now);
            }
        }
        false
    }
}
