//! The body of a request, whatever protocol it comes over.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::h1::Http1Body;
use super::h2::Http2Body;

/// The body of a request on its way from the client.
pub enum Inbound {
    /// There is none.
    None,
    /// It is read off the connection as it is asked for. What is not asked for is read and thrown away by the
    /// connection itself.
    Http1(Http1Body),
    /// It comes over a stream of HTTP/2.
    Http2(Http2Body),
}

/// Why a body did not come whole. All of it is the client's doing.
#[derive(Debug, thiserror::Error)]
pub enum InboundError {
    /// It is not framed as RFC 9112 §7 has it.
    #[error("{0}")]
    Malformed(&'static str),
    /// The client broke off.
    #[error("the connection ended in the middle of a body")]
    BrokenOff,
    /// It came slower than is waited for.
    #[error("the body came too slowly")]
    Slow,
    /// The stream was reset, or is malformed.
    #[error("the stream of the body broke")]
    Http2,
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = InboundError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, InboundError>>> {
        match &mut *self {
            Self::None => Poll::Ready(None),
            Self::Http1(body) => body.poll(context),
            Self::Http2(body) => body.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::None => true,
            Self::Http1(body) => body.has_ended(),
            Self::Http2(body) => body.has_ended(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::None => SizeHint::with_exact(0),
            Self::Http1(body) => body.left().map_or_else(SizeHint::new, SizeHint::with_exact),
            Self::Http2(body) => body.left().map_or_else(SizeHint::new, SizeHint::with_exact),
        }
    }
}
