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
    /// The limits in shadow mode that have counted a refusal already, by index: they are not asked again.
    shadow_refused: SmallVec<[usize; 1]>,
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
        let counted = |at: &usize| asks[*at].limit.enforced || decision.verdicts[*at].answer.is_ok();
        let asks = (0..asks.len()).filter(counted).map(|at| match lane(at) {
            Some(lane) => Ask { limit: &lane.counted, ..asks[at].clone() },
            None => asks[at].clone(),
        });
        let shadow_refused = (0..decision.verdicts.len()).filter(|at| !counted(at)).collect();
        Ok(Self { asks: asks.collect(), shadow_refused, refused: decision })
    }

    /// The decision of a request, if this is what its limits say about the second question. What is left is shown of the limits
    /// themselves.
    pub fn decided(self, mut decision: Decision) -> Decision {
        if !decision.admitted {
            return self.refused;
        }
        for at in self.shadow_refused {
            decision.verdicts.insert(at, self.refused.verdicts[at]);
        }
        for (verdict, refused) in decision.verdicts.iter_mut().zip(&self.refused.verdicts) {
            if refused.answer.is_err() {
                verdict.usage = refused.usage;
            }
        }
        decision
    }
}
