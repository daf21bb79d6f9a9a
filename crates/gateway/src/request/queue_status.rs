//! `/.well-known/queue/{id}`: what has become of a queued request, for its owner.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{Method, StatusCode, header};
use serde_json::{Value, json};
use sluicegate_limiter::Time;
use sluicegate_route::keys::{self, KeyText};

use super::head_checks;
use super::matching::sources;
use super::owner::{owner, parts_of_client};
use super::view::View;
use crate::limit::Limit;
use crate::queue::{
    Cancelled, Entry, Id, Queue, QueueError, State, StoredAnswer, millis, of_characters, time,
};
use crate::request::RequestContext;
use crate::respond::{self, LocalError, QUEUE_PATH};
use crate::snapshot::Route;
use sluicegate_auth::{Answers, Identified, Identity, Stop};
use sluicegate_base::clock::rfc3339;
use sluicegate_base::incoming::{Request, Routed};
use sluicegate_base::message::LocalResponse;

/// How many times the gateway tries to cancel a request that is being sent, and the pause between two attempts.
const CANCEL_ATTEMPTS: u32 = 20;
const CANCEL_PAUSE: Duration = Duration::from_millis(25);

/// Whether a request asks for the state of a queued one.
#[inline]
pub(super) fn is_asked(view: &View, request: Request<'_>) -> bool {
    view.snapshot.queues.is_some() && request.head.target.path().starts_with(QUEUE_PATH)
}

/// The response to such a request. A client that is not the owner is answered as if the queued request did not exist.
pub(super) async fn answer(view: &View, context: &RequestContext, request: Request<'_>) -> LocalResponse {
    let (head, snapshot) = (request.head, &view.snapshot);
    if head_checks::check(head, &snapshot.reserved).is_err() {
        return context.refuse(LocalError::Malformed("the request head is not valid"));
    }
    if ![Method::GET, Method::HEAD, Method::DELETE].contains(&head.method) {
        let mut response = context.refuse(LocalError::Method);
        response.headers.insert(header::ALLOW, "GET, HEAD, DELETE");
        return response;
    }
    let id = head.target.path().strip_prefix(QUEUE_PATH).and_then(|id| id.parse::<Id>().ok());
    let Some(id) = id else { return context.refuse(LocalError::NotQueued) };
    let found = match find(view, context, id).await {
        Ok(found) => found,
        Err(_) => return context.refuse(LocalError::QueueAway),
    };
    let Some((queue, entry)) = found else { return context.refuse(LocalError::NotQueued) };
    let Some(limit) = snapshot.limit(&entry.limit) else { return context.refuse(LocalError::NotQueued) };
    if !is_owner(view, context, request, limit, &entry.owner).await {
        return context.refuse(LocalError::NotQueued);
    }
    let now = context.now();
    if head.method != Method::DELETE {
        return describe(&entry, limit, now);
    }
    let now_millis = millis(now);
    match cancel(&queue, id, entry.owner, now_millis).await {
        Ok(Cancelled::Done) => {
            let ended = Some(now_millis);
            describe(&Entry { state: State::Cancelled, ahead: 0, ended, ..entry }, limit, now)
        }
        Ok(Cancelled::NotFound) => context.refuse(LocalError::NotQueued),
        Ok(Cancelled::TooLate(state)) => {
            let mut response = describe(&Entry { state, ..entry }, limit, now);
            response.status = StatusCode::CONFLICT;
            response
        }
        Err(_) => context.refuse(LocalError::QueueAway),
    }
}

/// The queue and the request of this name, if there is one.
async fn find(
    view: &View,
    context: &RequestContext,
    id: Id,
) -> Result<Option<(Arc<Queue>, Entry)>, QueueError> {
    let Some(queues) = &view.snapshot.queues else { return Ok(None) };
    let Some(_permit) = queues.lookup() else {
        return Err(QueueError::Internal("too many lookups are in progress".to_owned()));
    };
    let mut failed = None;
    for queue in queues.storages() {
        match queue.state.get(id, millis(context.now())).await {
            Ok(Some(entry)) => return Ok(queues.named(&entry.limit).map(|queue| (Arc::clone(queue), entry))),
            Ok(None) => {}
            Err(error) => failed = Some(error), // another storage may have the request
        }
    }
    failed.map_or(Ok(None), Err)
}

/// Cancels a request. One that is being sent may return to the queue because its limits do not admit it yet; this waits briefly
/// for that.
async fn cancel(queue: &Queue, id: Id, owner: [u8; 32], now: u64) -> Result<Cancelled, QueueError> {
    for _ in 0..CANCEL_ATTEMPTS {
        match queue.state.cancel(id, owner, now, queue.keep()).await? {
            Cancelled::TooLate(State::Claimed) => tokio::time::sleep(CANCEL_PAUSE).await,
            cancelled => return Ok(cancelled),
        }
    }
    queue.state.cancel(id, owner, now, queue.keep()).await
}

