//! Start reading here. What happens to a request: route → identify → limits → forward | refuse.
//!
//! [`match_request`] needs no socket: the gateway, replays and tests call it and then evaluate the limits. [`evaluate`] does
//! both with the counters of this process. [`serve`] acts on the decision.

use std::borrow::Cow;
use std::pin::pin;
use std::rc::Rc;

use http::Method;
use sluicegate_limiter::Time;

use crate::auth::check::Check;
use crate::auth::{self, Answers, Identity, Sources};
use crate::boxed_future::boxed_future;
use crate::client_connection::{Connection, RequestBody};
use crate::limit::{self, Decision, SelectedLimit};
use crate::lists;
use crate::message::LocalResponse;
use crate::refusal_reason::RefusalReason;
use crate::request::disposition::{Admitted, Disposition};
use crate::request::early_exit::{EarlyExit, respond_unauthenticated};
use crate::request::early_reject::{self, EarlyReject};
use crate::request::head_checks;
use crate::request::limit_selection::{LimitSelection, RoutedRequest, Scope};
use crate::request::verdict::{Evaluated, Matched, Origin};
use crate::request::{RequestContext, Response, Services, View};
use crate::respond::{self, LocalError, RateLimitHeaders};
use crate::rewrite::{Unwritable, with_path};
use crate::route::{NoHost, NormalPath, RouteQuery, host, is_doubtful, is_plain, prefer_target};
use crate::snapshot::{Snapshot, Target};
use crate::upstream::{self, ForwardError};
use crate::worker_state::Deadline;
use sluicegate_config::{PathError, Protocol};
use sluicegate_wire::{Headers, RequestHead};

/// Says whether any of these limits is known to refuse the request, without asking them.
pub type MayRefuse<'a> = &'a dyn Fn(&[SelectedLimit<'_>]) -> bool;

/// Matches a request and evaluates its limits with the counters of this process. With `queue`, a request that a leaky
/// bucket delays takes a place in its queue. Nobody outside is asked.
///
/// # Errors
/// If the request is rejected before its limits are evaluated, or if authentication failed and the limits admit it.
pub fn evaluate<'s>(
    snapshot: &'s Snapshot,
    origin: Origin<'_>,
    parts: &RequestHead,
    now: Time,
    queue: bool,
) -> Result<(Matched<'s>, Decision), EarlyReject> {
    let mut result = match_request(snapshot, origin, parts, now, &|selected| limit::may_refuse(selected));
    let (matched, reject) = loop {
        match result {
            Ok(matched) => break (matched, None),
            Err(EarlyExit::Unauthenticated(exit)) => break (exit.matched, Some(exit.reject)),
            Err(EarlyExit::RulesUnknown(exit)) => break (exit.matched, None),
            Err(EarlyExit::Rejected(reject)) => return Err(reject),
            Err(EarlyExit::Ask { .. }) => {
                result = match_answered(snapshot, origin, parts, now, &|_| false, &Answers::offline());
            }
            Err(EarlyExit::LikelyRefused(matched)) => match matched.refused_locally(now) {
                Some(decision) => return Ok((*matched, decision)),
                None => result = match_request(snapshot, origin, parts, now, &|_| false),
            },
        }
    };
    let decision = matched.decide(now, queue);
    match reject.filter(|_| decision.admitted) {
        Some(reject) => Err(reject),
        None => Ok((matched, decision)),
    }
}

/// Finds the route, authenticates the sender and selects the limits. `may_refuse` says whether any of these checks is known
/// to refuse, without running them: then nothing is verified before they run.
///
/// # Errors
/// If matching stops before all limits are selected.
#[inline]
pub fn match_request<'s>(
    snapshot: &'s Snapshot,
    origin: Origin<'_>,
    parts: &RequestHead,
    now: Time,
    may_refuse: MayRefuse<'_>,
) -> Result<Matched<'s>, EarlyExit<'s>> {
    match_answered(snapshot, origin, parts, now, may_refuse, Answers::none())
}

