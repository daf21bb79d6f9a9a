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

/// A request that was queued.
pub struct Queued {
    /// Its name in the queue.
    pub id: String,
    /// Its place in the queue, from 1; an estimate.
    pub position: u64,
    /// How long it is likely to wait.
    pub wait: Span,
    /// Whether its client has asked for an answer that comes later.
    pub preferred: bool,
}

/// The response to a request that was queued: 202, with the address where its outcome will be.
#[cold]
pub fn queued(queued: &Queued, now: Time, request: &RequestId) -> LocalResponse {
    let Queued { id, position, wait, preferred } = queued;
    let location = format!("{QUEUE_PATH}{id}");
    let body = json!({
        "id": id,
        "state": "queued",
        "position": position,
        "expected_at": rfc3339(now.plus(*wait)),
        "expected_seconds": wait.ceil_secs(),
        "status_url": location,
    });
    let mut response = json_response(StatusCode::ACCEPTED, &body);
    response.headers.insert(header::LOCATION, &location);
    response.headers.insert(header::RETRY_AFTER, wait.ceil_secs().max(1).to_string());
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

/// Whether the client of a request cannot do without an answer now: it wants to switch protocols, or calls a gRPC method.
pub fn needs_answer(head: &RequestHead) -> bool {
    head.headers.contains_key(header::UPGRADE) || is_grpc(head)
}
