//! What an admitted request gives back: its place when it ends, its turn when it gives up.

use std::sync::Arc;
use std::task::Waker;

use sluicegate_limiter::Time;
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
    taken: Taken,
}

impl Hold {
    pub(super) fn new(counters: Arc<Counters>, key: Fingerprint, cost: u64, taken: Taken) -> Self {
        Self { counters, key, cost, taken }
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

    /// When the last of its turns comes, as things are; `None` if it waits for none. `waker` is woken when a
    /// request before it gives up.
    pub fn due(&self, waker: &Waker) -> Option<Time> {
        let due = |hold: &Hold| match hold.taken {
            Taken::Turn(ticket) => hold.counters.due(hold.key, ticket, waker),
            Taken::Place | Taken::Nothing => None,
        };
        self.0.iter().filter_map(due).max()
    }

    /// Leaves all queues: its turn has come.
    pub fn start(&mut self) {
        self.0.retain(|hold| match hold.taken {
            Taken::Turn(ticket) => {
                hold.counters.leave(hold.key, ticket);
                hold.taken = Taken::Nothing;
                false
            }
            Taken::Place | Taken::Nothing => true,
        });
    }

    /// Gives up all turns at `now`, so that those behind move up. Places are freed by the drop.
    pub fn give_up(&mut self, now: Time) {
        for hold in &mut self.0 {
            if let Taken::Turn(ticket) = hold.taken {
                hold.counters.give_up(hold.key, ticket, now, hold.cost);
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