/// The same with what services outside have said of the request.
///
/// # Errors
/// If matching stops before all limits are selected.
#[inline(never)]
pub fn match_answered<'s>(
    snapshot: &'s Snapshot,
    origin: Origin<'_>,
    parts: &RequestHead,
    now: Time,
    may_refuse: MayRefuse<'_>,
    answers: &Answers,
) -> Result<Matched<'s>, EarlyExit<'s>> {
    head_checks::check(parts, &snapshot.reserved)?;
    let host = host(parts).map_err(|NoHost| EarlyReject::Host)?;
    if origin.tls.is_some_and(|tls| tls.is_misdirected(&host)) {
        return Err(EarlyReject::Misdirected.into());
    }
    let plain = is_plain(parts.target.path());
    let written = RouteQuery {
        listener: origin.listener,
        host: &host,
        method: &parts.method,
        path: parts.target.path(),
        headers: &parts.headers,
        query: parts.target.query().unwrap_or_default(),
    };
    let NormalPath { path, decoded } = match plain {
        true => NormalPath { path: Cow::Borrowed(written.path), decoded: None },
        false => snapshot.table.normal_path(&written).map_err(|error| match error {
            PathError::NotAbsolute if parts.method == Method::OPTIONS && written.path == "*" => {
                EarlyReject::Capabilities
            }
            error => EarlyReject::Path(error),
        })?,
    };
    let query = RouteQuery { path: &path, ..written };
    let found = snapshot.table.find(&query);
    if let Some(route) = snapshot.preflight(&query, found.as_ref().map(|(index, _)| *index)) {
        return Err(EarlyReject::Preflight { route }.into());
    }
    let (route_index, params) = found.ok_or(EarlyReject::NoRoute)?;
    let route = &snapshot.routes[route_index];
    let configs = &snapshot.config.routes;
    if !plain && !configs[route_index].matches.exact_spelling && is_doubtful(written.path) {
        return Err(EarlyReject::Path(PathError::Ambiguous).into());
    }
    let mut lax_matches = snapshot.table.lax_matches(&query, route_index, plain);
    if let Some(decoded) = &decoded {
        let decoded = RouteQuery { path: decoded, ..query };
        snapshot.table.add_lax_matches(&mut lax_matches, &decoded, route_index);
    }
    let admits =
        |route: usize| lists::admits(&configs[route].access, &snapshot.config.resources.lists, origin.client);
    if !admits(route_index) || !lax_matches.iter().all(|lax| admits(lax.route)) {
        return Err(EarlyReject::AddressDenied { route: route_index }.into());
    }
    let wants_user = route.wants_user || lax_matches.iter().any(|lax| snapshot.routes[lax.route].wants_user);
    let wants_check = snapshot.check.is_some()
        && (configs[route_index].check || lax_matches.iter().any(|lax| configs[lax.route].check));
    let sources = Sources {
        api_key: &snapshot.config.api_key,
        consumers: snapshot.config.resources.consumers.as_deref(),
        jwt: snapshot.jwt.as_deref().filter(|_| wants_user),
        introspection: snapshot.introspection.as_ref().filter(|_| wants_user),
        check: snapshot.check.as_ref().filter(|_| wants_check),
    };
    let request = RoutedRequest {
        snapshot,
        tls: origin.tls,
        parts,
        now,
        route_index,
        lax_matches: &lax_matches,
        client: origin.client,
        host: &host,
        path: &path,
        params: &params,
        rules: origin.rules,
        logged_key: answers.logged_key(),
    };
    let identity = match sources.any() && !request.is_exempt_preflight(route_index) {
        true => request.identify(sources, answers, may_refuse)?,
        false => Identity::default(),
    };
    let mut selection = LimitSelection::default();
    match request.select(&mut selection, &identity, Scope::All) {
        Ok(()) if !selection.unknown.is_empty() => Err(request.rules_unknown(identity, selection)),
        Ok(()) => Ok(request.matched(identity, selection)),
        Err(reject) => Err(request.unauthenticated(reject)),
    }
}

