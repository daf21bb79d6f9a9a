//! Unary calls of gRPC over HTTP/2: one message in, one message out.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Version};
use prost::Message;
use sluicegate_base::message::LocalResponse;
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_downstream::RequestBody;
use sluicegate_rls::wire::decode::{self, MAX_MESSAGE};
use sluicegate_rls::wire::frame;
use sluicegate_rls::wire::health::{HealthCheckResponse, ServingStatus};
use sluicegate_rls::wire::status::{Code, Status};
use sluicegate_upstream::ForwardError;
use sluicegate_wire::RequestHead;

use super::body::body_of;
use crate::request::RequestContext;
use crate::respond::{self, LocalError};

/// Whether a request is a call.
pub(super) fn is_call(head: &RequestHead) -> bool {
    head.version == Version::HTTP_2 && head.method == Method::POST && respond::is_grpc(head)
}

/// The response to a call of a peer that may not ask.
pub(super) fn denied(context: &RequestContext) -> LocalResponse {
    let error = LocalError::CallerDenied;
    context.refused(error.reason(), Some(error.detail()));
    let status = Status::new(Code::PermissionDenied, error.detail());
    respond::call(Err((status.code.number(), status.encoded_message())))
}

/// Notes why a question has no answer.
pub(super) fn note(context: &RequestContext, status: &Status) {
    let reason = match status.code {
        Code::Unavailable | Code::Internal => RefusalReason::Store,
        _ => RefusalReason::Malformed,
    };
    context.refused(reason, None);
}

/// The response to a call that has no answer.
pub(super) fn failed(context: &RequestContext, status: &Status) -> LocalResponse {
    note(context, status);
    respond::call(Err((status.code.number(), status.encoded_message())))
}

/// The message of a call.
///
/// # Errors
/// If there is not exactly one, if it is too long, or if it does not arrive within `patience`.
pub(super) async fn message(body: &mut Option<RequestBody>, patience: Duration) -> Result<Bytes, Status> {
    let whole = body_of(body, MAX_MESSAGE + frame::PREFIX, patience).await.map_err(|error| match error {
        ForwardError::TooLarge => Status::new(Code::ResourceExhausted, "the message is too long"),
        ForwardError::ClientSlow => Status::new(Code::DeadlineExceeded, "the message did not arrive in time"),
        _ => Status::invalid("the message is incomplete"),
    })?;
    frame::message(&whole, MAX_MESSAGE)
}

/// The answer to a question for the health of a service, if it is one of those that are served; an empty name is the server as a
/// whole.
pub(super) async fn health(
    body: &mut Option<RequestBody>,
    served: &[&str],
    patience: Duration,
) -> Result<HealthCheckResponse, Status> {
    let question = decode::health(message(body, patience).await?)?;
    match question.service.is_empty() || served.contains(&question.service.as_str()) {
        true => Ok(HealthCheckResponse::of(ServingStatus::Serving)),
        false => Err(Status::new(Code::NotFound, "this service is not served here")),
    }
}

/// The response to a call.
pub(super) fn response(message: &impl Message) -> LocalResponse {
    respond::call(Ok(frame::encode(message)))
}
