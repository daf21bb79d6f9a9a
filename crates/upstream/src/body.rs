//! Response bodies of upstreams and of the gateway. At its end a body releases its connection.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use super::exchange::Exchange;
use super::h1_connection::H1Connection;
use super::h2_pool::Stream;
use super::headers::{self, is_larger};
use super::pool::Pool;
use super::tunnel::Tunnel;
use sluicegate_base::cut_reason::CutReason;
use sluicegate_base::message::{self, LocalBody};
use sluicegate_downstream::worker_state::Buffers;
use sluicegate_wire::h1::{self, BodyDecoder, Decoded};

/// A response with a body of any kind.
pub type Response = message::Response<Body>;

/// The body of a response.
pub struct Body(Kind);

enum Kind {
    Empty,
    Full(Bytes),
    /// Written for this response alone.
    Text(Vec<u8>),
    /// A message of gRPC, then its trailers.
    Grpc(Bytes),
    GrpcTrailers,
    /// From an HTTP/2 server.
    H2Body(Box<H2Body>),
    /// From an HTTP/1.1 server.
    H1Body(H1Body),
    /// The connection was switched to another protocol.
    Switched(Box<Tunnel>),
}

/// A body on an HTTP/2 stream.
pub(super) struct H2Body {
    pub(super) body: Incoming,
    /// `None` once the body has ended.
    pub(super) stream: Option<Stream>,
    /// The longest trailers, in bytes.
    pub(super) max_head: usize,
}

/// A body on an HTTP/1.1 connection.
pub(super) struct H1Body {
    decoder: BodyDecoder,
    /// `None` once the body has ended or failed.
    h1_connection: Option<Box<H1Connection>>,
    pool: Rc<Pool>,
    /// For how many milliseconds the connection is kept afterwards, 0 if it cannot be used again.
    kept: u32,
}

/// Why a response is incomplete. The connection of the client is closed, so that it does not take the response for complete.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The HTTP/2 stream or connection of the upstream failed.
    #[error("the upstream aborted its response")]
    Upstream(#[source] hyper::Error),
    /// The upstream reset its stream with NO_ERROR before the end of the response.
    #[error("the upstream ended its stream in the middle of its response")]
    Truncated,
    /// The connection of the upstream failed or ended.
    #[error("the upstream's connection ended in the middle of its response")]
    Connection(#[source] std::io::Error),
    /// The framing of the body violates RFC 9112 §7.
    #[error("{0}")]
    Malformed(&'static str),
    /// The upstream sent nothing for longer than the idle timeout, or the total timeout has expired.
    #[error("the upstream stopped in the middle of its response")]
    Stalled,
    /// The request body failed while the response was in progress.
    #[error("the request body is incomplete")]
    Upload,
}

impl BodyError {
    /// Why the answer is cut. `is_over` says whether the total timeout has expired.
    pub fn cut_reason(&self, is_over: bool) -> CutReason {
        match self {
            Self::Connection(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                CutReason::UpstreamClosed
            }
            Self::Upstream(_) | Self::Truncated | Self::Connection(_) => CutReason::UpstreamReset,
            Self::Malformed(_) => CutReason::UpstreamMalformed,
            Self::Stalled if is_over => CutReason::TotalTimeout,
            Self::Stalled => CutReason::UpstreamIdle,
            Self::Upload => CutReason::UploadFailed,
        }
    }
}

impl From<LocalBody> for Body {
    fn from(body: LocalBody) -> Self {
        Self(match body {
            LocalBody::Empty => Kind::Empty,
            LocalBody::Shared(bytes) => Kind::Full(bytes),
            LocalBody::Owned(text) => Kind::Text(text),
            LocalBody::Grpc(message) => Kind::Grpc(message),
        })
    }
}

impl Body {
    /// No body.
    pub fn empty() -> Self {
        Self(Kind::Empty)
    }

    /// The whole body, if it was written for this response alone. The caller must send all of it.
    pub fn take_text(&mut self) -> Option<Vec<u8>> {
        let Self(Kind::Text(text)) = self else { return None };
        let text = std::mem::take(text);
        self.0 = Kind::Empty;
        Some(text)
    }

    pub(super) fn h2_body(body: H2Body) -> Self {
        if body.body.is_end_stream() {
            return Self::empty();
        }
        Self(Kind::H2Body(Box::new(body)))
    }

    /// The body of a response on an HTTP/1.1 connection, which returns to the pool when the body has ended.
    pub(super) fn h1_body(
        response: &mut h1::Response,
        h1_connection: Box<H1Connection>,
        pool: Rc<Pool>,
        (now, kept): (u64, u32),
    ) -> Self {
        let decoder = std::mem::replace(&mut response.body, BodyDecoder::Ended);
        let kept = if response.keep_alive { kept } else { 0 };
        let mut h1_body = H1Body { decoder, h1_connection: Some(h1_connection), pool, kept };
        if h1_body.decoder == BodyDecoder::Ended {
            h1_body.release_connection(now);
            return Self::empty();
        }
        Self(Kind::H1Body(h1_body))
    }

    /// A tunnel in place of a body; `idle` is its timeout.
    pub(super) fn switched(h1_connection: H1Connection, idle: Duration) -> Self {
        Self(Kind::Switched(Box::new(h1_connection.into_tunnel(idle))))
    }

    /// The tunnel, if the connection was switched to another protocol.
    pub fn into_tunnel(self) -> Option<Tunnel> {
        match self.0 {
            Kind::Switched(tunnel) => Some(*tunnel),
            _ => None,
        }
    }

    /// Continues to send the request body while the client does not read the response.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>, buffers: &Buffers) {
        if let Kind::H1Body(H1Body { h1_connection: Some(h1_connection), .. }) = &mut self.0 {
            // An error occurs again at the next `poll_frame`.
            let _ = h1_connection.poll_upload(cx, Some(buffers));
        }
    }

    /// The next frame; `None` at the end.
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &Exchange,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut polled = match &mut self.0 {
            Kind::Empty | Kind::Switched(_) => return Poll::Ready(None),
            Kind::H2Body(_) | Kind::H1Body(_) if exchange.is_over() => {
                return Poll::Ready(Some(Err(BodyError::Stalled)));
            }
            Kind::Full(_) | Kind::Text(_) => {
                let data = match std::mem::replace(&mut self.0, Kind::Empty) {
                    Kind::Full(bytes) => bytes,
                    Kind::Text(text) => text.into(),
                    _ => Bytes::new(),
                };
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            Kind::Grpc(message) => {
                let message = std::mem::take(message);
                self.0 = Kind::GrpcTrailers;
                return Poll::Ready(Some(Ok(Frame::data(message))));
            }
            Kind::GrpcTrailers => {
                self.0 = Kind::Empty;
                let status = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
                return Poll::Ready(Some(Ok(Frame::trailers([status].into_iter().collect()))));
            }
            Kind::H2Body(body) => body.poll(cx, exchange),
            Kind::H1Body(h1_body) => h1_body.poll(cx, exchange),
        };
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
        {
            headers::response_trailers(trailers);
        }
        polled
    }

    /// Whether no frame follows.
    pub fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty | Kind::Switched(_) => true,
            Kind::Full(_) | Kind::Text(_) | Kind::Grpc(_) | Kind::GrpcTrailers => false,
            Kind::H2Body(body) => body.stream.is_none(),
            Kind::H1Body(h1_body) => h1_body.decoder == BodyDecoder::Ended && h1_body.h1_connection.is_none(),
        }
    }

    /// The bytes that follow, if that is known.
    pub fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty | Kind::Switched(_) => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Text(text) => SizeHint::with_exact(text.len() as u64),
            Kind::Grpc(_) | Kind::GrpcTrailers => SizeHint::new(),
            Kind::H2Body(body) => body.body.size_hint(),
            Kind::H1Body(h1_body) => {
                h1_body.decoder.remaining().map_or_else(SizeHint::new, SizeHint::with_exact)
            }
        }
    }
}

