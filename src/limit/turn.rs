//! What an admitted request gives back: its place when it ends, its turn when it gives up.

use std::sync::Arc;
use std::task::Waker;

use sluicegate_limiter::{Receipt, Time};
use smallvec::SmallVec;

use super::counters::{Counters, Taken};
use crate::key::Fingerprint;

/// All that a request holds. Dropping it frees the places, on every way out.
#[derive(Default)]
pub struct Holds(SmallVec<[Hold; 1]>);

/// One thing that a request holds of one limit.
pub struct Hold {
    counters: Arc<Counters>,
    key: Fingerprint,
    cost: u64,
    receipt: Receipt,
    taken: Taken,
}

impl Hold {
    pub(super) fn new(
        counters: Arc<Counters>,
        key: Fingerprint,
        cost: u64,
        receipt: Receipt,
        taken: Taken,
    ) -> Self {
        Self { counters, key, cost, receipt, taken }
    }
}

impl Holds {
    pub(super) fn push(&mut self, hold: Hold) {
        self.0.push(hold);
    }

    /// Whether there is nothing to give back.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the last of its turns comes, as things are; `None` if it waits for none. It leaves the queues in which
    /// its turn has come: what it took there is spent, whether it still waits elsewhere or not. `waker` is woken
    /// when it comes to the front of a queue, or a request before it gives up.
    pub fn due(&mut self, now: Time, waker: &Waker) -> Option<Time> {
        let mut last = None;
        for hold in &mut self.0 {
            let Taken::Turn(ticket) = hold.taken else { continue };
            match hold.counters.due(hold.key, ticket, waker).filter(|due| *due > now) {
                Some(due) => last = last.max(Some(due)),
                None => {
                    hold.counters.leave(hold.key, ticket);
                    hold.taken = Taken::Nothing;
                }
            }
        }
        last
    }

    /// Gives up all turns at `now`, so that those behind move up. Places are freed by the drop.
    pub fn give_up(&mut self, now: Time) {
        for hold in &mut self.0 {
            if let Taken::Turn(ticket) = hold.taken {
                hold.counters.give_up(hold.key, ticket, now, hold.cost, hold.receipt);
                hold.taken = Taken::Nothing;
            }
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        match self.taken {
            Taken::Place => self.counters.free(self.key, self.cost),
            // Only without a time to give it back at: whoever waits calls `give_up`.
            Taken::Turn(ticket) => self.counters.leave(self.key, ticket),
            Taken::Nothing => {}
        }
    }
}
