//! Making room: keys that owe nothing leave.

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
    /// Looks at a few slots for a key that was added: of its own shard, which the caches have.
    pub(crate) fn sweep_a_little(&self, key: Fingerprint, now: Time) {
        self.sweep(&mut self.part(key), now, SWEEP_ON_INSERT);
    }

    /// Looks for keys that owe nothing, in one shard after the other: where a table is small, the only one may be in
    /// any of them. No shard of the table may be locked.
    pub(super) fn make_room(&self, now: Time) {
        let mut left = SWEEP_WHEN_FULL;
        for _ in &self.shards {
            let looked_at = self.sweep(&mut lock(&self.next_shard().0), now, left);
            left = left.saturating_sub(looked_at.max(1)); // a lock is work, too
            if left == 0 || self.has_room() {
                break;
            }
        }
        if self.has_room() {
            self.sweep(&mut write(&self.overflow.0), now, SWEEP_ON_INSERT);
        }
    }

    /// Looks at the next `slots` slots of a part, or at all if there are fewer, and drops the keys that owe nothing.
    /// How many it looked at.
    fn sweep(&self, part: &mut ShardState<A>, now: Time, slots: usize) -> usize {
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

    /// The shard that is swept when there is no room: each in turn.
    fn next_shard(&self) -> &Shard<A> {
        &self.shards[self.counts.hand.fetch_add(1, Ordering::Relaxed) & (self.shards.len() - 1)]
    }
}
