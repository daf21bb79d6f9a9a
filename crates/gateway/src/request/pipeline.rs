//! Start reading here. What happens to a request: match, authenticate, select limits, decide, forward or answer, settle.
//!
//! [`Matching`] does the first three, without a socket. [`respond`] does all of them but the last, which happens when the
//! [`RequestContext`] is dropped. `check` stops after the decision. [`evaluate`] decides a request with the counters of this process.

use http::StatusCode;
use sluicegate_limiter::Time;

use crate::limit::{self, Decision, Holds};
use crate::request::disposition::{Admitted, Disposition};
use crate::request::early_reject::{self, EarlyReject};
use crate::request::limit_selection::LimitSelection;
use crate::request::matching::{Matching, Step};
use crate::request::queue_status;
use crate::request::queueing::Queueing;
use crate::request::verdict::{Evaluated, Matched};
use crate::request::{RequestContext, View};
use crate::respond::{self, LocalError, RateLimitHeaders};
use crate::snapshot::{Snapshot, Target};
use sluicegate_auth::Answers;
use sluicegate_auth::check::Check;
use sluicegate_base::boxed_future::boxed_future;
use sluicegate_base::incoming::Request;
use sluicegate_base::message::LocalResponse;
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_config::Protocol;
use sluicegate_downstream::{Connection, RequestBody};
use sluicegate_route::rewrite::{Unwritable, with_path};
use sluicegate_upstream::{self, ForwardError};
use sluicegate_wire::{Headers, RequestHead};

/// Matches a request and evaluates its limits with the counters of this process. With `queue`, a request that a leaky
/// bucket delays takes a place in its queue. Nobody outside is asked, and keys whose rules are not known have none.
///
/// # Errors
/// If the request is rejected before its limits are evaluated, or if authentication failed and the limits admit it.
pub fn evaluate<'s>(
    snapshot: &'s Snapshot,
    request: Request<'_>,
    now: Time,
    queue: bool,
) -> Result<(Matched<'s>, LimitSelection<'s>, Decision), EarlyReject> {
    let mut matching = Matching::new(snapshot, request, now);
    let mut matched = loop {
        match matching.step(&|selected| limit::may_refuse(selected)) {
            Step::Decide(matched) => break matched,
            Step::Answer(reject) => return Err(reject),
            Step::LoadRules { .. } => matching.inputs.without_rules = true,
            Step::Ask { .. } => matching.inputs.answers = Answers::offline(),
            Step::Refuse(matched) => {
                if let Some(decision) = matching.selection.refused_locally(now) {
                    return Ok((matched, matching.selection, decision));
                }
            }
        }
    };
    let decision = matching.selection.decide(now, queue);
    match matched.reject.take_if(|_| decision.admitted) {
        Some(reject) => Err(*reject),
        None => Ok((matched, matching.selection, decision)),
    }
}

