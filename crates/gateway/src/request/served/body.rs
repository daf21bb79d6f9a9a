//! The body of a question.

use std::time::Duration;

use bytes::Bytes;
use sluicegate_downstream::RequestBody;
use sluicegate_upstream::ForwardError;

use crate::request::View;
use crate::request::message::read_body;

/// How long a proxy may take to send the body of a question.
pub(super) fn patience(view: &View) -> Duration {
    view.snapshot.config.client.body
}

/// The body of a question, which has to arrive within `patience`.
///
/// # Errors
/// If it does not, if it is longer than `max`, or if it is not complete.
pub(super) async fn body_of(
    body: &mut Option<RequestBody>,
    max: usize,
    patience: Duration,
) -> Result<Bytes, ForwardError> {
    let Some(body) = body.take() else { return Ok(Bytes::new()) };
    tokio::time::timeout(patience, read_body(body, max as u64)).await.unwrap_or(Err(ForwardError::ClientSlow))
}
