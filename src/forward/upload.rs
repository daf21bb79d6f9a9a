//! Bodies of requests on their way to a server, and what becomes of them.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderName;
use http_body::{Body as _, Frame, SizeHint};
use smallvec::SmallVec;

use super::exchange::Exchange;
use super::headers;
use crate::config::UpstreamConfig;
use crate::fields::Fields;
use crate::listen::{Connection, Deadline, Inbound, InboundError};

/// The body of a request on its way to an upstream.
pub(super) struct RequestBody {
    inner: Option<Inbound>,
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
    /// The client sent it too slowly.
    pub(super) slow: Cell<bool>,
    /// It came whole.
    pub(super) ended: Cell<bool>,
    /// The client is the one who is waited for.
    pub(super) waiting: Cell<bool>,
    /// The answer has begun: from then on the deadline is that of the answer.
    pub(super) answered: Cell<bool>,
    /// Its exchange is over: nobody wants the rest.
    given_up: Cell<bool>,
    /// Who sends it.
    waker: RefCell<Option<Waker>>,
    /// The fields that may come behind the body.
    announced: SmallVec<[HeaderName; 2]>,
    connection: Rc<Connection>,
    deadline: Rc<Deadline>,
    /// The client's time for the next bytes, and the upstream's in the middle of its answer.
    patience: Duration,
    idle: Duration,
}

impl Upload {
    /// The exchange is over: what is still to be sent is not sent any more.
    pub(super) fn give_up(&self) {
        if self.ended.get() {
            return;
        }
        self.given_up.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Why a request was not sent whole. An HTTP/2 server is told CANCEL.
#[derive(Debug, thiserror::Error)]
#[error("the request's body did not come whole")]
pub(super) struct UploadError(#[source] h2::Error);

impl UploadError {
    fn new() -> Self {
        Self(h2::Reason::CANCEL.into())
    }
}

impl RequestBody {
    /// A body of nothing.
    pub(super) fn empty() -> Self {
        Self { inner: None, state: None }
    }

    /// The body of a client, of at most `max` bytes, watched by the exchange.
    pub(super) fn new(
        body: Inbound,
        max: Option<u64>,
        exchange: &Exchange,
        head: &Fields,
        config: &UpstreamConfig,
    ) -> (Self, Option<Rc<Upload>>) {
        if body.is_end_stream() {
            return (Self::empty(), None);
        }
        let state = Rc::new(Upload {
            left: Cell::new(max.unwrap_or(u64::MAX)),
            received: Cell::new(0),
            too_large: Cell::new(false),
            broken: Cell::new(false),
            slow: Cell::new(false),
            ended: Cell::new(false),
            waiting: Cell::new(false),
            answered: Cell::new(false),
            given_up: Cell::new(false),
            waker: RefCell::default(),
            connection: Rc::clone(exchange.connection()),
            deadline: Rc::clone(exchange.deadline()),
            announced: headers::announced(head, exchange.underscores()),
            patience: config.response.min(exchange.connection().worker.client().body),
            idle: config.idle,
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
        if state.given_up.get() {
            return Poll::Ready(Some(Err(UploadError::new())));
        }
        let polled = Pin::new(&mut *body).poll_frame(context);
        state.waiting.set(polled.is_pending());
        if polled.is_pending() && state.answered.get() {
            *state.waker.borrow_mut() = Some(context.waker().clone());
        }
        let frame = ready!(polled);
        if !state.answered.get() {
            // Whoever still sends is not late.
            state.deadline.set_request(Some(state.connection.worker.deadlines.after(state.patience)));
        } else if state.deadline.request_is_set() {
            // Nor is an upstream that takes what the client still sends.
            state.deadline.set_request(Some(state.connection.worker.deadlines.after(state.idle)));
        }
        match frame {
            Some(Ok(mut frame)) => {
                if let Some(trailers) = frame.trailers_mut() {
                    headers::request_trailers(trailers, &state.announced);
                    if trailers.is_empty() {
                        state.ended.set(true);
                        return Poll::Ready(None);
                    }
                }
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                match state.left.get().checked_sub(length) {
                    Some(left) => {
                        state.left.set(left);
                        state.received.set(state.received.get() + length);
                    }
                    None => {
                        state.too_large.set(true);
                        return Poll::Ready(Some(Err(UploadError::new())));
                    }
                }
                state.ended.set(body.is_end_stream());
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                state.slow.set(matches!(error, InboundError::Slow));
                state.broken.set(true);
                Poll::Ready(Some(Err(UploadError::new())))
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