/// Decides on a request, unless it is `admitted` already, and forwards or answers it. Takes `body` out only if it is forwarded
/// or queued.
#[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice (decision 26)")]
pub(super) fn respond<'r>(
    view: &'r View,
    connection: &'r Connection,
    context: &'r mut RequestContext,
    head: &'r mut RequestHead,
    body: &'r mut Option<RequestBody>,
    admitted: Option<Box<Admitted<'r>>>,
) -> impl Future<Output = sluicegate_upstream::Response> + 'r {
    async move {
        // Everything that does not wait is in functions of its own, whose locals are not memory of this future, and other futures
        // are boxed: a box of at most 1 KiB is allocated fast (decision 26).
        let disposition = match admitted.map_or_else(|| decide(view, connection, context, head), decided) {
            Ok(disposition) => disposition,
            Err(undecided) => boxed_future(|| decide_waiting(view, *undecided, context, body)).await,
        };
        let mut admitted = match disposition.admitted() {
            Ok(admitted) => admitted,
            Err(response) => return response.with_body(),
        };
        if !admitted.delay.is_zero() {
            boxed_future(|| context.wait_for_turn()).await;
        }
        let snapshot = &view.snapshot;
        let mut response: sluicegate_upstream::Response = match &admitted.route.target {
            Target::Upstream { index, original_path } => {
                if context.is_bounded(view, *index)
                    && let Err(response) =
                        boxed_future(|| context.take_place(view, *index, head, &admitted.identity)).await
                {
                    return response.with_body();
                }
                if let Err(error) = prepare_head(snapshot, context, &mut admitted, *original_path, head) {
                    return context.fail(&error).with_body();
                }
                context.set_upstream(*index);
                let upstream = view.upstream(*index);
                // In a block of its own: only `outgoing` is held while the server is awaited.
                let mut outgoing = {
                    let facts = context.forward_facts(snapshot, &admitted);
                    let rules = |headers: &mut Headers| context.apply_header_rules(snapshot, headers);
                    let mut body = body.take().unwrap_or(RequestBody::None);
                    if matches!(body, RequestBody::Http2(_)) && upstream.config().protocol == Protocol::Http1
                    {
                        boxed_future(|| body.begin(&head.method)).await;
                    }
                    sluicegate_upstream::prepare(context.exchange(), upstream, &facts, head, body, rules)
                };
                let result = match outgoing {
                    Ok(ref mut outgoing) => {
                        boxed_future(|| sluicegate_upstream::forward(context.exchange(), upstream, outgoing))
                            .await
                    }
                    Err(error) => Err(error),
                };
                context.upstream_answered(&result);
                match result {
                    Ok(response) => {
                        context.charge(snapshot, response.status, &response.headers);
                        response
                    }
                    Err(error) => context.fail(&error).with_body(),
                }
            }
            _ => local_answer(snapshot, context, &admitted, head).with_body(),
        };
        if let Some(headers) = admitted.rate_limit_headers {
            headers.write(response.status, &mut response.headers);
        }
        response
    }
}

/// Decides on a request that another proxy forwards. The status of the response is 200 if it is admitted; a redirect of a route, and a
/// status that a route gives, are for the client.
pub(super) async fn check(
    view: &View,
    connection: &Connection,
    context: &mut RequestContext,
    head: &RequestHead,
) -> LocalResponse {
    let mut body = None;
    let disposition = match decide(view, connection, context, head) {
        Ok(disposition) => disposition,
        Err(undecided) => boxed_future(|| decide_waiting(view, *undecided, context, &mut body)).await,
    };
    let admitted = match disposition.admitted() {
        Ok(admitted) => admitted,
        Err(response) => return response,
    };
    let mut response = match &admitted.route.target {
        Target::Upstream { .. } => respond::admitted(),
        _ => local_answer(&view.snapshot, context, &admitted, head),
    };
    if let Some(headers) = admitted.rate_limit_headers {
        headers.write(response.status, &mut response.headers);
    }
    response
}

/// The response that a route without an upstream gives itself.
#[inline(never)]
fn local_answer(
    snapshot: &Snapshot,
    context: &mut RequestContext,
    admitted: &Admitted<'_>,
    head: &RequestHead,
) -> LocalResponse {
    let response = match &admitted.route.target {
        Target::Answer { status, body, content_type } => {
            if status.as_u16() >= 400 {
                context.refused(RefusalReason::Respond, None);
            }
            respond::fixed(*status, body.clone(), content_type)
        }
        Target::Redirect { status, to } => {
            let route = (admitted.route_index, to);
            respond::redirect(*status, &context.location(snapshot, route, head, &admitted.identity))
        }
        Target::Usage | Target::Upstream { .. } => return respond::capabilities(context.id()),
    };
    context.charge(snapshot, response.status, &response.headers);
    response
}

