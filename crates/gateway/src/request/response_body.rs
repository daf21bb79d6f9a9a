//! The body of a response, which ends the request when it is dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::RequestContext;
use crate::snapshot::Snapshot;
use sluicegate_base::message::{self, LocalResponse};
use sluicegate_upstream::{self, Body, BodyError};

/// A response to a client.
pub type Response = message::Response<ResponseBody>;

/// The body of a response. Dropping it, at its end or before, ends the request.
pub struct ResponseBody {
    body: Body,
    context: Box<RequestContext>,
}

/// A connection to a server on which another protocol is spoken, and the context of its request.
pub struct Tunnel {
    /// The connection.
    pub(crate) tunnel: sluicegate_upstream::Tunnel,
    /// Dropping it ends the request.
    pub(crate) context: Box<RequestContext>,
}

impl RequestContext {
    /// Completes the headers of the response and moves the context into its body, with which it ends.
    pub fn finish(
        mut self: Box<Self>,
        snapshot: &Snapshot,
        response: sluicegate_upstream::Response,
    ) -> Response {
        let sluicegate_upstream::Response { status, mut headers, body } = response;
        self.complete(snapshot, status, &mut headers);
        Response { status, headers, body: ResponseBody::new(body, self) }
    }
}

impl RequestContext {
    /// The same for a request that another proxy has asked about: the response to its client is completed, and then made the answer to
    /// the proxy.
    pub(super) fn finish_for_proxy(
        mut self: Box<Self>,
        snapshot: &Snapshot,
        mut response: LocalResponse,
        answer: impl FnOnce(LocalResponse) -> LocalResponse,
    ) -> Response {
        self.complete(snapshot, response.status, &mut response.headers);
        let sluicegate_upstream::Response { status, headers, body } = answer(response).with_body();
        Response { status, headers, body: ResponseBody::new(body, self) }
    }
}

impl ResponseBody {
    /// The body of the response to the request of `context`.
    pub(super) fn new(body: Body, context: Box<RequestContext>) -> Self {
        if body.is_end_stream() {
            context.exchange().set_complete();
        }
        Self { body, context }
    }

    /// The whole body, if it was written for this response alone: the caller gives all of it to the client.
    pub(crate) fn take_text(&mut self) -> Option<Vec<u8>> {
        let text = self.body.take_text()?;
        let exchange = self.context.exchange();
        exchange.add_sent(text.len());
        exchange.set_complete();
        Some(text)
    }

    /// The rest of the body is not wanted.
    pub(super) fn leave(&self) {
        self.context.exchange().set_complete();
    }

    /// The tunnel, if the response switches to another protocol.
    pub(crate) fn into_tunnel(self) -> Option<Tunnel> {
        let Self { body, context } = self;
        body.into_tunnel().map(|tunnel| Tunnel { tunnel, context })
    }

    /// Continues to send the body of the request while the client takes nothing of the response.
    pub(crate) fn poll_upload(&mut self, cx: &mut Context<'_>) {
        self.body.poll_upload(cx, &self.context.exchange().connection().worker.buffers);
    }

    /// Logs why the response ends before its end.
    #[cold]
    pub(crate) fn log_failure(&self, error: &BodyError) {
        let request = self.context.exchange().id().as_str();
        tracing::debug!(request, error = sluicegate_upstream::error_chain(error), "response body failed");
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { body, context: request } = &mut *self;
        let exchange = request.exchange();
        exchange.clear_write_timeout();
        let polled = body.poll_frame(cx, exchange);
        let ended = match &polled {
            Poll::Pending => false,
            Poll::Ready(Some(Err(error))) => {
                request.set_cut(error);
                false
            }
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                exchange.add_sent(bytes);
                exchange.arm_write_timeout(bytes);
                if let Some(trailers) = frame.trailers_ref() {
                    request.charge_trailers(trailers);
                }
                body.is_end_stream()
            }
        };
        if ended {
            request.exchange().set_complete();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
