//! 2: READ FIRST. What happens to a request: route → identify → keys → decide → forward | refuse → observe.
//!
//! [`find`] is the part without a socket: the gateway, replays and tests all run it, and then have the limits decide;
//! [`judge`] is both, for counters of this process. [`serve`] is what the gateway does with their answer.

use std::borrow::Cow;
use std::rc::Rc;

use http::uri::PathAndQuery;
use http::{Method, header};
use sluicegate_limiter::{Span, Time};

use crate::auth::{self, Identity};
use crate::boxed_future::boxed_future;
use crate::config::{PathError, normalize};
use crate::limit::{self, Ask, Store, decide};
use crate::message::Response;
use crate::refusal_reason::RefusalReason;
use crate::request::cost::settled;
use crate::request::early_reject::{Stop, Unjudged, deny};
use crate::request::limit_selection::{Arrival, Asking, Scope};
use crate::request::verdict::{Found, Judged, Origin};
use crate::request::{RequestContext, View};
use crate::respond::{self, LocalError};
use crate::rewrite::Unwritable;
use crate::route::{Asked, NoHost, host, is_doubtful, is_plain};
use crate::server::{Connection, Inbound};
use crate::snapshot::{Route, Snapshot, Target};
use crate::upstream::{self, ForwardError};
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;
use sluicegate_wire::RequestTarget;

/// Route, identify, keys, decide, with the counters of this process alone. With `queue`, a delayed request takes a
/// ticket; who never waits goes without.
///
/// # Errors
/// When the request is answered without asking any limit, or is answered 401 although its limits admit it.
pub fn judge<'s>(
    snapshot: &'s Snapshot,
    origin: Origin<'_>,
    parts: &RequestHead,
    now: Time,
    queue: bool,
) -> Result<Judged<'s>, Unjudged> {
    let mut sought = find(snapshot, origin, parts, now, &limit::may_refuse);
    let (found, why) = loop {
        match sought {
            Ok(found) => break (found, None),
            Err(Stop::Denied(denied)) => break (denied.found, Some(denied.why)),
            Err(Stop::Unjudged(why)) => return Err(why),
            Err(Stop::Doubtful(found)) => match found.refused_here(now) {
                Some(judged) => return Ok(judged),
                None => sought = find(snapshot, origin, parts, now, &|_| false),
            },
        }
    };
    let decision = decide(&found.asks, queue);
    match why.filter(|_| decision.admitted) {
        Some(why) => Err(why),
        None => Ok(found.decided(decision, now)),
    }
}

impl<'s> Found<'s> {
    /// With the decision of a store, where limits are shared.
    async fn shared(mut self, store: &Rc<Store>, now: Time) -> Judged<'s> {
        let asks = std::mem::take(&mut self.asks);
        let decision = limit::shared::decide(store, asks, now).await;
        self.decided(decision, now)
    }
}