/// Whether the client owns a request under this limit: its digest is `owner`. The digest is computed as if the client had sent
/// this request to a route that has the limit.
async fn is_owner(
    view: &View,
    context: &RequestContext,
    request: Request<'_>,
    limit: &Limit,
    owner: &[u8; 32],
) -> bool {
    let routes = &view.snapshot.routes;
    let has_limit =
        |route: &Arc<Route>| route.limits.iter().any(|used| used.limit.config.name == limit.config.name);
    let mut answers = Answers::default();
    for index in (0..routes.len()).filter(|index| has_limit(&routes[*index])) {
        let asking = owner_at(index, view, context, request, limit, &mut answers).await;
        if asking.is_some_and(|asking| constant_time::verify_slices_are_equal(&asking, owner).is_ok()) {
            return true;
        }
    }
    false
}

/// The digest of the client of a request to the route with this index; `None` if the request does not prove who it is.
async fn owner_at(
    index: usize,
    view: &View,
    context: &RequestContext,
    request: Request<'_>,
    limit: &Limit,
    answers: &mut Answers,
) -> Option<[u8; 32]> {
    let snapshot = &view.snapshot;
    let route = snapshot.routes.get(index)?;
    let sources = sources(snapshot, index, &[]);
    let mut now = context.begun();
    let identity = match sources.any() {
        false => Identity::default(),
        true => loop {
            match sources.identify(&route.name, request.head, answers, now) {
                Ok(identity) => break identity,
                Err(Stop::Unproven(_)) => return None,
                Err(Stop::Ask(question)) => now = context.ask(answers, question, request).await,
            }
        },
    };
    let spec = parts_of_client(&limit.config.key);
    let config = &snapshot.config;
    let path = request.head.target.path();
    let routed = Routed { request, config, index, host: "", path, params: &[], folded: false };
    let mut text = KeyText::new();
    let identified = Identified { routed: &routed, identity: &identity };
    if !spec.alternatives().is_empty()
        && keys::fingerprint(&spec, identified, &snapshot.secret, Some(&mut text)).is_none()
    {
        text.clear(); // the request that is queued may have had no key either
    }
    Some(owner(request, &identity, &text, config))
}

/// What is known of a queued request.
fn describe(entry: &Entry, limit: &Limit, now: Time) -> LocalResponse {
    let status = match entry.state {
        State::Expired => StatusCode::GONE,
        _ => StatusCode::OK,
    };
    let mut response = respond::json_response(status, &document(entry));
    if !entry.state.has_ended() {
        let rate = limit.counted.quota.rate().filter(|_| limit.config.key.is_constant());
        let interval = rate.map_or(0, |rate| rate.period().as_nanos() / rate.count().max(1));
        let by_rate = interval.saturating_mul(entry.ahead + 1).div_ceil(1_000_000_000);
        let by_time = entry.due.saturating_sub(millis(now)).div_ceil(1_000);
        response.headers.insert(header::RETRY_AFTER, by_rate.max(by_time).max(1).to_string());
    }
    response
}

/// A queued request as its owner and operators see it.
pub(crate) fn document(entry: &Entry) -> Value {
    let mut document = json!({
        "id": entry.id.to_string(),
        "state": entry.state.name(),
        "accepted_at": rfc3339(time(entry.accepted)),
        "attempts": entry.attempts,
    });
    let mut add = |name: &str, value: Value| document[name] = value;
    match entry.state.has_ended() {
        false => {
            add("position", json!(entry.ahead + 1));
            add("expires_at", json!(rfc3339(time(entry.expires))));
            if entry.due > entry.accepted {
                add("next_attempt_at", json!(rfc3339(time(entry.due))));
            }
        }
        true => add("ended_at", json!(entry.ended.map(|ended| rfc3339(time(ended))))),
    }
    if let Some(reason) = &entry.reason {
        add("reason", json!(reason));
    }
    if let Some(answer) = entry.answer.as_ref().and_then(|answer| StoredAnswer::decode(answer).ok()) {
        add("answer", answer_document(&answer));
    }
    document
}

fn answer_document(answer: &StoredAnswer) -> Value {
    let mut headers = serde_json::Map::new();
    for (name, value) in &answer.headers {
        let value = json!(String::from_utf8_lossy(&of_characters(value)));
        match headers.get_mut(name) {
            None => _ = headers.insert(name.clone(), value),
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = json!([first, value]),
        }
    }
    let mut document = json!({ "status": answer.status, "headers": headers, "truncated": answer.truncated });
    match std::str::from_utf8(&answer.body) {
        Ok(text) => document["body"] = json!(text),
        Err(_) => document["body_base64"] = json!(BASE64_STANDARD.encode(&answer.body)),
    }
    document
}
