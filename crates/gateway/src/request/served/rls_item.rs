//! A descriptor of a request, what decides about it, and what was decided.

use sluicegate_limiter::Span;
use sluicegate_rls::plan::{Ask as Asked, Outcome};
use sluicegate_rls::wire::ratelimit::Unit;

use crate::limit::SelectedLimit;

/// What decides about one descriptor.
pub(super) enum Decider<'s> {
    /// A limit of 0: hits are refused, until the unit ends.
    Zero(Unit),
    Limit(SelectedLimit<'s>),
}

/// A descriptor, and what decides about it.
pub(super) struct Item<'s, 'p> {
    pub(super) decider: Decider<'s>,
    pub(super) asked: &'p Asked,
    /// Whether a refusal of its limit refuses no request by itself.
    pub(super) is_advisory: bool,
}

/// What was decided about a descriptor.
#[derive(Clone, Copy)]
pub(super) struct Judged {
    pub(super) outcome: Outcome,
    /// The time after which the same hits are admitted; `None` if they are now, or never.
    pub(super) wait: Option<Span>,
}
