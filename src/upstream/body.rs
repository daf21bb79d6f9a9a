//! Bodies of answers, with what is freed at their end.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use super::exchange::Exchange;
use super::h1_connection::H1Connection;
use super::h2_pool::Stream;
use super::headers;
use super::pool::Pool;
use super::tunnel::Tunnel;
use crate::message::{self, LocalBody, LocalResponse};
use crate::worker_state::Buffers;
use sluicegate_wire::h1::{BodyDecoder, Decoded, Response as Answer};

/// A response with a body of any kind.
pub type Response = message::Response<Body>;

/// The body of an answer.
pub struct Body(Kind);

enum Kind {
    Empty,
    Full(Bytes),
    /// Written for this answer alone.
    Text(Vec<u8>),
    /// From an upstream that speaks HTTP/2.
    H2Body(H2Body),
    /// From an upstream that speaks HTTP/1.1, off its own connection.
    H1Body(H1Body),
    /// Another protocol, in place of a body, and how long nothing may move.
    Switched(H1Connection, Duration),
}

/// A body on a stream of HTTP/2.
pub(super) struct H2Body {
    pub(super) body: Incoming,
    /// Its place on the connection; `None` once the body has ended.
    pub(super) stream: Option<Stream>,
}

/// A body that is read off the server's connection.
pub(super) struct H1Body {
    decoder: BodyDecoder,
    /// `None` once the body has ended or broken off.
    h1_connection: Option<H1Connection>,
    keeps: bool,
    pool: Rc<Pool>,
    now: u64,
}

