//! Answers about requests that are delivered later.

use bytes::Bytes;
use http::{StatusCode, header};
use serde_json::json;
use sluicegate_limiter::{Span, Time};

use super::grpc::is_grpc;
use super::problem::{NO_STORE, X_REQUEST_ID, fixed};
use sluicegate_base::clock::rfc3339;
use sluicegate_base::message::{LocalResponse, RequestId};
use sluicegate_wire::RequestHead;

/// Where clients look after their queued requests: `/.well-known/queue/{id}`.
pub const QUEUE_PATH: &str = "/.well-known/queue/";

/// A request that was queued, now or before.
pub struct Queued {
    /// Its name in the queue.
    pub id: String,
    /// The word for its state.
    pub state: &'static str,
    /// Its place in the queue, from 1, and how long it is likely to wait; `None` if it has ended. Both are estimates.
    pub place: Option<(u64, Span)>,
    /// Whether its client has asked for an answer that comes later.
    pub preferred: bool,
}

/// The response to a request that was queued: 202, with the address where its outcome will be.
#[cold]
pub fn queued(queued: &Queued, now: Time, request: &RequestId) -> LocalResponse {
    let Queued { id, state, place, preferred } = queued;
    let location = format!("{QUEUE_PATH}{id}");
    let mut body = json!({ "id": id, "state": state, "status_url": location });
    if let Some((position, wait)) = place {
        body["position"] = json!(position);
        body["expected_at"] = json!(rfc3339(now.plus(*wait)));
        body["expected_seconds"] = json!(wait.ceil_secs());
    }
    let mut response = json_response(StatusCode::ACCEPTED, &body);
    response.headers.insert(header::LOCATION, &location);
    let retry_after = place.map_or(1, |(_, wait)| wait.ceil_secs().max(1));
    response.headers.insert(header::RETRY_AFTER, retry_after.to_string());
    response.headers.insert(X_REQUEST_ID, request);
    if *preferred {
        response.headers.insert("preference-applied", "respond-async");
    }
    response
}

/// A JSON document that is not to be stored.
pub fn json_response(status: StatusCode, body: &serde_json::Value) -> LocalResponse {
    let mut response = fixed(status, Bytes::from(format!("{body:#}\n")), "application/json");
    response.headers.insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// Whether the client needs the answer now: it wants to switch protocols, or calls a gRPC method.
pub fn needs_answer(head: &RequestHead) -> bool {
    head.headers.contains_key(header::UPGRADE) || is_grpc(head)
}
