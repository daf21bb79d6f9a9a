//! What a client is told when it asks for its own limits.

use bytes::Bytes;
use http::{StatusCode, header};
use sluicegate_limiter::{Standing, Time};

use super::limits::Told;
use super::problem::{NO_STORE, fixed};
use crate::message::Response;
use crate::request::verdict::{AskedLimit, Found};

/// The client's limits and what is left of them, with the headers that any other answer would have.
pub fn usage(found: &Found<'_>, usage: &[(AskedLimit<'_>, Standing)], now: Time) -> Response {
    let limits: Vec<serde_json::Value> = usage
        .iter()
        .map(|(asked, standing)| {
            let quota = &asked.limit.config.quota;
            serde_json::json!({
                "name": asked.limit.config.name,
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
    let said = found.route.said_to(found.identity.plan());
    if let Some(told) = Told::of(said, usage, now) {
        told.write(found.route, &mut response.headers);
    }
    response
}
