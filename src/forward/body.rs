//! Bodies of answers, with what is freed at their end.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;

use super::exchange::Exchange;
use super::framing::{Framing, Taken};
use super::headers;
use super::lines::Stream;
use super::pool::Pool;
use super::tunnel::Tunnel;
use super::upload::{RequestBody, Upload};
use super::wire::{Answer, Wire};

/// The body of an answer. Dropping it, at its end or before, ends the exchange.
pub struct Body {
    kind: Kind,
    exchange: Option<Box<Exchange>>,
}

enum Kind {
    Empty,
    Full(Bytes),
    /// Written for this answer alone.
    Text(Vec<u8>),
    /// From an upstream, through hyper's client.
    Forwarded(Forwarded),
    /// From an upstream, off its own connection.
    Wired(Wired),
    /// Another protocol, in place of a body, and how long nothing may move.
    Switched(Wire, Duration),
}

/// A body that hyper's client reads.
pub(super) struct Forwarded {
    pub(super) body: Incoming,
    /// Goes back to the pool when the body has ended; `None` once it has.
    pub(super) connection: Option<Returning>,
}

/// What is given back when an answer has been read to its end.
pub(super) enum Returning {
    /// A connection.
    Kept(Kept),
    /// A place on one.
    Stream(Stream),
}

/// A connection of hyper's client that goes back to its pool.
pub(super) struct Kept {
    pub(super) sender: SendRequest<RequestBody>,
    /// `None` for a connection that is of no use to others.
    pub(super) pool: Option<Rc<Pool<SendRequest<RequestBody>>>>,
    /// The worker's milliseconds.
    pub(super) now: u64,
    /// The request's body.
    pub(super) upload: Option<Rc<Upload>>,
}

/// A body that is read off the server's connection.
pub(super) struct Wired {
    framing: Framing,
    /// `None` once the body has ended or broken off.
    wire: Option<Wire>,
    keeps: bool,
    pool: Rc<Pool<Wire>>,
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
}

impl Body {
    /// No body.
    pub fn empty() -> Self {
        Self { kind: Kind::Empty, exchange: None }
    }

    /// A body that is there already.
    pub fn full(bytes: Bytes) -> Self {
        Self { kind: if bytes.is_empty() { Kind::Empty } else { Kind::Full(bytes) }, exchange: None }
    }

    /// A body that was written for this answer.
    pub fn text(text: Vec<u8>) -> Self {
        Self { kind: Kind::Text(text), exchange: None }
    }

    /// All of it, if it was written for this answer: whoever takes it gives it to the client whole.
    pub(crate) fn take_text(&mut self) -> Option<Vec<u8>> {
        let Kind::Text(text) = &mut self.kind else { return None };
        let text = std::mem::take(text);
        self.kind = Kind::Empty;
        if let Some(exchange) = &self.exchange {
            exchange.sent(text.len());
            exchange.completed();
        }
        Some(text)
    }

    pub(super) fn forwarded(mut forwarded: Forwarded) -> Self {
        if forwarded.body.is_end_stream() {
            if let Some(connection) = forwarded.connection.take() {
                connection.give_back();
            }
            return Self::empty();
        }
        Self { kind: Kind::Forwarded(forwarded), exchange: None }
    }

    /// The body of an answer on `wire`, which goes back to the pool behind it.
    pub(super) fn wired(answer: &mut Answer, wire: Wire, pool: Rc<Pool<Wire>>, now: u64) -> Self {
        let framing = std::mem::replace(&mut answer.framing, Framing::Ended);
        let mut wired = Wired { framing, wire: Some(wire), keeps: answer.keeps, pool, now };
        if wired.framing == Framing::Ended {
            wired.give_back();
            return Self::empty();
        }
        Self { kind: Kind::Wired(wired), exchange: None }
    }

    /// Another protocol in place of a body.
    pub(super) fn switched(wire: Wire, idle: Duration) -> Self {
        Self { kind: Kind::Switched(wire, idle), exchange: None }
    }

    /// The tunnel for another protocol, if the answer says that it was switched to.
    pub(crate) fn into_tunnel(self) -> Option<Tunnel> {
        match (self.kind, self.exchange) {
            (Kind::Switched(wire, idle), Some(exchange)) => Some(Tunnel { wire, exchange, idle }),
            _ => None,
        }
    }

