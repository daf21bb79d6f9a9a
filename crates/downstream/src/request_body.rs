//! The body of a request, over HTTP/1.1 or HTTP/2.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use sluicegate_wire::RequestHead;

use super::h1::Http1Body;
use super::h2_body::Http2Body;
use super::request_body_error::RequestBodyError;

/// Bytes that a client may still send over HTTP/2 after the response. A longer body is reset.
const MAX_DRAINED: u64 = 64 << 10;
/// The time limit for that.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The body of a request on its way from the client.
pub enum RequestBody {
    /// No body.
    None,
    /// Read from the connection when it is polled. The connection reads and discards what is not polled.
    Http1(Http1Body),
    /// The body on an HTTP/2 stream.
    Http2(Http2Body),
    /// In memory, of a request that was accepted earlier; empty at its end.
    Stored(Bytes),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        match &mut *self {
            Self::None => Poll::Ready(None),
            Self::Http1(body) => body.poll(cx),
            Self::Http2(body) => body.poll(cx),
            Self::Stored(body) if body.is_empty() => Poll::Ready(None),
            Self::Stored(body) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(body))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::None => true,
            Self::Http1(body) => body.has_ended(),
            Self::Http2(body) => body.has_ended(),
            Self::Stored(body) => body.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::None => SizeHint::with_exact(0),
            Self::Http1(body) => body.left().map_or_else(SizeHint::new, SizeHint::with_exact),
            Self::Http2(body) => body.left().map_or_else(SizeHint::new, SizeHint::with_exact),
            Self::Stored(body) => SizeHint::with_exact(body.len() as u64),
        }
    }
}

impl RequestBody {
    /// Waits for the begin of a body of unknown length in a request that usually has none: HTTP/2 clients may end such a request with
    /// an empty frame after its head, and over HTTP/1.1 it has no body then.
    pub async fn begin(&mut self, method: &Method) {
        if let Self::Http2(body) = self
            && body.left().is_none()
            && !body.has_ended()
            && ![Method::POST, Method::PUT, Method::PATCH].contains(method)
        {
            sluicegate_base::boxed_future::boxed_future(|| body.begin()).await;
        }
    }

    /// Leaves the rest of the body. Over HTTP/1.1 the connection reads and discards it, in bounds, so that the client sees
    /// the response; over HTTP/2 it is read beside the response, and a long body is reset. `head` is that of the request.
    pub fn drain(self, head: &RequestHead) {
        // A client that waits for 100 (Continue) gets the response instead.
        if matches!(self, Self::Http2(_))
            && !self.is_end_stream()
            && !head.headers.contains_key(header::EXPECT)
        {
            let drained = tokio::time::timeout(DRAIN_TIMEOUT, discard(self));
            sluicegate_base::boxed_future::spawn_local(async move { _ = drained.await });
        }
    }
}

async fn discard(mut body: RequestBody) {
    let mut left = MAX_DRAINED;
    while let Some(Ok(frame)) = body.frame().await {
        match left.checked_sub(frame.data_ref().map_or(0, |data| data.len() as u64)) {
            Some(rest) => left = rest,
            None => break,
        }
    }
}
