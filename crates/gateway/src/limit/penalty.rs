//! A slower lane: requests that a limit refuses wait in it, as long as it has room.

use sluicegate_counters::{Ask, Decision};
use sluicegate_limiter::Refusal;
use smallvec::SmallVec;

use super::{Decided, SelectedLimit};

/// A second question of a request that was refused: what the limits say if it waits in the slower lanes of those that refuse it.
pub struct SlowerLane<'s> {
    /// What to ask. Limits in shadow mode that have counted a refusal already are not asked again.
    pub asks: SmallVec<[LaneAsk<'s>; 2]>,
    /// The decision that refused it.
    refused: Decision,
}

/// What one limit is asked in the second question.
pub struct LaneAsk<'s> {
    /// The ask of the limit, or of its slower lane.
    pub ask: Ask<'s>,
    /// The index of the limit among those of the request.
    pub at: usize,
    /// Whether its slower lane is asked.
    pub is_lane: bool,
}

impl<'s> AsRef<Ask<'s>> for LaneAsk<'s> {
    fn as_ref(&self) -> &Ask<'s> {
        &self.ask
    }
}

impl<'s> SlowerLane<'s> {
    /// The second question.
    ///
    /// # Errors
    /// The decision itself if it admits the request, or if a limit refuses it that has no slower lane.
    pub fn after(decision: Decision, selected: &[SelectedLimit<'s>]) -> Result<Self, Box<Decision>> {
        match Self::questions(Decided { selected, decision: &decision }) {
            Some(asks) => Ok(Self { asks, refused: decision }),
            None => Err(Box::new(decision)),
        }
    }

    /// What to ask; `None` if waiting in the slower lanes would not help.
    fn questions(decided: Decided<'_, 's>) -> Option<SmallVec<[LaneAsk<'s>; 2]>> {
        let Decision { admitted, unavailable, verdicts, .. } = decided.decision;
        if *admitted || *unavailable || verdicts.len() != decided.selected.len() {
            return None;
        }
        let mut asks = SmallVec::new();
        for (at, one) in decided.iter().enumerate() {
            let SelectedLimit { limit, ask, .. } = one.selected;
            match (one.verdict.answer, &limit.penalty) {
                (Ok(_), _) => asks.push(LaneAsk { ask: ask.clone(), at, is_lane: false }),
                (Err(_), _) if !ask.limit.enforced => {} // it has counted its refusal
                (Err(Refusal::Until(_)), Some(lane)) => {
                    let mut ask = ask.clone();
                    ask.limit = &lane.counted;
                    asks.push(LaneAsk { ask, at, is_lane: true });
                }
                (Err(_), _) => return None,
            }
        }
        Some(asks)
    }

    /// The decision of a request, if this is what its limits say about the second question. What is left is shown of the limits
    /// themselves.
    pub fn decided(self, mut decision: Decision) -> Decision {
        if !decision.admitted {
            return self.refused;
        }
        for (at, refused) in self.refused.verdicts.iter().enumerate() {
            if !self.asks.iter().any(|one| one.at == at) {
                decision.verdicts.insert(at, *refused);
            } else if refused.answer.is_err() {
                decision.verdicts[at].usage = refused.usage;
            }
        }
        decision
    }
}
