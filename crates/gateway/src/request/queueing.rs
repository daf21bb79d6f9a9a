//! Requests above a limit with a queue: which of them are queued, and what the client is answered.

use std::sync::Arc;

use bytes::Bytes;
use sluicegate_limiter::{Span, Time};

use super::message::{Acceptance, message, read_body};
use super::prefer::Prefer;
use super::queue_rule::{Place, may_queue, place};
use super::view::View;
use crate::limit::{Decided, Decision, SelectedLimit};
use crate::queue::{Accepted, Bounds, MAX_OF_KEY, Queue, QueueError, Queues, Refused, millis};
use crate::request::RequestContext;
use crate::request::limit_selection::LimitSelection;
use crate::request::matching::Matching;
use crate::request::verdict::{Evaluated, Matched};
use crate::respond::{self, LocalError, RateLimitHeaders};
use sluicegate_base::file_watch::sha256;
use sluicegate_base::limit_outcome::LimitOutcome;
use sluicegate_base::message::LocalResponse;
use sluicegate_base::queue_event::QueueEvent;
use sluicegate_downstream::RequestBody;
use sluicegate_upstream::ForwardError;
use sluicegate_wire::RequestHead;

/// The queues that a request may be put into.
pub(super) struct Queueing<'v> {
    queues: &'v Arc<Queues>,
    prefer: Prefer,
}

/// The body of a request is too large for the queue.
struct TooLarge;

impl<'v> Queueing<'v> {
    /// Those for a request with these limits; `None` if none of them may queue it.
    #[inline]
    pub(super) fn of(view: &'v View, selection: &LimitSelection<'_>, head: &RequestHead) -> Option<Self> {
        let queues = view.snapshot.queues.as_ref()?;
        let has_queue = |one: &SelectedLimit<'_>| queues.of(one.index).is_some();
        if !selection.selected.iter().any(has_queue) || respond::needs_answer(head) {
            return None;
        }
        let queueing = Self { queues, prefer: Prefer::of(&head.headers) };
        let may_queue = |one| queueing.queue(one).is_some();
        selection.selected.iter().any(may_queue).then_some(queueing)
    }