/// The response to a request that could not be parsed. It is counted like any other.
pub fn refuse(
    services: &Services,
    connection: &Rc<Connection>,
    deadline: &Rc<Deadline>,
    error: LocalError,
) -> Response {
    let (view, now) = (services.view(), connection.worker.clock().now());
    let context = RequestContext::new(connection, deadline, &view, now, None);
    let response = context.refuse(error);
    context.finish(&view.snapshot, response.into())
}

/// Serves one request. Every response comes from here, also a refusal or an error: the protocols above see no failure.
/// `deadline` is that of the connection, or of the stream over HTTP/2. Parts of the request head may be gone afterwards, and the
/// body is.
pub async fn serve(
    services: &Services,
    connection: &Rc<Connection>,
    deadline: &Rc<Deadline>,
    parts: &mut RequestHead,
    body: &mut Option<RequestBody>,
) -> Response {
    let view = services.view();
    let now = connection.worker.clock().now();
    view.snapshot.underscores.clean(&mut parts.headers);
    prefer_target(parts);
    let mut context = RequestContext::new(connection, deadline, &view, now, Some(parts));
    let answered = {
        // The total timeout holds for everything that is awaited in there.
        let answering = pin!(respond(&view, &mut context, parts, body));
        deadline.within_total(&connection.worker.deadlines, answering).await
    };
    let response = answered.unwrap_or_else(|| context.refuse(LocalError::TimedOut).into());
    if let Some(body) = body.take() {
        body.drain(parts);
    }
    context.finish(&view.snapshot, response)
}

/// Decides on a request, and forwards or answers it. Takes `body` out only if it is forwarded.
async fn respond(
    view: &View,
    context: &mut RequestContext,
    parts: &mut RequestHead,
    body: &mut Option<RequestBody>,
) -> upstream::Response {
    // Everything that does not wait is in functions of its own, whose locals are not memory of this future, and other futures
    // are boxed: a box of at most 1 KiB is allocated fast (decision 26).
    let disposition = match evaluate_local(view, context, parts) {
        Ok(disposition) => disposition,
        Err(result) => boxed_future(|| evaluate_shared(view, *result, context, parts)).await,
    };
    let Admitted { route, identity, normal_path, affinity, rate_limit_headers, delay } =
        match disposition.admitted() {
            Ok(admitted) => admitted,
            Err(response) => return response.into(),
        };
    if !delay.is_zero() {
        boxed_future(|| context.wait_for_turn()).await;
    }

    let mut response: upstream::Response = match &route.target {
        Target::Answer { status, body: content, content_type } => {
            let response = respond::fixed(*status, content.clone(), content_type);
            if status.as_u16() >= 400 {
                context.refused(RefusalReason::Respond, None);
            }
            context.charge(&view.snapshot, response.status, &response.headers);
            response.into()
        }
        Target::Redirect { status, to } => {
            let response =
                respond::redirect(*status, &context.location(&view.snapshot, to, parts, &identity));
            context.charge(&view.snapshot, response.status, &response.headers);
            response.into()
        }
        Target::Upstream { index, original_path } => {
            if context.is_bounded(view, *index)
                && let Err(response) = context.take_place(view, *index, parts, &identity).await
            {
                return response.into();
            }
            match context.rewrite(&view.snapshot, parts, &identity) {
                Ok(Some(target)) => parts.target = parts.target.with(&target),
                Ok(None) => {
                    if let Some(path) = normal_path.filter(|_| !original_path) {
                        parts.target = with_path(&parts.target, &path);
                    }
                }
                Err(Unwritable) => return context.fail(&ForwardError::Unwritable).into(),
            }
            context.set_upstream(*index);
            if let Some(jwt) = &view.snapshot.jwt {
                jwt.tell_upstream(&mut parts.headers, identity.token.as_deref());
            }
            if let Some(introspection) = &view.snapshot.introspection {
                introspection.tell_upstream(&mut parts.headers, identity.token.as_deref());
            }
            let upstream = view.upstream(*index);
            // In a block of its own: only `outgoing` is held while the server is awaited.
            let mut outgoing = {
                let check = view.snapshot.check.as_deref();
                if check.is_some() {
                    Check::clean(&mut parts.headers);
                }
                let consumer = auth::consumer_headers(&view.snapshot.config.api_key, check, &identity);
                let facts = context.forward_facts(&view.snapshot, route.forward, affinity, consumer);
                let rules = |headers: &mut Headers| context.apply_header_rules(&view.snapshot, headers);
                let mut body = body.take().unwrap_or(RequestBody::None);
                if matches!(body, RequestBody::Http2(_)) && upstream.config().protocol == Protocol::Http1 {
                    boxed_future(|| body.begin(&parts.method)).await;
                }
                upstream::prepare(context.exchange(), upstream, &facts, parts, body, rules)
            };
            let result = match outgoing {
                Ok(ref mut outgoing) => {
                    boxed_future(|| upstream::forward(context.exchange(), upstream, outgoing)).await
                }
                Err(error) => Err(error),
            };
            context.upstream_answered(&result);
            match result {
                Ok(response) => {
                    context.charge(&view.snapshot, response.status, &response.headers);
                    response
                }
                Err(error) => context.fail(&error).into(),
            }
        }
        Target::Usage => respond::capabilities(context.id()).into(),
    };
    if let Some(headers) = rate_limit_headers {
        headers.write(response.status, &mut response.headers);
    }
    response
}

