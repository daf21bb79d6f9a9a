//! The services of limitador: over HTTP, and over gRPC.

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::Value;
use sluicegate_base::message::LocalResponse;
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_config::percent_decode;
use sluicegate_downstream::RequestBody;
use sluicegate_rls::json::MAX_JSON;
use sluicegate_rls::limitador::{self, Question};
use sluicegate_rls::wire::decode;
use sluicegate_rls::wire::ratelimit::{Code, RateLimitResponse};
use sluicegate_rls::wire::services::{self, Method as Call};
use sluicegate_rls::wire::status::{Code as GrpcCode, Status};
use sluicegate_wire::RequestHead;

use super::body::{body_of, patience};
use super::grpc;
use super::limitador_decision::{Action, Answer, counters, decide, limits, limits_of};
use crate::request::{RequestContext, View};
use crate::respond::{self, LocalError};

/// The services that a question for the health can name.
const SERVED: [&str; 2] = [services::RATE_LIMIT, services::KUADRANT];
const JSON: &str = "application/json";

/// The response to a request on a listener with `serve: limitador`.
pub(super) async fn answer(
    view: &View,
    context: &RequestContext,
    head: &RequestHead,
    body: &mut Option<RequestBody>,
) -> LocalResponse {
    if grpc::is_call(head) {
        let answer = call(view, context, head, body).await;
        return answer.unwrap_or_else(|status| grpc::failed(context, &status));
    }
    let path = head.target.path();
    let reads = matches!(head.method, Method::GET | Method::HEAD);
    let answer = match (path, path.strip_prefix("/limits/"), path.strip_prefix("/counters/")) {
        ("/check", ..) if head.method == Method::POST => ask(view, context, body, Action::Check).await,
        ("/report", ..) if head.method == Method::POST => ask(view, context, body, Action::Report).await,
        ("/check_and_report", ..) if head.method == Method::POST => {
            ask(view, context, body, Action::CheckAndReport).await
        }
        ("/status", ..) if reads => Ok(json(StatusCode::OK, &Value::Null)),
        (_, Some(namespace), _) if reads => limits(view).map(|known| {
            let namespace = percent_decode(namespace);
            json(StatusCode::OK, &limitador::limits(limits_of(&known.limits, &namespace)))
        }),
        (_, _, Some(namespace)) if reads => {
            let counters = counters(view, context.begun(), &percent_decode(namespace)).await;
            counters.map(|counters| json(StatusCode::OK, &limitador::counters(&counters)))
        }
        _ => return context.refuse(LocalError::NoRoute),
    };
    answer.unwrap_or_else(|status| failed(context, &status))
}

/// The response to a question over HTTP.
async fn ask(
    view: &View,
    context: &RequestContext,
    body: &mut Option<RequestBody>,
    action: Action,
) -> Result<LocalResponse, Status> {
    let body = match body_of(body, MAX_JSON, patience(view)).await {
        Ok(body) => body,
        Err(error) => return Ok(context.fail(&error)),
    };
    let question = Question::in_json(&body)?;
    let Answer { outcomes, refusal } = decide(view, context.begun(), &question, action).await?;
    let mut response = json(StatusCode::OK, &Value::Null);
    if let Some((headers, body)) = refusal {
        context.refused(RefusalReason::Limit, None);
        response = respond::fixed(StatusCode::TOO_MANY_REQUESTS, Bytes::from(body), JSON);
        headers.into_iter().for_each(|(name, value)| response.headers.insert(name, value));
    }
    if question.headers {
        let headers = limitador::headers(&outcomes);
        headers.into_iter().for_each(|(name, value)| response.headers.insert(name, value));
    }
    Ok(response)
}

/// The response to a call of gRPC.
async fn call(
    view: &View,
    context: &RequestContext,
    head: &RequestHead,
    body: &mut Option<RequestBody>,
) -> Result<LocalResponse, Status> {
    let action = match Call::of(head.target.path()) {
        Some(Call::ShouldRateLimit) => Action::CheckAndReport,
        Some(Call::CheckRateLimit) => Action::Check,
        Some(Call::Report) => Action::Report,
        Some(Call::HealthCheck) => {
            return grpc::health(body, &SERVED, patience(view)).await.map(|answer| grpc::response(&answer));
        }
        _ => {
            let text =
                "this listener serves the rate limit services of Envoy and Kuadrant, and the health service";
            return Err(Status::new(GrpcCode::Unimplemented, text));
        }
    };
    let request = grpc::message(body, patience(view)).await.and_then(decode::rate_limit)?;
    let with_headers = view.snapshot.config.limitador.as_ref().is_some_and(|config| config.response_headers);
    let mut question = Question::of(request, with_headers);
    if action == Action::Check {
        question.hits = 1; // as in limitador, whatever the request says
    }
    let Answer { outcomes, refusal } = decide(view, context.begun(), &question, action).await?;
    let code = if refusal.is_some() { Code::OverLimit } else { Code::Ok };
    let mut answer = RateLimitResponse { overall_code: code as i32, ..RateLimitResponse::default() };
    if let Some((headers, body)) = refusal {
        context.refused(RefusalReason::Limit, None);
        answer.raw_body = body.into();
        answer = answer.with_response_headers(headers);
    }
    if question.headers && action == Action::CheckAndReport {
        answer = answer.with_response_headers(limitador::headers(&outcomes));
    }
    Ok(grpc::response(&answer))
}

fn json(status: StatusCode, value: &Value) -> LocalResponse {
    respond::fixed(status, Bytes::from(value.to_string()), JSON)
}

/// The response to a question over HTTP that has no answer.
fn failed(context: &RequestContext, status: &Status) -> LocalResponse {
    let code = match status.code {
        GrpcCode::Unavailable | GrpcCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        GrpcCode::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::BAD_REQUEST,
    };
    grpc::note(context, status);
    respond::fixed(code, Bytes::from(format!("{}\n", status.message)), "text/plain; charset=utf-8")
}
