//! A limit that applies to a request.

use std::sync::Arc;

use sluicegate_counters::Verdict;

use super::Limit;
use crate::limit_outcome::LimitOutcome;

/// A limit that applies to a request.
#[derive(Clone, Copy)]
pub struct SelectedLimit<'s> {
    /// The index of the limit in the snapshot.
    pub index: usize,
    /// The limit, or its variant for the plan of the request.
    pub limit: &'s Arc<Limit>,
    /// Whether it is the candidate of the limit, which is counted but never enforced.
    pub candidate: bool,
}

impl SelectedLimit<'_> {
    /// What this verdict of the limit amounts to.
    #[inline]
    pub fn outcome(&self, verdict: &Verdict) -> LimitOutcome {
        LimitOutcome::of(verdict.answer.is_ok(), self.limit.enforces(), self.candidate)
    }
}