/// Route, identify, keys. `may_refuse` says whether limits that are asked this would refuse, as far as that is known
/// without asking them: then nothing is verified before they are asked.
///
/// # Errors
/// When the request does not come to all of its limits.
#[inline(never)]
pub fn find<'s>(
    snapshot: &'s Snapshot,
    origin: Origin<'_>,
    parts: &RequestHead,
    now: Time,
    may_refuse: &dyn Fn(&[Ask<'_>]) -> bool,
) -> Result<Found<'s>, Stop<'s>> {
    if !is_served(&parts.method) {
        return Err(Unjudged::Method.into());
    }
    if parts.headers.contains_key(header::TRANSFER_ENCODING) && !is_chunked(&parts.headers) {
        return Err(Unjudged::Framing.into());
    }
    if upstream::nominates(&parts.headers, &snapshot.reserved) {
        return Err(Unjudged::Nominated.into());
    }
    let host = host(parts).map_err(|NoHost| Unjudged::Host)?;
    if origin.tls.is_some_and(|tls| tls.is_misdirected(&host)) {
        return Err(Unjudged::Misdirected.into());
    }
    let plain = is_plain(parts.target.path());
    let path = match plain {
        true => Cow::Borrowed(parts.target.path()),
        false => normalize(parts.target.path()).map_err(|error| match error {
            PathError::NotAbsolute if parts.method == Method::OPTIONS && parts.target.path() == "*" => {
                Unjudged::Gateway
            }
            error => Unjudged::Path(error),
        })?,
    };
    let asked = Asked {
        listener: origin.listener,
        host: &host,
        method: &parts.method,
        path: &path,
        headers: &parts.headers,
    };
    let found = snapshot.table.find(&asked);
    if let Some(route) = snapshot.preflight(&asked, found.as_ref().map(|(index, _)| *index)) {
        return Err(Unjudged::Preflight { route }.into());
    }
    let (route_index, params) = found.ok_or(Unjudged::NoRoute)?;
    let route = &snapshot.routes[route_index];
    let configs = &snapshot.config.routes;
    if !plain && !configs[route_index].matches.exact_spelling && is_doubtful(parts.target.path()) {
        return Err(Unjudged::Path(PathError::Ambiguous).into());
    }
    let near = snapshot.table.near(&asked, route_index, plain);
    let client = snapshot.config.client_ip.resolve(&snapshot.config.lists, origin.peer, &parts.headers);
    let lets_in = |route: usize| configs[route].access.admits(&snapshot.config.lists, client);
    if !lets_in(route_index) || !near.iter().all(|near| lets_in(near.route)) {
        return Err(Unjudged::NotLetIn { route: route_index }.into());
    }
    let wants_user = route.wants_user || near.iter().any(|near| snapshot.routes[near.route].wants_user);
    let jwt = snapshot.jwt.as_deref().filter(|_| wants_user);
    let arrival = Arrival {
        snapshot,
        tls: origin.tls,
        parts,
        now,
        route_index,
        near: &near,
        client,
        host: &host,
        path: &path,
        params: &params,
    };
    let verifies = snapshot.config.api_key.consumers.is_some() || jwt.is_some();
    let identity = match verifies && !arrival.goes_free(route_index) {
        true => arrival.identify(jwt, may_refuse)?,
        false => Identity::default(),
    };
    let mut asking = Asking::default();
    match arrival.ask(&mut asking, &identity, Scope::All) {
        Ok(()) => Ok(arrival.found(identity, asking)),
        Err(why) => Err(arrival.denied(why)),
    }
}

/// Whether a method is one that a gateway serves. TRACE and TRACK would send back what a proxy added; and a method with
/// lower case letters (methods know case) is another one to routes and may be the same to an upstream.
fn is_served(method: &Method) -> bool {
    match method.as_str() {
        "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" => true,
        "CONNECT" | "TRACE" | "TRACK" => false,
        other => !other.bytes().any(|b| b.is_ascii_lowercase()),
    }
}

/// Whether the one transfer coding is `chunked`. The gateway undoes no other, and to pass one on undone would be
/// another message.
fn is_chunked(headers: &Headers) -> bool {
    let only = headers.only(header::TRANSFER_ENCODING);
    only.is_some_and(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

/// The answer to what is no request, or was never one. It is counted as all others are.
pub fn refuse(connection: &Rc<Connection>, error: LocalError) -> Response {
    let (view, now) = (connection.services.view(), connection.worker.clock().now());
    let exchange = RequestContext::begin(connection, &view, now, None);
    let response = exchange.refuse(error);
    exchange.answer(response)
}

/// Serves one request. Every answer, also a refusal or an error, comes from here; no protocol sees a failure. Of the head
/// nothing may be left behind it.
pub async fn serve(connection: &Rc<Connection>, parts: &mut RequestHead, body: Inbound) -> Response {
    let view = connection.services.view();
    let now = connection.worker.clock().now();
    view.snapshot.underscores.clean(&mut parts.headers);
    let mut exchange = RequestContext::begin(connection, &view, now, Some(parts));

    // What is found and judged stands in functions that wait for nothing: whatever stands here is memory that each
    // connection has and each request touches. What is waited for seldom is apart for the same reason.
    let ruling = match rule(connection, &view, &mut exchange, parts, now) {
        Ok(ruling) => ruling,
        Err(later) => boxed_future(|| rule_later(connection, &view, *later, &mut exchange, parts, now)).await,
    };
    let Admitted { route, target, identity, normal_path, affinity, told, delay } = match ruling {
        Ruling::Admitted(admitted) => admitted,
        Ruling::Answered(response) => {
            respond::drain(body, parts);
            return exchange.answer(response);
        }
    };
    if !delay.is_zero() {
        boxed_future(|| exchange.wait_for_turn()).await;
    }

    let mut response = match target {
        Target::Answer { status, body: answer, content_type } => {
            respond::drain(body, parts);
            let response = respond::fixed(*status, answer.clone(), content_type);
            if status.as_u16() >= 400 {
                exchange.refused(RefusalReason::Respond, None);
            }
            exchange.answered(|cost, base| settled(cost, base, response.status, &response.headers));
            response
        }
        Target::Redirect { status, to } => {
            respond::drain(body, parts);
            let response = respond::redirect(*status, &exchange.location(to, parts, &identity));
            exchange.answered(|cost, base| settled(cost, base, response.status, &response.headers));
            response
        }
        Target::Upstream { index, original_path } => {
            match exchange.shape(parts, &identity) {
                Ok(Some(target)) => parts.target = parts.target.with(&target),
                Ok(None) => {
                    if let Some(path) = normal_path.filter(|_| !original_path) {
                        parts.target = with_path(&parts.target, &path);
                    }
                }
                Err(Unwritable) => {
                    respond::drain(body, parts);
                    let response = ForwardError::Unwritable.response(&exchange);
                    return exchange.answer(response);
                }
            }
            exchange.goes_to(*index);
            if let Some(jwt) = &view.snapshot.jwt {
                jwt.tell_upstream(&mut parts.headers, identity.token.as_deref());
            }
            let upstream = view.upstream(*index);
            exchange.set_affinity(affinity);
            let told = auth::told(&view.snapshot.config.api_key, identity.consumer);
            match upstream::forward(connection, &exchange, upstream, route, told, parts, body).await {
                Ok(response) => {
                    exchange.answered(|cost, base| settled(cost, base, response.status, &response.headers));
                    response
                }
                Err(error) => error.response(&exchange),
            }
        }
    };
    if let Some(told) = told {
        told.write(route, &mut response.headers);
    }
    exchange.answer(response)
}

/// What is to become of a request.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum Ruling<'s> {
    /// Its limits admit it.
    Admitted(Admitted<'s>),
    /// It is answered without its route's target.
    Answered(Response),
}

/// A request that its limits admit.
struct Admitted<'s> {
    route: &'s Route,
    target: &'s Target,
    identity: Identity<'s>,
    normal_path: Option<String>,
    affinity: Option<u64>,
    told: Option<respond::Told<'s>>,
    delay: Span,
}

/// Route → keys → decide, by what this process knows.
///
/// # Errors
/// When others have to be asked first, or when it is not proved who asks: what was found until then.
fn rule<'s>(
    connection: &Rc<Connection>,
    view: &'s View,
    exchange: &mut RequestContext,
    parts: &RequestHead,
    now: Time,
) -> Result<Ruling<'s>, Box<Result<Found<'s>, Stop<'s>>>> {
    match find(&view.snapshot, connection.origin(), parts, now, &|asks| view.may_refuse(asks, now)) {
        Ok(found) => {
            exchange.found(&found, parts);
            match &found.route.target {
                Some(target) if view.store_of(&found).is_none() => {
                    let decision = decide(&found.asks, true);
                    Ok(concluded(found.decided(decision, now), target, view, exchange, parts))
                }
                _ => Err(Box::new(Ok(found))),
            }
        }
        Err(Stop::Unjudged(why)) => Ok(Ruling::Answered(unjudged(why, exchange, parts))),
        Err(stop) => Err(Box::new(Err(stop))),
    }
}

