//! Which requests a limit with a queue takes: the same for the gateway, explanations and replays.

use sluicegate_limiter::{Refusal, Span};

use super::prefer::Prefer;
use crate::limit::{Decided, SelectedLimit};
use crate::respond::needs_answer;
use sluicegate_wire::RequestHead;

/// What a request has to wait for.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The index of the limit, into whose queue it is put, among those that were selected.
    pub at: usize,
    /// How long until that limit admits it, apart from those that wait already.
    pub wait: Span,
}

/// Whether this limit may queue a request whose client prefers that.
pub(super) fn may_queue(one: &SelectedLimit<'_>, prefer: Prefer) -> bool {
    let queue = one.limit.config.queue.as_ref().filter(|_| one.limit.enforces() && !one.candidate);
    queue.is_some_and(|queue| queue.accepts_all || prefer.respond_async)
}

/// The queue for a request that its limits do not admit; `None` if one of the refusing limits may not queue it.
pub(super) fn place(decided: Decided<'_, '_>, prefer: Prefer) -> Option<Place> {
    let mut refusing =
        decided.iter().filter(|one| one.selected.limit.enforces() && one.verdict.answer.is_err());
    let all_queue = refusing
        .all(|one| matches!(one.verdict.answer, Err(Refusal::Until(_))) && may_queue(one.selected, prefer));
    if decided.decision.admitted || !all_queue {
        return None;
    }
    let at = decided.reported()?;
    Some(Place { at, wait: decided.at(at).retry_after()? })
}

/// Whether this limit may queue a request with this head.
pub fn may_queue_request(one: &SelectedLimit<'_>, head: &RequestHead) -> bool {
    may_queue(one, Prefer::of(&head.headers)) && !needs_answer(head)
}

/// The queue for a request with this head that its limits do not admit.
pub fn queued_by(decided: Decided<'_, '_>, head: &RequestHead) -> Option<Place> {
    place(decided, Prefer::of(&head.headers)).filter(|_| !needs_answer(head))
}
