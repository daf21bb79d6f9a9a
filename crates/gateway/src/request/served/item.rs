//! What is to be counted, what decides about it, and what was decided.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_limiter::{MAX_COUNT, Refusal, Span, Time, Usage};
use sluicegate_rls::plan::{Hits, Outcome};
use sluicegate_route::keys;

use crate::limit::{Ask, Limit, SelectedLimit};
use crate::snapshot::Snapshot;

/// What decides about hits.
pub(super) enum Decider<'s> {
    /// A limit of 0: hits are refused, until a period of this length ends.
    Zero(Span),
    Limit(SelectedLimit<'s>),
}

/// Hits, and what decides about them.
pub(super) struct Item<'s> {
    pub(super) decider: Decider<'s>,
    pub(super) hits: Hits,
    /// Whether a refusal of its limit refuses no request by itself.
    pub(super) is_advisory: bool,
}

/// What was decided about hits.
#[derive(Clone, Copy)]
pub(super) struct Judged {
    pub(super) outcome: Outcome,
    /// The time after which the same hits are admitted; `None` if they are now, or never.
    pub(super) wait: Option<Span>,
}

impl<'s> Decider<'s> {
    /// A limit with its index in the snapshot, which counts hits for the key with a text.
    pub(super) fn limit(
        snapshot: &Snapshot,
        (index, limit): (usize, &'s Arc<Limit>),
        (key, hits): (&str, Hits),
        now: Time,
    ) -> Self {
        let (key, text) = keys::of_descriptor(key, &snapshot.secret);
        let cost = if hits.negative { 0 } else { hits.count.min(MAX_COUNT) };
        let ask = Ask::new(&limit.counted, key, cost, now).with_text(text);
        Self::Limit(SelectedLimit { index, limit, candidate: false, ask, fair: None })
    }

    /// A limit of 0 for a period of so many seconds.
    pub(super) fn zero(seconds: u64) -> Self {
        Self::Zero(Span::from_nanos(seconds.saturating_mul(Span::SECOND.as_nanos())))
    }
}

impl Judged {
    pub(super) fn new(refusal: Option<Refusal>, usage: Usage) -> Self {
        let reset = Duration::from_nanos(usage.reset.as_nanos());
        let wait = match refusal {
            Some(Refusal::Until(wait) | Refusal::Banned(wait)) => Some(wait),
            Some(Refusal::Busy) => Some(Span::SECOND),
            Some(Refusal::Never) | None => None,
        };
        Self { outcome: Outcome { admitted: refusal.is_none(), remaining: usage.remaining, reset }, wait }
    }

    /// What a limit of 0 decides.
    pub(super) fn zero(now: Time, period: Span, hits: Hits) -> Self {
        let period = period.as_nanos().max(1);
        let reset = Span::from_nanos(period - now.as_nanos() % period);
        let admitted = hits.count == 0 || hits.negative;
        let usage = Usage { remaining: 0, capacity: 0, reset };
        Self::new((!admitted).then_some(Refusal::Until(reset)), usage)
    }
}