/// The same where limits are shared, where only their state is asked for, or where it is not proved who asks.
async fn rule_later<'s>(
    connection: &Rc<Connection>,
    view: &'s View,
    mut sought: Result<Found<'s>, Stop<'s>>,
    exchange: &mut RequestContext,
    parts: &RequestHead,
    now: Time,
) -> Ruling<'s> {
    let (found, why) = loop {
        match sought {
            Ok(found) => break (found, None),
            Err(Stop::Denied(denied)) => {
                exchange.found(&denied.found, parts);
                break (denied.found, Some(denied.why));
            }
            Err(Stop::Unjudged(why)) => return Ruling::Answered(unjudged(why, exchange, parts)),
            Err(Stop::Doubtful(found)) => {
                exchange.found(&found, parts);
                let store = view.store_of(&found);
                if let Some(judged) = found.refused(store, now).await {
                    return Ruling::Answered(turned_away(&judged, view, exchange, parts));
                }
                sought = find(&view.snapshot, connection.origin(), parts, now, &|_| false);
                if let Ok(found) = &sought {
                    exchange.found(found, parts);
                }
            }
        }
    };
    let route = found.route;
    if route.target.is_none() && why.is_none() {
        let usage = view.usage(&found).await;
        return Ruling::Answered(respond::usage(&found, &usage, now));
    }
    let judged = match view.store_of(&found) {
        Some(store) => found.shared(store, now).await,
        None => {
            let decision = decide(&found.asks, true);
            found.decided(decision, now)
        }
    };
    match (why, &route.target) {
        (None, Some(target)) => concluded(judged, target, view, exchange, parts),
        (Some(why), _) if judged.decision.admitted => {
            view.observe(&judged);
            exchange.judged(&judged);
            Ruling::Answered(deny(judged, why, exchange, parts).await)
        }
        _ => Ruling::Answered(turned_away(&judged, view, exchange, parts)),
    }
}

