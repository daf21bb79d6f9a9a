//! `/.well-known/queue/{id}`: what has become of a queued request, for its owner.

use std::sync::Arc;

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
use sluicegate_auth::{Answers, Identified, Identity, Stop};
use sluicegate_base::clock::rfc3339;
use sluicegate_base::incoming::{Request, Routed};
use sluicegate_base::message::LocalResponse;

/// Whether a request asks for the state of a queued one.
#[inline]
pub(super) fn is_asked(view: &View, request: Request<'_>) -> bool {
    view.snapshot.queues.is_some() && request.head.target.path().starts_with(QUEUE_PATH)
}

/// The response to such a request. Whoever is not the owner is answered as if there were no such request.
pub(super) async fn answer(view: &View, context: &RequestContext, request: Request<'_>) -> LocalResponse {
    let (head, snapshot) = (request.head, &view.snapshot);
    if head_checks::check(head, &snapshot.reserved).is_err() {
        return context.refuse(LocalError::Malformed("the request head is not valid"));
    }
    if ![Method::GET, Method::HEAD, Method::DELETE].contains(&head.method) {
        return context.refuse(LocalError::Method);
    }
    let id = head.target.path().strip_prefix(QUEUE_PATH).and_then(|id| id.parse::<Id>().ok());
    let Some(id) = id else { return context.refuse(LocalError::NotQueued) };
    let found = match find(view, context, id).await {
        Ok(found) => found,
        Err(_) => return context.refuse(LocalError::QueueAway),
    };
    let Some((queue, entry)) = found else { return context.refuse(LocalError::NotQueued) };
    let limit = snapshot.limit(&entry.limit);
    let asking = match limit {
        Some(limit) => owner_of(view, context, request, limit).await,
        None => None,
    };
    let (Some(limit), Some(asking)) = (limit, asking) else { return context.refuse(LocalError::NotQueued) };
    if aws_lc_rs::constant_time::verify_slices_are_equal(&asking, &entry.owner).is_err() {
        return context.refuse(LocalError::NotQueued);
    }
    let now = context.now();
    if head.method != Method::DELETE {
        return describe(&entry, limit, now);
    }
    let now_millis = millis(now);
    match queue.state.cancel(id, asking, now_millis, queue.keep()).await {
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
    let mut failed = None;
    for queue in queues.storages() {
        match queue.state.get(id, millis(context.now())).await {
            Ok(Some(entry)) => return Ok(queues.named(&entry.limit).map(|queue| (Arc::clone(queue), entry))),
            Ok(None) => {}
            Err(error) => failed = Some(error), // it may be in another one
        }
    }
    failed.map_or(Ok(None), Err)
}

/// The digest of whoever asks, as if the request were one to a route with this limit; `None` if it proves nobody or lacks the
/// key.
async fn owner_of(
    view: &View,
    context: &RequestContext,
    request: Request<'_>,
    limit: &Limit,
) -> Option<[u8; 32]> {
    let snapshot = &view.snapshot;
    let has_limit = |route: &&Arc<crate::snapshot::Route>| {
        route.limits.iter().any(|used| used.limit.config.name == limit.config.name)
    };
    let index = snapshot.routes.iter().position(|route| has_limit(&route)).unwrap_or(0);
    let route = snapshot.routes.get(index)?;
    let sources = sources(snapshot, index, &[]);
    let (mut answers, mut now) = (Answers::default(), context.begun());
    let identity = match sources.any() {
        false => Identity::default(),
        true => loop {
            match sources.identify(&route.name, request.head, &answers, now) {
                Ok(identity) => break identity,
                Err(Stop::Unproven(_)) => return None,
                Err(Stop::Ask(question)) => now = context.ask(&mut answers, question, request).await,
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
