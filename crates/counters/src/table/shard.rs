//! The states of one shard: in slots under the quota of the table, or apart from them under quotas of their own.

use sluicegate_limiter::Time;

use super::super::state_codec::StateCodec;
use super::ShardState;

impl<A: StateCodec> ShardState<A> {
    pub(super) fn put(&mut self, slot: usize, state: A::State, now: Time) {
        self.slots.change(slot, &self.algorithm, now, |known| *known = state);
    }

    /// The algorithm with the quota that a key has now.
    pub(super) fn algorithm_of(&self, key: u64) -> &A {
        self.own.get(key).map_or(&self.algorithm, |own| &own.algorithm)
    }

    /// The result of `look` on the quota and the state of a key; `None` if it has no state.
    pub(super) fn look<T>(&self, key: u64, look: impl FnOnce(&A, &A::State) -> T) -> Option<T> {
        if let Some(own) = self.own.get(key) {
            return Some(look(&own.algorithm, &own.state));
        }
        self.slots.inspect(self.slots.find(key)?, |state| look(&self.algorithm, state))
    }

    /// Looks at the state of a key as it is under the quota `wanted`; `None` if it has none.
    pub(super) fn look_under<T>(
        &self,
        key: u64,
        now: Time,
        wanted: &A,
        look: impl FnOnce(&A::State) -> T,
    ) -> Option<T> {
        self.look(key, |algorithm, state| {
            if algorithm == wanted {
                return look(state);
            }
            let mut state = state.clone();
            wanted.rescale(algorithm, &mut state, now);
            look(&state)
        })
    }

    /// Changes the state of a key; `None` if it has none.
    pub(super) fn alter<T>(
        &mut self,
        key: u64,
        now: Time,
        change: impl FnOnce(&A, &mut A::State) -> T,
    ) -> Option<T> {
        let Self { algorithm, slots, own, .. } = self;
        if let Some(own) = own.get_mut(key) {
            return Some(change(&own.algorithm, &mut own.state));
        }
        let slot = slots.find(key)?;
        Some(slots.change(slot, algorithm, now, |state| change(algorithm, state)))
    }

    /// Converts the state of a key, and its charges that may be refunded, to the quota `own`, or to that of the table if there
    /// is none. Returns the quota under which it counted until now, if that was another one.
    #[cold]
    pub(super) fn convert(&mut self, key: u64, own: Option<&A>, now: Time) -> Option<A> {
        let old = self.algorithm_of(key).clone();
        let new = own.unwrap_or(&self.algorithm).clone();
        if old == new && own.is_some() == self.own.contains(key) {
            return None;
        }
        let mut state = self.take(key, now)?;
        new.carry(&old, &state, now, self.open.of(key));
        new.rescale(&old, &mut state, now);
        self.replace(key, state, own, now);
        Some(old)
    }

    /// Sets the state of a key, which counts under the quota `own`, or that of the table if there is none.
    pub(super) fn replace(&mut self, key: u64, state: A::State, own: Option<&A>, now: Time) {
        match own {
            Some(own) => {
                if let Some(slot) = self.slots.find(key) {
                    self.slots.remove(slot);
                }
                self.own.insert(key, own.clone(), state);
            }
            None => {
                self.own.remove(key);
                let slot = self.slots.find(key).unwrap_or_else(|| self.slots.insert(key));
                self.put(slot, state, now);
            }
        }
    }

    /// Takes the state of a key out.
    fn take(&mut self, key: u64, now: Time) -> Option<A::State> {
        if let Some(own) = self.own.remove(key) {
            return Some(own.state);
        }
        let slot = self.slots.find(key)?;
        let state = self.slots.change(slot, &self.algorithm, now, std::mem::take);
        self.slots.remove(slot);
        Some(state)
    }

    /// Takes another quota and converts the states of all keys that have none of their own.
    pub(super) fn reconfigure(&mut self, algorithm: &A, now: Time) {
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