    pub(super) fn ends(&mut self, exchange: Box<Exchange>) {
        if http_body::Body::is_end_stream(self) {
            exchange.completed();
        }
        self.exchange = Some(exchange);
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { kind, exchange } = &mut *self;
        if let Some(exchange) = exchange {
            exchange.taken();
        }
        let is_over = exchange.as_deref().is_some_and(Exchange::is_over);
        let mut polled = match kind {
            Kind::Empty | Kind::Switched(..) => return Poll::Ready(None),
            Kind::Forwarded(_) | Kind::Wired(_) if is_over => Poll::Ready(Some(Err(BodyError::Stalled))),
            Kind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *kind = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Kind::Text(text) => {
                let text = std::mem::take(text);
                *kind = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(text.into()))))
            }
            Kind::Forwarded(forwarded) => forwarded.poll(context, exchange.as_deref()),
            Kind::Wired(wired) => wired.poll(context, exchange.as_deref()),
        };
        if let (Poll::Ready(Some(Ok(frame))), Some(exchange)) = (&mut polled, exchange) {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            exchange.sent(bytes);
            exchange.given(bytes);
            if let Some(trailers) = frame.trailers_mut() {
                headers::answer_trailers(trailers);
            }
        }
        if !matches!(polled, Poll::Pending | Poll::Ready(Some(Err(_))))
            && (matches!(polled, Poll::Ready(None)) || http_body::Body::is_end_stream(&*self))
            && let Some(exchange) = &self.exchange
        {
            exchange.completed();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Empty | Kind::Switched(..) => true,
            Kind::Full(_) | Kind::Text(_) => false,
            // Its end has to be polled for: only then does the connection go back to the pool.
            Kind::Forwarded(forwarded) => forwarded.connection.is_none(),
            Kind::Wired(wired) => wired.framing == Framing::Ended && wired.wire.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Empty | Kind::Switched(..) => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Text(text) => SizeHint::with_exact(text.len() as u64),
            Kind::Forwarded(forwarded) => forwarded.body.size_hint(),
            Kind::Wired(wired) => wired.framing.left().map_or_else(SizeHint::new, SizeHint::with_exact),
        }
    }
}

impl Forwarded {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        exchange: Option<&Exchange>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_pending() {
            return match exchange.is_some_and(|exchange| exchange.stalled(context)) {
                true => Poll::Ready(Some(Err(BodyError::Stalled))),
                false => Poll::Pending,
            };
        }
        if let Some(exchange) = exchange {
            exchange.moved();
            if let Some(Returning::Stream(stream)) = &self.connection {
                stream.heard(exchange.connection().worker.deadlines.now());
            }
        }
        let frame = ready!(polled);
        if matches!(frame, Some(Ok(_))) && !self.body.is_end_stream() {
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Upstream)));
        }
        // A reset without an error says that the request is not wanted further. hyper ends the body there, whole or not.
        if frame.is_none()
            && matches!(self.connection, Some(Returning::Stream(_)))
            && !self.body.is_end_stream()
        {
            self.connection = None;
            return Poll::Ready(Some(Err(BodyError::Truncated)));
        }
        if let Some(connection) = self.connection.take().filter(|_| !matches!(frame, Some(Err(_)))) {
            connection.give_back();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Upstream)))
    }
}

impl Returning {
    /// Puts the connection back. Call it when the answer has been read to its end: hyper then makes it ready
    /// by itself, or closes it.
    fn give_back(self) {
        match self {
            // What is still to be sent belongs to this request: such a connection is no good for another.
            Self::Kept(kept) if kept.upload.as_ref().is_none_or(|upload| upload.ended.get()) => {
                if let Some(pool) = kept.pool {
                    pool.keep(kept.sender, kept.now);
                }
            }
            Self::Kept(_) | Self::Stream(_) => {}
        }
    }
}

impl Wired {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        exchange: Option<&Exchange>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let buffers = exchange.map(|exchange| &exchange.connection().worker.buffers);
        loop {
            let Some(wire) = &mut self.wire else { return Poll::Ready(None) };
            let error = match self.framing.take(&mut wire.read) {
                Ok(Taken::Frame(frame)) => {
                    if self.framing == Framing::Ended {
                        self.give_back();
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                Ok(Taken::End) => {
                    self.give_back();
                    return Poll::Ready(None);
                }
                Ok(Taken::More) => match wire.poll_fill(context, buffers) {
                    Poll::Pending if exchange.is_some_and(|exchange| exchange.stalled(context)) => {
                        BodyError::Stalled
                    }
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(0)) if self.framing == Framing::UntilClose => {
                        self.framing = Framing::Ended;
                        continue;
                    }
                    Poll::Ready(Ok(0)) => BodyError::Connection(std::io::ErrorKind::UnexpectedEof.into()),
                    Poll::Ready(Ok(_)) => {
                        if let Some(exchange) = exchange {
                            exchange.moved();
                        }
                        continue;
                    }
                    Poll::Ready(Err(error)) => BodyError::Connection(error),
                },
                Err(what) => BodyError::Malformed(what),
            };
            self.wire = None;
            return Poll::Ready(Some(Err(error)));
        }
    }

    /// The body has ended: the connection is kept, unless the server wants it closed or has said more than asked.
    fn give_back(&mut self) {
        if let Some(wire) = self.wire.take().filter(|wire| self.keeps && wire.read.is_empty()) {
            self.pool.keep(wire, self.now);
        }
    }
}
