//! Bodies of requests on their way to a server, and what becomes of them.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderName;
use http_body::{Frame, SizeHint};
use smallvec::SmallVec;

use super::exchange::Exchange;
use super::underscores::Underscores;
use super::{ForwardError, headers};
use crate::client_connection::{RequestBody, RequestBodyError};
use crate::worker_state::{Deadline, WorkerState};
use sluicegate_config::UpstreamConfig;
use sluicegate_wire::Headers;

/// The body of a request on its way to an upstream.
pub(super) struct UploadBody {
    body: Option<RequestBody>,
    state: Option<Rc<Upload>>,
}

/// What became of the body of a request.
pub(crate) struct Upload {
    /// Bytes that may still come.
    max_left: Cell<u64>,
    /// Bytes that have come.
    pub(crate) received: Cell<u64>,
    /// Why it did not come whole.
    failed: Cell<Option<UploadFailure>>,
    /// It came whole.
    ended: Cell<bool>,
    /// The client is the one who is waited for.
    awaits_client: Cell<bool>,
    /// The answer has begun: from then on the deadline is that of the answer.
    answered: Cell<bool>,
    /// Its exchange is over: nobody wants the rest.
    is_cancelled: Cell<bool>,
    /// Who sends it.
    waker: RefCell<Option<Waker>>,
    /// The fields that may come behind the body.
    announced: SmallVec<[HeaderName; 2]>,
    worker: Rc<WorkerState>,
    deadline: Rc<Deadline>,
    /// The client's time for the next bytes; the upstream's for its answer, and in the middle of that.
    client_timeout: Duration,
    response_timeout: Duration,
    idle_timeout: Duration,
}

/// Why the body of a request did not come whole.
#[derive(Clone, Copy)]
enum UploadFailure {
    /// It is longer than allowed.
    TooLarge,
    /// The client broke off, or sent what is no body.
    Broken,
    /// The client sent it too slowly.
    Slow,
}

impl Upload {
    /// The exchange is over: what is still to be sent is not sent any more.
    pub(super) fn cancel(&self) {
        if self.ended.get() {
            return;
        }
        self.is_cancelled.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// The answer has begun.
    pub(super) fn set_answered(&self) {
        self.answered.set(true);
    }

    /// It is not as long as it was announced.
    pub(super) fn set_malformed(&self) {
        self.failed.set(Some(UploadFailure::Broken));
    }

    /// Some of it has come from the client, or was taken by the server: the deadline is set anew for whoever is waited
    /// for next.
    pub(super) fn progress(&self) {
        let within = match (self.answered.get(), self.awaits_client.get()) {
            (false, true) => self.client_timeout,
            (false, false) => self.response_timeout,
            (true, _) if self.deadline.request_is_set() => self.idle_timeout,
            (true, _) => return,
        };
        self.deadline.set_request(Some(self.worker.deadlines.after(within)));
    }

    /// The server takes nothing more of it, but may still answer: it is not the client who is waited for.
    pub(super) fn set_write_aborted(&self) {
        self.awaits_client.set(false);
        self.progress();
    }

    /// The error when the deadline has passed: the client's if it is the one who is waited for.
    pub(super) fn timeout(&self) -> ForwardError {
        if self.awaits_client.get() { ForwardError::ClientSlow } else { ForwardError::ResponseTimeout }
    }

    /// What the client did wrong, if that is why the body did not come whole.
    pub(super) fn client_error(&self) -> Option<ForwardError> {
        self.failed.get().map(|failed| match failed {
            UploadFailure::TooLarge => ForwardError::TooLarge,
            UploadFailure::Broken => ForwardError::ClientBroken,
            UploadFailure::Slow => ForwardError::ClientSlow,
        })
    }
}

/// Why a request was not sent whole. An HTTP/2 server is told CANCEL.
#[derive(Debug, thiserror::Error)]
#[error("the request's body did not come whole")]
pub(crate) struct UploadError(#[source] h2::Error);

impl UploadError {
    pub(super) fn new() -> Self {
        Self(h2::Reason::CANCEL.into())
    }
}

impl UploadBody {
    /// A body of nothing.
    pub(super) fn empty() -> Self {
        Self { body: None, state: None }
    }

    /// The body of a client, of at most `max` bytes, watched by the exchange.
    pub(super) fn new(
        body: RequestBody,
        max: Option<u64>,
        exchange: &Exchange,
        head: &Headers,
        underscores: &Underscores,
        config: &UpstreamConfig,
    ) -> (Self, Rc<Upload>) {
        let state = Rc::new(Upload {
            max_left: Cell::new(max.unwrap_or(u64::MAX)),
            received: Cell::new(0),
            failed: Cell::new(None),
            ended: Cell::new(false),
            awaits_client: Cell::new(false),
            answered: Cell::new(false),
            is_cancelled: Cell::new(false),
            waker: RefCell::default(),
            worker: Rc::clone(&exchange.connection().worker),
            deadline: Rc::clone(exchange.deadline()),
            announced: headers::announced(head, underscores),
            client_timeout: config.response.min(exchange.connection().worker.client().body),
            response_timeout: config.response,
            idle_timeout: config.idle,
        });
        exchange.set_upload(&state);
        (Self { body: Some(body), state: Some(Rc::clone(&state)) }, state)
    }
}

impl http_body::Body for UploadBody {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let Self { body: Some(body), state: Some(state) } = &mut *self else { return Poll::Ready(None) };
        let failed = |why| {
            state.failed.set(Some(why));
            Poll::Ready(Some(Err(UploadError::new())))
        };
        if state.is_cancelled.get() || state.failed.get().is_some() {
            return Poll::Ready(Some(Err(UploadError::new())));
        }
        let polled = Pin::new(&mut *body).poll_frame(context);
        let waited = state.awaits_client.replace(polled.is_pending());
        if polled.is_pending() && state.answered.get() {
            *state.waker.borrow_mut() = Some(context.waker().clone());
        }
        if polled.is_ready() || !waited {
            state.progress();
        }
        match ready!(polled) {
            Some(Ok(mut frame)) => {
                if let Some(trailers) = frame.trailers_mut() {
                    headers::request_trailers(trailers, &state.announced);
                    if trailers.is_empty() {
                        state.ended.set(true);
                        return Poll::Ready(None);
                    }
                }
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                let Some(left) = state.max_left.get().checked_sub(length) else {
                    return failed(UploadFailure::TooLarge);
                };
                state.max_left.set(left);
                state.received.set(state.received.get() + length);
                state.ended.set(body.is_end_stream());
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(RequestBodyError::Slow)) => failed(UploadFailure::Slow),
            Some(Err(_)) => failed(UploadFailure::Broken),
            None => {
                state.ended.set(true);
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint)
    }
}
