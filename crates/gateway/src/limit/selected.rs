//! A limit that applies to a request, and what all of them decided.

use std::sync::Arc;

use sluicegate_counters::{Ask, Decision, KeyText, Verdict};
use sluicegate_fair_shares::Consumer;
use sluicegate_limiter::{Refusal, Span};

use super::Limit;
use sluicegate_base::limit_outcome::LimitOutcome;
use sluicegate_upstream::fair_shares::FairShares;

/// `Retry-After` of a concurrency limit: it is unknown when one of the requests in flight ends.
const BUSY: Span = Span::SECOND;

/// A limit that applies to a request.
pub struct SelectedLimit<'s> {
    /// The index of the limit in the snapshot.
    pub index: usize,
    /// The limit, or its variant for the plan of the request.
    pub limit: &'s Arc<Limit>,
    /// Whether it is the candidate of the limit, which is counted but never enforced.
    pub candidate: bool,
    /// The key and the cost of the request.
    pub ask: Ask<'s>,
    /// The consumer whose fair share it takes from, if the limit is divided.
    pub fair: Option<Box<FairAsk<'s>>>,
}

impl SelectedLimit<'_> {
    /// Whether the request lacks the key of the limit, and shares one with all such requests.
    pub fn lacks_key(&self) -> bool {
        self.ask.key == self.limit.missing
    }
}

impl<'s> AsRef<Ask<'s>> for SelectedLimit<'s> {
    fn as_ref(&self) -> &Ask<'s> {
        &self.ask
    }
}

/// The question of a request to the shares of one of its limits.
pub struct FairAsk<'s> {
    /// The shares of that limit.
    pub shares: &'s Arc<FairShares>,
    /// Who asks.
    pub consumer: Consumer,
    /// The key of the consumer in full.
    pub text: KeyText,
}

/// The limits of a request with their decision.
#[derive(Clone, Copy)]
pub struct Decided<'m, 's> {
    /// The limits.
    pub selected: &'m [SelectedLimit<'s>],
    /// The decision. It has a verdict for each limit, in the same order, unless the store that had to decide has failed.
    pub decision: &'m Decision,
}

/// One limit of a request with its verdict.
#[derive(Clone, Copy)]
pub struct DecidedLimit<'m, 's> {
    /// The limit.
    pub selected: &'m SelectedLimit<'s>,
    /// Its verdict.
    pub verdict: &'m Verdict,
}

impl<'m, 's> Decided<'m, 's> {
    /// All limits that have a verdict.
    #[inline]
    pub fn iter(self) -> impl DoubleEndedIterator<Item = DecidedLimit<'m, 's>> + ExactSizeIterator {
        let pairs = self.selected.iter().zip(&self.decision.verdicts);
        pairs.map(|(selected, verdict)| DecidedLimit { selected, verdict })
    }

    /// The limit at an index, which [`reported`](Self::reported) returned.
    #[inline]
    pub fn at(self, index: usize) -> DecidedLimit<'m, 's> {
        DecidedLimit { selected: &self.selected[index], verdict: &self.decision.verdicts[index] }
    }

    /// The index of the limit that headers and logs report: of the enforced limits, the one with the longest wait if the request
    /// is refused, otherwise the one with the smallest remaining share.
    pub fn reported(self) -> Option<usize> {
        let enforced = self.iter().enumerate().filter(|(_, one)| one.selected.limit.enforces());
        let reported = match self.decision.admitted {
            true => enforced.min_by(|(_, one), (_, other)| {
                let (a, b) = (one.verdict.usage, other.verdict.usage);
                // a.remaining / a.capacity against b's, without dividing
                let left = u128::from(a.remaining) * u128::from(b.capacity);
                left.cmp(&(u128::from(b.remaining) * u128::from(a.capacity)))
            }),
            // Of equals the first: `max_by_key` would take the last.
            false => {
                let refusing = enforced.rev().filter(|(_, one)| one.verdict.answer.is_err());
                refusing.max_by_key(|(_, one)| one.wait())
            }
        };
        reported.map(|(index, _)| index)
    }
}

impl DecidedLimit<'_, '_> {
    /// What the verdict amounts to.
    #[inline]
    pub fn outcome(self) -> LimitOutcome {
        let SelectedLimit { limit, candidate, .. } = *self.selected;
        LimitOutcome::of(self.verdict.answer.is_ok(), limit.enforces(), candidate)
    }

    /// The wait until the limit admits the request; `Span::MAX` if it never does.
    fn wait(self) -> Span {
        match self.verdict.answer {
            Ok(_) => Span::ZERO,
            Err(Refusal::Until(span) | Refusal::Banned(span)) => span,
            Err(Refusal::Busy) => BUSY,
            Err(Refusal::Never) => Span::MAX,
        }
    }

    /// `Retry-After` of a refusal; `None` if the limit can never admit this request.
    pub fn retry_after(self) -> Option<Span> {
        (self.verdict.answer != Err(Refusal::Never)).then(|| self.wait())
    }
}