/// What comes of a decision.
fn concluded<'s>(
    mut judged: Judged<'s>,
    target: &'s Target,
    view: &View,
    exchange: &mut RequestContext,
    parts: &RequestHead,
) -> Ruling<'s> {
    if !judged.decision.admitted {
        return Ruling::Answered(turned_away(&judged, view, exchange, parts));
    }
    view.observe(&judged);
    exchange.judged(&judged);
    exchange.hold(std::mem::take(&mut judged.decision.holds));
    let told = respond::Told::new(&judged);
    let Judged { route, identity, normal_path, affinity, decision, .. } = judged;
    Ruling::Admitted(Admitted { route, target, identity, normal_path, affinity, told, delay: decision.delay })
}

/// The answer to a request that its limits do not admit.
fn turned_away(judged: &Judged<'_>, view: &View, exchange: &RequestContext, parts: &RequestHead) -> Response {
    view.observe(judged);
    exchange.judged(judged);
    if judged.decision.unavailable {
        exchange.refused(RefusalReason::Store, None);
        return respond::unavailable(parts, exchange.id());
    }
    respond::refusal(parts, judged, exchange.id(), |reason| exchange.refused(reason, None))
}

/// The answer to a request that never comes to its limits.
fn unjudged(why: Unjudged, exchange: &mut RequestContext, parts: &RequestHead) -> Response {
    exchange.unjudged(&why, parts);
    match why {
        Unjudged::Preflight { .. } => respond::preflight(exchange.cors(), parts, exchange.id()),
        why => respond::unjudged(&why, parts, exchange.id()),
    }
}

/// `target` with another path, and the same query and authority.
fn with_path(target: &RequestTarget, path: &str) -> RequestTarget {
    let text = match target.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    // A normal form is made of characters that URIs have.
    PathAndQuery::try_from(text).map_or_else(|_| target.clone(), |path| target.with(&path))
}
