//! A slower lane: requests that a limit refuses wait in it, as long as it has room.

use std::sync::Arc;

use sluicegate_counters::{Ask, Decision, Verdict};
use sluicegate_limiter::Refusal;
use smallvec::SmallVec;

use super::{Limit, SelectedLimit};

/// A second question of a request that was refused: what the limits say if it waits in the slower lanes of those that refuse it.
pub struct SlowerLane<'s> {
    /// What to ask.
    pub asks: SmallVec<[Ask<'s>; 2]>,
    /// The decision that refused it.
    refused: Decision,
}

impl<'s> SlowerLane<'s> {
    /// The second question.
    ///
    /// # Errors
    /// The decision itself if it admits the request, or if a limit refuses it that has no slower lane.
    pub fn after(
        decision: Decision,
        selected: &[SelectedLimit<'s>],
        asks: &[Ask<'s>],
    ) -> Result<Self, Box<Decision>> {
        let is_refused = |verdict: &Verdict| matches!(verdict.answer, Err(Refusal::Until(_)));
        let lane = |at: usize| -> Option<&'s Arc<Limit>> {
            let asked = asks.get(at).is_some_and(|ask| ask.limit.enforced);
            selected[at].limit.penalty.as_ref().filter(|_| asked && is_refused(&decision.verdicts[at]))
        };
        let all_have = |(at, verdict): (usize, &Verdict)| {
            !asks[at].limit.enforced || verdict.answer.is_ok() || lane(at).is_some()
        };
        if decision.admitted
            || decision.unavailable
            || decision.verdicts.len() != asks.len()
            || !decision.verdicts.iter().enumerate().all(all_have)
        {
            return Err(Box::new(decision));
        }
        let asks = asks.iter().enumerate().map(|(at, ask)| match lane(at) {
            Some(lane) => Ask { limit: &lane.counted, ..ask.clone() },
            None => ask.clone(),
        });
        Ok(Self { asks: asks.collect(), refused: decision })
    }

    /// The decision of a request, if this is what its limits say about the second question. What is left is shown of the limits
    /// themselves.
    pub fn decided(self, mut decision: Decision) -> Decision {
        if !decision.admitted {
            return self.refused;
        }
        for (verdict, refused) in decision.verdicts.iter_mut().zip(&self.refused.verdicts) {
            if refused.answer.is_err() {
                verdict.usage = refused.usage;
            }
        }
        decision
    }
}
