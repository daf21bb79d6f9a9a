//! The response to a client that asks for the state of its own limits.

use bytes::Bytes;
use http::{StatusCode, header};
use sluicegate_limiter::{Time, Usage};

use super::limits::RateLimitHeaders;
use super::problem::{NO_STORE, fixed};
use super::static_headers::StaticHeaders;
use crate::limit::SelectedLimit;
use sluicegate_base::message::LocalResponse;

/// The client's limits with what remains of each, and the headers that any other response would have.
pub fn usage(
    static_headers: &StaticHeaders,
    usage: &[(&SelectedLimit<'_>, Usage)],
    now: Time,
) -> LocalResponse {
    let limits: Vec<serde_json::Value> = usage
        .iter()
        .map(|(selected, standing)| {
            let quota = &selected.limit.counted.quota;
            serde_json::json!({
                "name": selected.limit.config.name,
                "limit": quota.shown(),
                "window": quota.window(now).map(|window| window.as_nanos() as f64 / 1e9),
                "remaining": standing.remaining,
                "reset": standing.reset.ceil_secs(),
            })
        })
        .collect();
    let body = Bytes::from(format!("{:#}\n", serde_json::json!({ "limits": limits })));
    let mut response = fixed(StatusCode::OK, body, "application/json");
    response.headers.insert(header::CACHE_CONTROL, NO_STORE);
    if let Some(headers) = RateLimitHeaders::of_usage(static_headers, usage, now) {
        headers.write(response.status, &mut response.headers);
    }
    response
}