/// The disposition of a request that is admitted already.
#[allow(clippy::boxed_local, reason = "a parameter of `respond`, which must be small")]
fn decided<'s, 'r>(admitted: Box<Admitted<'s>>) -> Result<Disposition<'s>, Box<Undecided<'s, 'r>>> {
    Ok(Disposition::Admitted(*admitted))
}

/// Gives the head of a request the target that the route says, and removes the credentials that the upstream must not see.
///
/// # Errors
/// If the route's path template does not apply to the path.
fn prepare_head(
    snapshot: &Snapshot,
    context: &mut RequestContext,
    admitted: &mut Admitted<'_>,
    original_path: bool,
    head: &mut RequestHead,
) -> Result<(), ForwardError> {
    let identity = &admitted.identity;
    match context.rewrite(snapshot, head, identity) {
        Ok(Some(target)) => head.target = head.target.with(&target),
        Ok(None) => {
            if let Some(path) = admitted.normal_path.take().filter(|_| !original_path) {
                head.target = with_path(&head.target, &path);
            }
        }
        Err(Unwritable) => return Err(ForwardError::Unwritable),
    }
    if let Some(jwt) = &snapshot.jwt {
        jwt.tell_upstream(&mut head.headers, identity.token.as_deref());
    }
    if let Some(introspection) = &snapshot.introspection {
        introspection.tell_upstream(&mut head.headers, identity.token.as_deref());
    }
    if snapshot.check.is_some() {
        Check::clean(&mut head.headers);
    }
    Ok(())
}

/// What a request waits for before its limits are decided.
enum Undecided<'s, 'r> {
    /// The state of a queued request, which it asks for.
    QueueStatus(Request<'r>),
    /// A step of its matching.
    Step(Matching<'s, 'r>, Step<'s>),
    /// The store, which counts some of its limits, or a queue, in which earlier requests may wait.
    Store(Matching<'s, 'r>, Matched<'s>),
    /// A queue, into which it may be put: its limits do not admit it.
    Queue(Matching<'s, 'r>, Matched<'s>, Decision),
}

/// Matches a request and evaluates its limits, if nothing has to be waited for.
///
/// # Errors
/// What has to be waited for.
fn decide<'s, 'r>(
    view: &'s View,
    connection: &'r Connection,
    context: &mut RequestContext,
    head: &'r RequestHead,
) -> Result<Disposition<'s>, Box<Undecided<'s, 'r>>> {
    let request = Request { head, peer: context.peer(connection) };
    if queue_status::is_asked(view, request) && !context.is_described() {
        return Err(Box::new(Undecided::QueueStatus(request)));
    }
    let now = context.begun();
    let mut matching = Matching::new(&view.snapshot, request, now);
    (matching.is_described, matching.named_route) = context.described_route();
    let mut matched = match matching.step(&|selected| view.may_refuse(selected, now)) {
        Step::Decide(matched) if matched.is_to_be_served() => matched,
        Step::Answer(reject) => {
            return Ok(Disposition::Answered(answer_early(&reject, view, context, request.head)));
        }
        step => return Err(Box::new(Undecided::Step(matching, step))),
    };
    context.set_matched(&view.snapshot, &matched, request.head);
    if let Some(response) = context.shed_by_load(view, request.head, &matched.identity) {
        return Ok(Disposition::Answered(response));
    }
    let queueing = Queueing::of(view, &matching.selection, request.head);
    if queueing.as_ref().is_some_and(|queueing| queueing.comes_first(&matching.selection)) {
        return Err(Box::new(Undecided::Store(matching, matched)));
    }
    let mut decision = match view.store_of(&matching.selection) {
        None => matching.selection.decide(now, true),
        Some(_) if matching.selection.is_divided() => {
            return Err(Box::new(Undecided::Store(matching, matched)));
        }
        Some(store) => match limit::decide_leased(store, &matching.selection.selected, now) {
            Some(decision) => decision,
            None => return Err(Box::new(Undecided::Store(matching, matched))),
        },
    };
    if queueing.is_some_and(|queueing| queueing.takes(&matching.selection.selected, &decision)) {
        return Err(Box::new(Undecided::Queue(matching, matched, decision)));
    }
    Ok(finish(&matching, &mut matched, &mut decision, view, context))
}

/// Goes on where [`decide`] stopped.
async fn decide_waiting<'s>(
    view: &'s View,
    undecided: Undecided<'s, '_>,
    context: &mut RequestContext,
    body: &mut Option<RequestBody>,
) -> Disposition<'s> {
    let (mut matching, mut matched, decided) = match undecided {
        Undecided::QueueStatus(request) => {
            let answering = boxed_future(|| queue_status::answer(view, context, request));
            return Disposition::Answered(answering.await);
        }
        Undecided::Store(matching, matched) => (matching, matched, None),
        Undecided::Queue(matching, matched, decision) => (matching, matched, Some(decision)),
        Undecided::Step(mut matching, step) => {
            match match_waiting(view, &mut matching, step, context).await {
                Ok(matched) => (matching, matched, None),
                Err(response) => return Disposition::Answered(response),
            }
        }
    };
    let now = matching.inputs.now;
    let queueing = Queueing::of(view, &matching.selection, matching.request.head);
    let queueing = queueing.filter(|_| matched.reject.is_none());
    let decision = match (queueing, decided) {
        (Some(queueing), Some(decision)) => {
            boxed_future(|| queueing.after(view, context, (&matching, &matched), decision, body)).await
        }
        (Some(queueing), None) => {
            boxed_future(|| queueing.decide(view, context, (&mut matching, &matched), body)).await
        }
        (None, Some(decision)) => Ok(decision),
        (None, None) => {
            let store = view.store_of(&matching.selection).cloned();
            Ok(matching.selection.decide_on(store.as_ref(), now).await)
        }
    };
    let mut decision = match decision {
        Ok(decision) => decision,
        Err(response) => return Disposition::Answered(response),
    };
    let Some(reject) = matched.reject.take().filter(|_| decision.admitted) else {
        return finish(&matching, &mut matched, &mut decision, view, context);
    };
    let holds = std::mem::take(&mut decision.holds);
    let evaluated = matched.with_decision(&matching.selection, &decision, now);
    view.observe(evaluated);
    context.log_evaluation(evaluated, &view.snapshot.config);
    let (reject, head) = ((&*reject, holds), matching.request.head);
    Disposition::Answered(respond_unauthenticated(evaluated, reject, view, context, head).await)
}

/// Carries out the steps of matching from this one on.
///
/// # Errors
/// The response, if the request is answered without a decision of all of its limits.
pub(super) async fn match_waiting<'s>(
    view: &'s View,
    matching: &mut Matching<'s, '_>,
    mut step: Step<'s>,
    context: &mut RequestContext,
) -> Result<Matched<'s>, LocalResponse> {
    let (snapshot, request) = (&view.snapshot, matching.request);
    let head = request.head;
    let matched = loop {
        let Matching { inputs, selection, .. } = &mut *matching;
        match step {
            Step::Decide(matched) => break matched,
            Step::Answer(reject) => return Err(answer_early(&reject, view, context, head)),
            Step::Refuse(matched) => {
                context.set_matched(snapshot, &matched, head);
                if let Some(decision) = selection.refused(view.store_of(selection), inputs.now).await {
                    let evaluated = matched.with_decision(selection, &decision, inputs.now);
                    return Err(refuse_limited(evaluated, view, context, head));
                }
            }
            Step::LoadRules { route, questions } => {
                context.start_timeout(snapshot, route);
                match &snapshot.rules {
                    Some(in_force) => inputs.rules.extend(in_force.rules.load(&questions).await),
                    None => inputs.without_rules = true,
                }
                inputs.now = context.now();
            }
            Step::Ask { route, question } => {
                context.start_timeout(snapshot, route);
                inputs.now = context.ask(&mut inputs.answers, *question, request).await;
            }
        }
        step = matching.step(&|_| false);
    };
    context.set_matched(snapshot, &matched, head);
    if let Some(response) = context.shed_by_load(view, head, &matched.identity) {
        return Err(response);
    }
    if matched.reject.is_none() && matches!(matched.route.target, Target::Usage) {
        let selected = &matching.selection.selected;
        let usage = view.usage(selected).await;
        return Err(respond::usage(matched.static_headers(selected), &usage, matching.inputs.now));
    }
    Ok(matched)
}

