//! Bodies: of answers, with what is freed at their end; of requests, with their bounds.

use std::cell::Cell;
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
use super::pool::Pool;
use super::wire::{Answer, READ, Wire};
use crate::listen::{Connection, Deadline};
use crate::respond::drain_rest;

/// The body of an answer. Dropping it, at its end or before, ends the exchange.
pub struct Body {
    kind: Kind,
    exchange: Option<Exchange>,
}

enum Kind {
    Empty,
    Full(Bytes),
    /// From an upstream, through hyper's client.
    Forwarded(Forwarded),
    /// From an upstream, off its own connection.
    Wired(Wired),
}

/// A body that hyper's client reads.
pub(super) struct Forwarded {
    pub(super) body: Incoming,
    /// Goes back to the pool when the body has ended; `None` once it has.
    pub(super) connection: Option<Returning>,
}

/// A connection of hyper's client that goes back to its pool.
pub(super) struct Returning {
    pub(super) sender: SendRequest<RequestBody>,
    pub(super) pool: Rc<Pool<SendRequest<RequestBody>>>,
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

    pub(super) fn ends(&mut self, exchange: Exchange) {
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
        let polled = match kind {
            Kind::Empty => return Poll::Ready(None),
            Kind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *kind = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Kind::Forwarded(forwarded) => forwarded.poll(context, exchange.as_ref()),
            Kind::Wired(wired) => wired.poll(context, exchange.as_ref()),
        };
        if let (Poll::Ready(Some(Ok(frame))), Some(exchange)) = (&polled, exchange) {
            exchange.sent(frame.data_ref().map_or(0, Bytes::len));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Empty => true,
            Kind::Full(_) => false,
            // Its end has to be polled for: only then does the connection go back to the pool.
            Kind::Forwarded(forwarded) => forwarded.connection.is_none(),
            Kind::Wired(wired) => wired.framing == Framing::Ended && wired.wire.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
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
        }
        let frame = ready!(polled);
        if matches!(frame, Some(Ok(_))) && !self.body.is_end_stream() {
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Upstream)));
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
        // What is still to be sent belongs to this request: such a connection is no good for another.
        if self.upload.is_none_or(|upload| upload.ended.get()) {
            self.pool.keep(self.sender, self.now);
        }
    }
}

impl Wired {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        exchange: Option<&Exchange>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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
                Ok(Taken::More) => match wire.poll_fill(context, READ.1) {
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

/// The body of a request on its way to an upstream.
pub(super) struct RequestBody {
    inner: Option<Incoming>,
    state: Option<Rc<Upload>>,
}

/// What became of the body of a request.
pub(super) struct Upload {
    /// Bytes that may still come.
    left: Cell<u64>,
    /// Bytes that have come.
    pub(super) received: Cell<u64>,
    pub(super) too_large: Cell<bool>,
    /// The client broke off, or sent what is no body.
    pub(super) broken: Cell<bool>,
    /// It came whole.
    pub(super) ended: Cell<bool>,
    /// The client is the one who is waited for.
    pub(super) waiting: Cell<bool>,
    /// The answer has begun: from then on the deadline is that of the answer.
    pub(super) answered: Cell<bool>,
    /// The body was asked for, which is leave to send it.
    asked: Cell<bool>,
    waits_for_leave: bool,
    connection: Rc<Connection>,
    deadline: Rc<Deadline>,
    /// The client's time for the next bytes.
    patience: Duration,
}

/// What the upstream did not take is read and thrown away, so that the client sees the answer instead of a reset.
impl Drop for RequestBody {
    fn drop(&mut self) {
        let (Some(body), Some(state)) = (self.inner.take(), &self.state) else { return };
        state.connection.body_ends();
        if !state.ended.get() && !state.broken.get() && (state.asked.get() || !state.waits_for_leave) {
            drain_rest(&state.connection, body);
        }
    }
}

/// Why a request was not sent whole.
#[derive(Debug, thiserror::Error)]
#[error("the request's body did not come whole")]
pub(super) struct UploadError;

impl RequestBody {
    /// A body of nothing.
    pub(super) fn empty() -> Self {
        Self { inner: None, state: None }
    }

    /// The body of a client, of at most `max` bytes, watched by the exchange. A client that `waits_for_leave` to
    /// send it (Expect: 100-continue) gets that when the upstream asks for the first byte.
    pub(super) fn new(
        body: Incoming,
        max: Option<u64>,
        waits_for_leave: bool,
        exchange: &Exchange,
        patience: Duration,
    ) -> (Self, Option<Rc<Upload>>) {
        if body.is_end_stream() {
            return (Self::empty(), None);
        }
        exchange.connection().body_begins();
        let state = Rc::new(Upload {
            left: Cell::new(max.unwrap_or(u64::MAX)),
            received: Cell::new(0),
            too_large: Cell::new(false),
            broken: Cell::new(false),
            ended: Cell::new(false),
            waiting: Cell::new(false),
            answered: Cell::new(false),
            asked: Cell::new(false),
            waits_for_leave,
            connection: Rc::clone(exchange.connection()),
            deadline: Rc::clone(exchange.deadline()),
            patience,
        });
        exchange.uploads(&state);
        (Self { inner: Some(body), state: Some(Rc::clone(&state)) }, Some(state))
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let Self { inner: Some(body), state: Some(state) } = &mut *self else { return Poll::Ready(None) };
        state.asked.set(true);
        let polled = Pin::new(&mut *body).poll_frame(context);
        state.waiting.set(polled.is_pending());
        let frame = ready!(polled);
        if !state.answered.get() {
            // Whoever still sends is not late.
            state.deadline.set_request(Some(state.connection.worker.deadlines.after(state.patience)));
        }
        match frame {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                match state.left.get().checked_sub(length) {
                    Some(left) => {
                        state.left.set(left);
                        state.received.set(state.received.get() + length);
                    }
                    None => {
                        state.too_large.set(true);
                        return Poll::Ready(Some(Err(UploadError)));
                    }
                }
                state.ended.set(body.is_end_stream());
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(_)) => {
                state.broken.set(true);
                Poll::Ready(Some(Err(UploadError)))
            }
            None => {
                state.ended.set(true);
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint)
    }
}
