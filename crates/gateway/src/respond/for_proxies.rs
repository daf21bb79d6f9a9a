//! Responses to other proxies, which ask for decisions.

use bytes::Bytes;
use http::{StatusCode, header};

use super::problem::{NO_STORE, PROBLEM_JSON};
use sluicegate_base::message::{LocalBody, LocalResponse};

/// The request that was asked about is admitted.
pub fn admitted() -> LocalResponse {
    LocalResponse::new(StatusCode::OK, LocalBody::Empty)
}

/// The response to a call of gRPC: its message with the frame, or the code and the encoded message of its status.
pub fn call(answer: Result<Bytes, (u8, String)>) -> LocalResponse {
    let mut response = LocalResponse::new(StatusCode::OK, LocalBody::Empty);
    response.headers.insert(header::CONTENT_TYPE, "application/grpc");
    match answer {
        Ok(message) => response.body = LocalBody::Grpc(message),
        Err((code, message)) => {
            response.headers.insert("grpc-status", code.to_string());
            response.headers.insert("grpc-message", message);
        }
    }
    response
}

/// Headers and body of a refusal that the proxy sends to its client. `limit` is the name of the limit.
pub fn rls_refusal(limit: &str, seconds: u64) -> ([(&'static str, String); 3], String) {
    let headers = [
        ("content-type", PROBLEM_JSON.to_owned()),
        ("cache-control", NO_STORE.to_owned()),
        ("retry-after", seconds.to_string()),
    ];
    let unit = if seconds == 1 { "second" } else { "seconds" };
    let body = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too Many Requests",
        "status": 429,
        "detail": format!("the quota is used up; try again in {seconds} {unit}"),
        "reason": "limit",
        "violated-policies": [limit],
        "retry_after": seconds,
    });
    (headers, body.to_string())
}