/// Matches a request and evaluates its limits, if the counters of this process suffice.
///
/// # Errors
/// If the limits are shared or their state is asked for, or if matching stopped early: the result of matching.
fn evaluate_local<'s>(
    view: &'s View,
    context: &mut RequestContext,
    parts: &RequestHead,
) -> Result<Disposition<'s>, Box<Result<Matched<'s>, EarlyExit<'s>>>> {
    let now = context.begun();
    match match_request(&view.snapshot, context.origin(), parts, now, &|selected| {
        view.may_refuse(selected, now)
    }) {
        Ok(mut matched) => {
            context.set_matched(&view.snapshot, &matched, parts);
            if matches!(matched.route.target, Target::Usage) {
                return Err(Box::new(Ok(matched)));
            }
            if let Some(response) = context.shed_by_load(view, parts, &matched.identity) {
                return Ok(Disposition::Answered(response));
            }
            let mut decision = match view.store_of(&matched) {
                None => matched.decide(now, true),
                Some(_) if matched.is_divided() => return Err(Box::new(Ok(matched))),
                Some(store) => match limit::decide_leased(store, &matched.selected, now) {
                    Some(decision) => decision,
                    None => return Err(Box::new(Ok(matched))),
                },
            };
            Ok(finish(&mut matched, &mut decision, now, view, context, parts))
        }
        Err(EarlyExit::Rejected(reject)) => {
            Ok(Disposition::Answered(answer_early(&reject, view, context, parts)))
        }
        Err(exit) => Err(Box::new(Err(exit))),
    }
}

