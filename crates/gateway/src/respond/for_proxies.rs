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

/// Headers and body of a refusal that the proxy sends to its client. `limit` is the name of the limit; the same request is admitted after
/// `seconds`, if ever.
pub fn rls_refusal(limit: &str, seconds: Option<u64>) -> (Vec<(&'static str, String)>, String) {
    let mut headers = vec![("content-type", PROBLEM_JSON.to_owned()), ("cache-control", NO_STORE.to_owned())];
    headers.extend(seconds.map(|seconds| ("retry-after", seconds.to_string())));
    let detail = match seconds {
        None => {
            "this request costs more than the quota can ever hold; it will not be admitted later".to_owned()
        }
        Some(1) => "the quota is used up; try again in 1 second".to_owned(),
        Some(seconds) => format!("the quota is used up; try again in {seconds} seconds"),
    };
    let mut body = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too Many Requests",
        "status": 429,
        "detail": detail,
        "reason": "limit",
        "violated-policies": [limit],
    });
    if let Some(seconds) = seconds {
        body["retry_after"] = seconds.into();
    }
    (headers, body.to_string())
}