impl H2Body {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &Exchange,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_pending() {
            return match exchange.has_stalled(cx) {
                true => Poll::Ready(Some(Err(BodyError::Stalled))),
                false => Poll::Pending,
            };
        }
        exchange.clear_stall_timeout();
        if let Some(stream) = &self.stream {
            stream.note_read(exchange.connection().worker.deadlines.now());
        }
        let frame = ready!(polled);
        let trailers = match &frame {
            Some(Ok(frame)) => frame.trailers_ref(),
            _ => None,
        };
        if trailers.is_some_and(|trailers| is_larger(trailers, self.max_head)) {
            self.stream = None;
            return Poll::Ready(Some(Err(BodyError::Malformed("the trailers of the response are too long"))));
        }
        if matches!(frame, Some(Ok(_))) && !self.body.is_end_stream() {
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Upstream)));
        }
        // After a reset with NO_ERROR, hyper ends the body even if it is incomplete.
        let is_truncated = frame.is_none() && self.stream.is_some() && !self.body.is_end_stream();
        self.stream = None;
        if is_truncated {
            return Poll::Ready(Some(Err(BodyError::Truncated)));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Upstream)))
    }
}

impl H1Body {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &Exchange,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let worker = &exchange.connection().worker;
        let (buffers, now) = (Some(&worker.buffers), worker.deadlines.now());
        if self
            .h1_connection
            .as_mut()
            .is_some_and(|h1_connection| h1_connection.poll_upload(cx, buffers).is_err())
        {
            self.h1_connection = None;
            return Poll::Ready(Some(Err(BodyError::Upload)));
        }
        loop {
            let Some(h1_connection) = &mut self.h1_connection else { return Poll::Ready(None) };
            let error = match self.decoder.decode(&mut h1_connection.read) {
                Ok(Decoded::Frame(frame)) => {
                    if self.decoder == BodyDecoder::Ended {
                        self.release_connection(now);
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                Ok(Decoded::End) => {
                    self.release_connection(now);
                    return Poll::Ready(None);
                }
                Ok(Decoded::NeedMore) => match h1_connection.poll_fill(cx, buffers) {
                    Poll::Pending if exchange.has_stalled(cx) => BodyError::Stalled,
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(0)) if self.decoder == BodyDecoder::UntilClose => {
                        self.decoder = BodyDecoder::Ended;
                        continue;
                    }
                    Poll::Ready(Ok(0)) => BodyError::Connection(std::io::ErrorKind::UnexpectedEof.into()),
                    Poll::Ready(Ok(_)) => {
                        exchange.clear_stall_timeout();
                        continue;
                    }
                    Poll::Ready(Err(error)) => BodyError::Connection(error),
                },
                Err(what) => BodyError::Malformed(what),
            };
            self.h1_connection = None;
            return Poll::Ready(Some(Err(error)));
        }
    }

    /// The body has ended: returns the connection to the pool, unless the server closes it, has sent unsolicited bytes, or
    /// has not received the whole request. `now` is in the worker's milliseconds.
    fn release_connection(&mut self, now: u64) {
        let connection = self.h1_connection.take().filter(|sent| self.kept > 0 && sent.is_sent());
        let Some(mut h1_connection) = connection else { return };
        if !h1_connection.read.is_empty() {
            return self.pool.unsolicited(now);
        }
        h1_connection.read = BytesMut::new(); // an idle connection holds no buffer
        self.pool.keep(h1_connection, now, self.kept);
    }
}