/// Goes on where [`evaluate_local`] stopped: limits that are shared, the state of limits, authentication that failed, and
/// services outside that must be asked who sends the request.
async fn evaluate_shared<'s>(
    view: &'s View,
    mut result: Result<Matched<'s>, EarlyExit<'s>>,
    context: &mut RequestContext,
    parts: &RequestHead,
) -> Disposition<'s> {
    let mut now = context.begun();
    let mut rules = Vec::new();
    let mut answers = Answers::default();
    let (mut matched, reject) = loop {
        match result {
            Ok(matched) => break (matched, None),
            Err(EarlyExit::RulesUnknown(exit)) => {
                context.start_timeout(&view.snapshot, exit.matched.route_index);
                if let Some(in_force) = &view.snapshot.rules {
                    rules.extend(in_force.rules.load(&exit.questions).await);
                    now = context.now();
                }
                let origin = Origin { rules: &rules, ..context.origin() };
                result = match_answered(&view.snapshot, origin, parts, now, &|_| false, &answers);
                if let Ok(matched) = &result {
                    context.set_matched(&view.snapshot, matched, parts);
                }
            }
            Err(EarlyExit::Unauthenticated(exit)) => {
                context.set_matched(&view.snapshot, &exit.matched, parts);
                break (exit.matched, Some(exit.reject));
            }
            Err(EarlyExit::Rejected(reject)) => {
                return Disposition::Answered(answer_early(&reject, view, context, parts));
            }
            Err(EarlyExit::LikelyRefused(mut matched)) => {
                context.set_matched(&view.snapshot, &matched, parts);
                let store = view.store_of(&matched);
                if let Some(decision) = matched.refused(store, now).await {
                    let evaluated = matched.with_decision(&decision, now);
                    return Disposition::Answered(refuse_limited(evaluated, view, context, parts));
                }
                let origin = Origin { rules: &rules, ..context.origin() };
                result = match_answered(&view.snapshot, origin, parts, now, &|_| false, &answers);
                if let Ok(matched) = &result {
                    context.set_matched(&view.snapshot, matched, parts);
                }
            }
            Err(EarlyExit::Ask { route, question }) => {
                context.start_timeout(&view.snapshot, route);
                now = context.ask(&mut answers, *question, parts).await;
                let origin = Origin { rules: &rules, ..context.origin() };
                result = match_answered(&view.snapshot, origin, parts, now, &|_| false, &answers);
                if let Ok(matched) = &result {
                    context.set_matched(&view.snapshot, matched, parts);
                }
            }
        }
    };
    if let Some(response) = context.shed_by_load(view, parts, &matched.identity) {
        return Disposition::Answered(response);
    }
    if reject.is_none() && matches!(matched.route.target, Target::Usage) {
        let usage = view.usage(&matched).await;
        let static_headers = matched.static_headers();
        return Disposition::Answered(respond::usage(static_headers, &usage, now));
    }
    let mut decision = match view.store_of(&matched) {
        Some(store) => matched.decide_in_store(store, now).await,
        None => matched.decide(now, true),
    };
    let Some(reject) = reject else { return finish(&mut matched, &mut decision, now, view, context, parts) };
    let holds = std::mem::take(&mut decision.holds);
    let evaluated = matched.with_decision(&decision, now);
    if !decision.admitted {
        return Disposition::Answered(refuse_limited(evaluated, view, context, parts));
    }
    view.observe(evaluated);
    context.log_evaluation(evaluated, &view.snapshot.config);
    Disposition::Answered(respond_unauthenticated(evaluated, holds, reject, (view, context), parts).await)
}

/// Counts and logs a decision, and takes what admitted requests hold.
fn finish<'s>(
    matched: &mut Matched<'s>,
    decision: &mut Decision,
    now: Time,
    view: &View,
    context: &mut RequestContext,
    parts: &RequestHead,
) -> Disposition<'s> {
    let evaluated = matched.with_decision(decision, now);
    if !decision.admitted {
        return Disposition::Answered(refuse_limited(evaluated, view, context, parts));
    }
    view.observe(evaluated);
    context.log_evaluation(evaluated, &view.snapshot.config);
    let rate_limit_headers = RateLimitHeaders::new(evaluated.results);
    context.hold(std::mem::take(&mut decision.holds));
    Disposition::Admitted(Admitted {
        route: matched.route,
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
    parts: &RequestHead,
) -> LocalResponse {
    view.observe(evaluated);
    context.log_evaluation(evaluated, &view.snapshot.config);
    if evaluated.decision().unavailable {
        context.refused(RefusalReason::Store, None);
        return respond::unavailable(parts, context.id());
    }
    let reject = evaluated.matched.route.reject.as_ref();
    let refused = |reason| context.refused(reason, None);
    let response = respond::refusal(parts, evaluated.results, reject, context.id(), refused);
    context.remember(view, parts, &response, |refused| refused.limited(evaluated));
    response
}

/// The response to a request that is rejected before its limits are evaluated.
fn answer_early(
    reject: &EarlyReject,
    view: &View,
    context: &mut RequestContext,
    parts: &RequestHead,
) -> LocalResponse {
    context.set_rejected(&view.snapshot, reject, parts);
    match reject {
        EarlyReject::Preflight { .. } => {
            respond::preflight(context.cors(&view.snapshot), parts, context.id())
        }
        reject => {
            let response = early_reject::response(reject, parts, context.id());
            context.remember(view, parts, &response, |refused| refused.early(reject.route()));
            response
        }
    }
}
