//! The queues of limits, as the gateway would have filled and delivered them.

use std::collections::{HashMap, VecDeque};

use sluicegate_gateway::limit::{self, Ask, SelectedLimit};
use sluicegate_limiter::{Refusal, Time};
use sluicegate_route::keys::Fingerprint;

/// The requests of each key that wait in the queue of a limit, by the index of the limit.
#[derive(Default)]
pub(super) struct Queues(HashMap<(usize, Fingerprint), Waiting>);

/// The requests of a key that wait.
struct Waiting {
    /// Their costs.
    costs: VecDeque<u64>,
    /// Until when it is known what was delivered.
    looked: Time,
}

impl Queues {
    /// Puts a request that a limit does not admit at `now` into its queue.
    pub(super) fn push(&mut self, one: &SelectedLimit<'_>, now: Time) {
        let waiting = self.0.entry((one.index, one.ask.key));
        let waiting = waiting.or_insert_with(|| Waiting { costs: VecDeque::new(), looked: now });
        waiting.costs.push_back(one.ask.cost);
    }

    /// Delivers what the limits of a request have admitted by `now`. Returns the index of one with a queue in which earlier requests
    /// of the same key still wait.
    pub(super) fn deliver(&mut self, selected: &[SelectedLimit<'_>], now: Time) -> Option<usize> {
        let mut behind = None;
        for (at, one) in selected.iter().enumerate().filter(|(_, one)| one.limit.config.queue.is_some()) {
            let Some(waiting) = self.0.get_mut(&(one.index, one.ask.key)) else { continue };
            waiting.deliver(one, now);
            if waiting.costs.is_empty() {
                self.0.remove(&(one.index, one.ask.key));
            } else if one.limit.enforces() {
                behind = behind.or(Some(at));
            }
        }
        behind
    }
}

impl Waiting {
    fn deliver(&mut self, one: &SelectedLimit<'_>, now: Time) {
        while let Some(cost) = self.costs.front() {
            let ask = Ask::new(&one.limit.counted, one.ask.key, *cost, self.looked);
            let decision = limit::decide(&[ask], false);
            match decision.verdicts.first().map(|verdict| verdict.answer) {
                Some(Err(Refusal::Until(wait))) => {
                    let next = self.looked.plus(wait);
                    if next > now {
                        return;
                    }
                    self.looked = next;
                }
                // What is admitted, and what never is and becomes a dead letter.
                _ => _ = self.costs.pop_front(),
            }
        }
    }
}