/// Counts and logs a decision, and takes what admitted requests hold.
#[inline(always)] // otherwise its result is copied
pub(super) fn finish<'s>(
    matching: &Matching<'s, '_>,
    matched: &mut Matched<'s>,
    decision: &mut Decision,
    view: &View,
    context: &mut RequestContext,
) -> Disposition<'s> {
    let evaluated = matched.with_decision(&matching.selection, decision, matching.inputs.now);
    if !decision.admitted {
        return Disposition::Answered(refuse_limited(evaluated, view, context, matching.request.head));
    }
    view.observe(evaluated);
    context.log_evaluation(evaluated, &view.snapshot.config);
    let rate_limit_headers = RateLimitHeaders::new(evaluated.results);
    context.hold(std::mem::take(&mut decision.holds));
    Disposition::Admitted(Admitted {
        route: matched.route,
        route_index: matched.route_index,
        identity: std::mem::take(&mut matched.identity),
        normal_path: matched.normal_path.take(),
        affinity: matched.affinity,
        rate_limit_headers,
        delay: decision.delay,
    })
}

/// The response to a request that its limits do not admit.
fn refuse_limited(
    evaluated: Evaluated<'_, '_>,
    view: &View,
    context: &RequestContext,
    head: &RequestHead,
) -> LocalResponse {
    view.observe(evaluated);
    context.log_evaluation(evaluated, &view.snapshot.config);
    if evaluated.decision().unavailable {
        context.refused(RefusalReason::Store, None);
        return respond::unavailable(head, context.id());
    }
    let reject = evaluated.matched.route.reject.as_ref();
    let refused = |reason| context.refused(reason, None);
    let response = respond::refusal(head, evaluated.results, reject, context.id(), refused);
    context.remember(view, head, &response, |refused| refused.limited(evaluated));
    response
}

