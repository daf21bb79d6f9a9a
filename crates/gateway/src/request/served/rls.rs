//! Envoy's rate limit service, and the same question in JSON.

use bytes::Bytes;
use http::{Method, StatusCode};
use sluicegate_base::message::LocalResponse;
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_downstream::RequestBody;
use sluicegate_rls::json;
use sluicegate_rls::wire::decode;
use sluicegate_rls::wire::ratelimit::{RateLimitRequest, RateLimitResponse};
use sluicegate_rls::wire::services::{self, Method as Call};
use sluicegate_rls::wire::status::{Code, Status};
use sluicegate_wire::RequestHead;

use super::body::{body_of, patience};
use super::{grpc, rls_decision};
use crate::request::{RequestContext, View};
use crate::respond::{self, LocalError};

/// The response to a request on a listener with `serve: rls`.
pub(super) async fn answer(
    view: &View,
    context: &RequestContext,
    head: &RequestHead,
    body: &mut Option<RequestBody>,
) -> LocalResponse {
    if grpc::is_call(head) {
        let answer = match Call::of(head.target.path()) {
            Some(Call::ShouldRateLimit) => match grpc::message(body, patience(view))
                .await
                .and_then(decode::rate_limit)
            {
                Ok(request) => decide(view, context, &request).await.map(|answer| grpc::response(&answer)),
                Err(status) => Err(status),
            },
            Some(Call::HealthCheck) => grpc::health(body, &[services::RATE_LIMIT], patience(view))
                .await
                .map(|answer| grpc::response(&answer)),
            _ => {
                let text = "this listener serves Envoy's rate limit service, and the health service";
                Err(Status::new(Code::Unimplemented, text))
            }
        };
        return answer.unwrap_or_else(|status| grpc::failed(context, &status));
    }
    match (&head.method, head.target.path()) {
        (&Method::POST, "/json") => in_json(view, context, body).await,
        (&Method::GET | &Method::HEAD, "/healthcheck") => {
            respond::fixed(StatusCode::OK, Bytes::from_static(b"OK"), "text/plain")
        }
        _ => context.refuse(LocalError::NoRoute),
    }
}

/// The decision about a request. A refusal is noted as the reason.
async fn decide(
    view: &View,
    context: &RequestContext,
    request: &RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    let answer = rls_decision::decide(view, context.begun(), request).await?;
    if answer.is_over_limit() {
        context.refused(RefusalReason::Limit, None);
    }
    Ok(answer)
}

/// The same question and answer in JSON, as envoyproxy/ratelimit has them.
async fn in_json(view: &View, context: &RequestContext, body: &mut Option<RequestBody>) -> LocalResponse {
    let body = match body_of(body, json::MAX_JSON, patience(view)).await {
        Ok(body) => body,
        Err(error) => return context.fail(&error),
    };
    let answer = match json::request(&body) {
        Ok(request) => decide(view, context, &request).await,
        Err(status) => Err(status),
    };
    let (status, text, kind) = match answer {
        Ok(answer) if answer.is_over_limit() => {
            (StatusCode::TOO_MANY_REQUESTS, json::response(&answer), "application/json")
        }
        Ok(answer) => (StatusCode::OK, json::response(&answer), "application/json"),
        Err(error) => {
            let status = match error.code {
                Code::Unavailable | Code::Internal => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::BAD_REQUEST,
            };
            (status, format!("{}\n", error.message), "text/plain; charset=utf-8")
        }
    };
    respond::fixed(status, text.into(), kind)
}