/// Why an answer broke off: the client sees the connection end, never a shorter answer that looks whole.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The upstream broke off.
    #[error("the upstream broke off its answer")]
    Upstream(#[source] hyper::Error),
    /// The upstream said that it needs nothing more of the request, but its answer had not ended.
    #[error("the upstream ended its stream in the middle of its answer")]
    Truncated,
    /// The upstream's connection broke or ended.
    #[error("the upstream's connection ended in the middle of its answer")]
    Connection(#[source] std::io::Error),
    /// What the upstream sent is no body.
    #[error("{0}")]
    Malformed(&'static str),
    /// The upstream sent nothing for too long.
    #[error("the upstream stopped in the middle of its answer")]
    Stalled,
    /// The client broke off its request while it was answered already.
    #[error("the request's body did not come whole")]
    Upload,
}

impl From<LocalBody> for Body {
    fn from(body: LocalBody) -> Self {
        Self(match body {
            LocalBody::Empty => Kind::Empty,
            LocalBody::Shared(bytes) => Kind::Full(bytes),
            LocalBody::Owned(text) => Kind::Text(text),
        })
    }
}

impl From<LocalResponse> for Response {
    #[inline]
    fn from(LocalResponse { status, headers, body }: LocalResponse) -> Self {
        Self { status, headers, body: body.into() }
    }
}

impl Body {
    /// No body.
    pub fn empty() -> Self {
        Self(Kind::Empty)
    }

    /// All of it, if it was written for this answer: whoever takes it gives it to the client whole.
    pub(crate) fn take_text(&mut self) -> Option<Vec<u8>> {
        let Self(Kind::Text(text)) = self else { return None };
        let text = std::mem::take(text);
        self.0 = Kind::Empty;
        Some(text)
    }

    pub(super) fn h2_body(body: H2Body) -> Self {
        if body.body.is_end_stream() {
            return Self::empty();
        }
        Self(Kind::H2Body(body))
    }

    /// The body of an answer on `wire`, which goes back to the pool behind it.
    pub(super) fn h1_body(
        answer: &mut Answer,
        h1_connection: H1Connection,
        pool: Rc<Pool>,
        now: u64,
    ) -> Self {
        let decoder = std::mem::replace(&mut answer.body, BodyDecoder::Ended);
        let mut h1_body =
            H1Body { decoder, h1_connection: Some(h1_connection), keeps: answer.keep_alive, pool, now };
        if h1_body.decoder == BodyDecoder::Ended {
            h1_body.release_connection();
            return Self::empty();
        }
        Self(Kind::H1Body(h1_body))
    }

    /// Another protocol in place of a body.
    pub(super) fn switched(h1_connection: H1Connection, idle: Duration) -> Self {
        Self(Kind::Switched(h1_connection, idle))
    }

    /// The tunnel for another protocol, if the answer says that it was switched to.
    pub(crate) fn into_tunnel(self) -> Option<Tunnel> {
        match self.0 {
            Kind::Switched(h1_connection, idle) => Some(Tunnel { h1_connection, idle }),
            _ => None,
        }
    }

    /// Goes on with the request's body while the client takes nothing of the answer.
    pub(crate) fn poll_upload(&mut self, context: &mut Context<'_>, buffers: &Buffers) {
        if let Kind::H1Body(H1Body { h1_connection: Some(h1_connection), .. }) = &mut self.0 {
            // One that fails fails again when the answer is asked for more.
            let _ = h1_connection.poll_upload(context, Some(buffers));
        }
    }

    /// The next frame. `None` is the end.
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
        exchange: &Exchange,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut polled = match &mut self.0 {
            Kind::Empty | Kind::Switched(..) => return Poll::Ready(None),
            Kind::H2Body(_) | Kind::H1Body(_) if exchange.is_over() => {
                return Poll::Ready(Some(Err(BodyError::Stalled)));
            }
            Kind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Kind::Empty;
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Kind::Text(text) => {
                let text = std::mem::take(text);
                self.0 = Kind::Empty;
                return Poll::Ready(Some(Ok(Frame::data(text.into()))));
            }
            Kind::H2Body(body) => body.poll(context, exchange),
            Kind::H1Body(h1_body) => h1_body.poll(context, exchange),
        };
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
        {
            headers::answer_trailers(trailers);
        }
        polled
    }

    /// Whether no frame follows.
    pub(crate) fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty | Kind::Switched(..) => true,
            Kind::Full(_) | Kind::Text(_) => false,
            Kind::H2Body(body) => body.stream.is_none(),
            Kind::H1Body(h1_body) => h1_body.decoder == BodyDecoder::Ended && h1_body.h1_connection.is_none(),
        }
    }

    /// The bytes that follow, as far as that is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty | Kind::Switched(..) => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Text(text) => SizeHint::with_exact(text.len() as u64),
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
        context: &mut Context<'_>,
        exchange: &Exchange,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_pending() {
            return match exchange.has_stalled(context) {
                true => Poll::Ready(Some(Err(BodyError::Stalled))),
                false => Poll::Pending,
            };
        }
        exchange.clear_stall_timeout();
        if let Some(stream) = &self.stream {
            stream.note_read(exchange.connection().worker.deadlines.now());
        }
        let frame = ready!(polled);
        if matches!(frame, Some(Ok(_))) && !self.body.is_end_stream() {
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Upstream)));
        }
        // A reset without an error says that the request is not wanted further. hyper ends the body there, whole or not.
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
        context: &mut Context<'_>,
        exchange: &Exchange,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let buffers = Some(&exchange.connection().worker.buffers);
        if self
            .h1_connection
            .as_mut()
            .is_some_and(|h1_connection| h1_connection.poll_upload(context, buffers).is_err())
        {
            self.h1_connection = None;
            return Poll::Ready(Some(Err(BodyError::Upload)));
        }
        loop {
            let Some(h1_connection) = &mut self.h1_connection else { return Poll::Ready(None) };
            let error = match self.decoder.decode(&mut h1_connection.read) {
                Ok(Decoded::Frame(frame)) => {
                    if self.decoder == BodyDecoder::Ended {
                        self.release_connection();
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                Ok(Decoded::End) => {
                    self.release_connection();
                    return Poll::Ready(None);
                }
                Ok(Decoded::NeedMore) => match h1_connection.poll_fill(context, buffers) {
                    Poll::Pending if exchange.has_stalled(context) => BodyError::Stalled,
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

    /// The body has ended: the connection is kept, unless the server wants it closed, has said more than it was asked, or
    /// has not taken all of the request.
    fn release_connection(&mut self) {
        let Some(mut h1_connection) =
            self.h1_connection.take().filter(|h1_connection| self.keeps && h1_connection.is_sent())
        else {
            return;
        };
        if !h1_connection.read.is_empty() {
            return self.pool.unsolicited(self.now);
        }
        h1_connection.read = BytesMut::new(); // a connection that waits holds none of the worker's memory
        self.pool.keep(h1_connection, self.now);
    }
}