/// The response to a request that is rejected before its limits are evaluated.
fn answer_early(
    reject: &EarlyReject,
    view: &View,
    context: &mut RequestContext,
    head: &RequestHead,
) -> LocalResponse {
    context.set_rejected(&view.snapshot, reject, head);
    match reject {
        EarlyReject::Preflight { .. } => respond::preflight(context.cors(&view.snapshot), head, context.id()),
        reject => {
            let response = early_reject::response(reject, head, context.id());
            context.remember(view, head, &response, |refused| refused.early(reject.route()));
            response
        }
    }
}

/// The response to an unauthenticated request that its limits admit. They are charged; those whose cost depends on the
/// status are settled with the one of the response.
async fn respond_unauthenticated(
    evaluated: Evaluated<'_, '_>,
    (reject, holds): (&EarlyReject, Holds),
    view: &View,
    context: &mut RequestContext,
    head: &RequestHead,
) -> LocalResponse {
    context.set_rejected(&view.snapshot, reject, head);
    context.hold(holds);
    if !evaluated.decision().delay.is_zero() {
        context.wait_for_turn().await;
    }
    let status = reject.error().map_or(StatusCode::UNAUTHORIZED, LocalError::status);
    context.charge(&view.snapshot, status, &Headers::new());
    let mut response = early_reject::response(reject, head, context.id());
    if let Some(headers) = RateLimitHeaders::new(evaluated.results) {
        headers.write(response.status, &mut response.headers);
    }
    context.remember(view, head, &response, |refused| refused.limited(evaluated));
    response
}