    /// The queue that a limit may put the request into.
    fn queue(&self, one: &SelectedLimit<'_>) -> Option<&'v Arc<Queue>> {
        self.queues.of(one.index).filter(|_| may_queue(one, self.prefer))
    }

    /// Whether the limits alone do not decide: earlier requests may wait, or the client says how long it waits.
    pub(super) fn comes_first(&self, selection: &LimitSelection<'_>) -> bool {
        let mut queues = selection.selected.iter().filter_map(|one| self.queue(one));
        self.prefer.patience().is_some() || queues.any(|queue| !queue.is_empty())
    }

    /// Whether all limits that refuse may queue the request.
    pub(super) fn takes(&self, selected: &[SelectedLimit<'_>], decision: &Decision) -> bool {
        place(Decided { selected, decision }, self.prefer).is_some()
    }

    /// A limit whose earlier requests with the same key have to be delivered before this one.
    ///
    /// # Errors
    /// With `order: key`, if the storage cannot be read.
    async fn behind(
        &self,
        selection: &LimitSelection<'_>,
        now: Time,
    ) -> Result<Option<usize>, (&'v Arc<Queue>, QueueError)> {
        for (at, one) in selection.selected.iter().enumerate() {
            let Some(queue) = self.queue(one).filter(|queue| !queue.is_empty()) else { continue };
            let (key, ordered) = (sha256(&one.ask.text), queue.config.ordered);
            match queue.state.has_backlog(key, ordered, millis(now)).await {
                Ok(true) => return Ok(Some(at)),
                Err(error) if ordered => return Err((queue, error)),
                Ok(false) | Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Decides on a request, and queues it if its limits do not admit it, if earlier ones wait, or if it would wait for longer than
    /// its client does.
    ///
    /// # Errors
    /// The response, if it was queued or could not be.
    pub(super) async fn decide<'s>(
        &self,
        view: &View,
        context: &mut RequestContext,
        (matching, matched): (&mut Matching<'s, '_>, &Matched<'s>),
        body: &mut Option<RequestBody>,
    ) -> Result<Decision, LocalResponse> {
        let now = matching.inputs.now;
        let store = view.store_of(&matching.selection).cloned();
        if self.comes_first(&matching.selection) {
            let tried = matching.selection.try_out(store.as_ref(), now).await;
            if !tried.admitted {
                return self.after(view, context, (matching, matched), tried, body).await;
            }
            let behind = self.behind(&matching.selection, now).await;
            let behind = behind.map_err(|(queue, error)| away(context, queue, &error))?;
            let behind = behind.map(|at| Place { at, wait: Span::ZERO });
            if let Some(place) = behind.or_else(|| self.delayed(&matching.selection, &tried)) {
                let queued = self.enqueue(view, context, (matching, matched), &tried, &place, body).await;
                return Err(queued.unwrap_or_else(|TooLarge| context.refuse(LocalError::TooLarge)));
            }
        }
        let decision = matching.selection.decide_on(store.as_ref(), now).await;
        self.after(view, context, (matching, matched), decision, body).await
    }

    /// Queues a request if its limits do not admit it.
    ///
    /// # Errors
    /// The response, if it was queued or could not be.
    pub(super) async fn after<'s>(
        &self,
        view: &View,
        context: &mut RequestContext,
        (matching, matched): (&Matching<'s, '_>, &Matched<'s>),
        decision: Decision,
        body: &mut Option<RequestBody>,
    ) -> Result<Decision, LocalResponse> {
        let decided = Decided { selected: &matching.selection.selected, decision: &decision };
        let Some(place) = place(decided, self.prefer) else { return Ok(decision) };
        match self.enqueue(view, context, (matching, matched), &decision, &place, body).await {
            Ok(response) => Err(response),
            Err(TooLarge) => Ok(decision),
        }
    }

    /// The limit that would delay the request for longer than its client waits.
    fn delayed(&self, selection: &LimitSelection<'_>, tried: &Decision) -> Option<Place> {
        let patience = self.prefer.patience()?;
        let decided = Decided { selected: &selection.selected, decision: tried };
        let mut delays = decided.iter().enumerate().filter_map(|(at, one)| {
            let delay = one.verdict.answer.ok().filter(|delay| *delay > patience)?;
            self.queue(one.selected).map(|_| Place { at, wait: delay })
        });
        delays.next()
    }

    /// Puts a request into the queue of a limit. Returns the response.
    ///
    /// # Errors
    /// If its body is too large. Nothing is answered, and the body is gone.
    async fn enqueue<'s>(
        &self,
        view: &View,
        context: &mut RequestContext,
        (matching, matched): (&Matching<'s, '_>, &Matched<'s>),
        decision: &Decision,
        place: &Place,
        body: &mut Option<RequestBody>,
    ) -> Result<LocalResponse, TooLarge> {
        let one = &matching.selection.selected[place.at];
        let Some(queue) = self.queue(one) else { return Ok(context.refuse(LocalError::QueueAway)) };
        let bounds = Bounds { max_length: queue.config.max_length, max_bytes: queue.config.max_bytes };
        let body = match body.take() {
            None => Bytes::new(),
            Some(body) => match read_body(body, queue.config.max_body).await {
                Ok(body) => body,
                Err(ForwardError::TooLarge) => return Err(TooLarge),
                Err(error) => return Ok(context.fail(&error)),
            },
        };
        let (connection, request_id) = (context.exchange().connection(), context.id());
        let at = place.at;
        let accepted = Acceptance { view, connection, matching, matched, queue, at, request_id, body };
        let message = match message(&accepted) {
            Ok(message) => message,
            Err(why) => return Ok(away(context, queue, &QueueError::Internal(why.to_owned()))),
        };
        let evaluated = matched.with_decision(&matching.selection, decision, matching.inputs.now);
        let refusal = match queue.state.accept(message, bounds).await {
            Ok(Ok(stored)) => {
                if !stored.is_duplicate {
                    queue.state.counts.count(QueueEvent::Accepted);
                }
                view.count_outcome(one.index, LimitOutcome::Queued);
                context.set_queued(one.index);
                let wait = (!stored.state.has_ended()).then(|| expected(place.wait, one, &stored));
                return Ok(self.queued(context, evaluated, &stored, wait));
            }
            Ok(Err(Refused::Full { .. })) => {
                view.count_outcome(one.index, LimitOutcome::Refused);
                queue.state.counts.count(QueueEvent::Full);
                context.refuse(LocalError::QueueFull(seconds_to_place(
                    queue,
                    one,
                    place,
                    evaluated.results.now,
                )))
            }
            Ok(Err(Refused::Conflict)) => context.refuse(LocalError::IdempotencyKeyReused),
            Err(error) => away(context, queue, &error),
        };
        context.remember(view, matching.request.head, &refusal, |refused| refused.limited(evaluated));
        Ok(refusal)
    }

    /// The response to a request that was queued.
    fn queued(
        &self,
        context: &RequestContext,
        evaluated: Evaluated<'_, '_>,
        stored: &Accepted,
        wait: Option<Span>,
    ) -> LocalResponse {
        let queued = respond::Queued {
            id: stored.id.to_string(),
            state: stored.state.name(),
            place: wait.map(|wait| (stored.ahead + 1, wait)),
            preferred: self.prefer.respond_async,
        };
        let mut response = respond::queued(&queued, evaluated.results.now, context.id());
        if let Some(headers) = RateLimitHeaders::new(evaluated.results) {
            headers.write(response.status, &mut response.headers);
        }
        response
    }
}

/// The response to a request that cannot be queued because of an error.
#[cold]
fn away(context: &RequestContext, queue: &Queue, error: &QueueError) -> LocalResponse {
    queue.state.counts.count(QueueEvent::Error);
    if !error.is_handed_over() && !error.is_busy() {
        queue.state.warn(millis(context.now()), &format!("cannot be queued: {error}"));
    }
    context.refuse(LocalError::QueueAway)
}

/// After how many seconds a queue that is full may have a place: when its limit has admitted another request.
pub fn seconds_to_place(queue: &Queue, one: &SelectedLimit<'_>, place: &Place, now: Time) -> u32 {
    let wait = place.wait.max(interval(one)).ceil_secs().max(1);
    let paused = queue.state.standing().paused_until.saturating_sub(millis(now));
    u32::try_from(wait.max(paused.div_ceil(1_000))).unwrap_or(u32::MAX)
}

/// The time after which a limit admits another request like this one.
fn interval(one: &SelectedLimit<'_>) -> Span {
    let Some(rate) = one.limit.counted.quota.rate() else { return Span::SECOND };
    let nanos =
        u128::from(rate.period().as_nanos()) * u128::from(one.ask.cost) / u128::from(rate.count().max(1));
    Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// How long a request is likely to wait: those of its key that are ahead go first, at the rate of the limit.
fn expected(wait: Span, one: &SelectedLimit<'_>, stored: &Accepted) -> Span {
    let interval = interval(one);
    let is_one_line = one.limit.config.key.is_constant() || stored.of_key >= MAX_OF_KEY;
    let ahead = if is_one_line { stored.ahead } else { stored.of_key };
    let of_others = interval.as_nanos().saturating_mul(ahead);
    Span::from_nanos(wait.max(interval).as_nanos().saturating_add(of_others))
}
