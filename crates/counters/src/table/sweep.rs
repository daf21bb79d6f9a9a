//! Removes keys that owe nothing, to make room for others.

use sluicegate_limiter::Time;

use super::super::state_codec::StateCodec;
use super::super::sync::{Ordering, lock, write};
use super::{Shard, ShardState, Table};
use crate::Fingerprint;

/// The number of slots that are visited for idle keys when a key is added.
const SWEEP_ON_INSERT: usize = 8;
/// The number of slots that are visited when a key finds no room.
const SWEEP_WHEN_FULL: usize = 256;

impl<A: StateCodec> Table<A> {
    /// Visits a few slots after a key was added, in its own shard, which is in the caches.
    pub(crate) fn sweep_a_little(&self, key: Fingerprint, now: Time) {
        self.sweep(&mut self.part(key), now, SWEEP_ON_INSERT);
    }

    /// Searches one shard after the other for keys that owe nothing: in a small table the only one may be in any of them. No
    /// shard of the table may be locked.
    pub(super) fn make_room(&self, now: Time) {
        let mut left = SWEEP_WHEN_FULL;
        for _ in &self.shards {
            let visited = self.sweep(&mut lock(&self.next_shard().0), now, left);
            left = left.saturating_sub(visited.max(1)); // a lock has a cost too
            if left == 0 || self.has_room() {
                break;
            }
        }
        if self.has_room() {
            self.sweep(&mut write(&self.overflow.0), now, SWEEP_ON_INSERT);
        }
    }

    /// Visits the next `slots` slots of a part, or all if there are fewer, and removes the keys that owe nothing. Returns the
    /// number of visited slots.
    fn sweep(&self, part: &mut ShardState<A>, now: Time, slots: usize) -> usize {
        let visited = slots.min(part.slots.size());
        let mut left = visited;
        let mut at = if part.hand < part.slots.size() { part.hand } else { 0 };
        while left > 0 {
            let passed = part.slots.before_idle(at, left, &part.algorithm, now);
            at = part.slots.after(at, passed);
            left -= passed;
            if left > 0 {
                // A key that moves into the gap is visited next.
                self.remove(part, at);
                left -= 1;
            }
        }
        part.hand = at;
        let removed = part.own.sweep(slots, now);
        if removed > 0 {
            self.counts.entries.fetch_sub(removed, Ordering::Relaxed);
        }
        visited
    }

    /// The shard that is swept when there is no room: each in turn.
    fn next_shard(&self) -> &Shard<A> {
        &self.shards[self.counts.hand.fetch_add(1, Ordering::Relaxed) & (self.shards.len() - 1)]
    }
}
