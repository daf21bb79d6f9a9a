//! Request bodies on their way to a server.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderName;
use http_body::{Frame, SizeHint};
use smallvec::SmallVec;

use super::underscores::Underscores;
use super::{ForwardError, headers};
use sluicegate_config::UpstreamConfig;
use sluicegate_downstream::worker_state::{Deadline, WorkerState};
use sluicegate_downstream::{RequestBody, RequestBodyError};
use sluicegate_wire::Headers;

/// A request body with its state; `None` if the request has no body.
pub(super) struct UploadBody(Option<(RequestBody, Rc<Upload>, Option<Box<Kept>>)>);

/// The most bytes of a body that are kept until the response begins, so that they can be sent again.
const MOST_KEPT: usize = 64 << 10;

/// What was sent of a body that may be sent again.
#[derive(Default)]
struct Kept {
    sent: Vec<Bytes>,
    /// The part of it that is to be sent again, from its end.
    again: Vec<Bytes>,
    length: usize,
}

/// The state of a request body.
pub(crate) struct Upload {
    /// Bytes that may still be received.
    max_left: Cell<u64>,
    /// Bytes that were received.
    pub received: Cell<u64>,
    /// Why the body is incomplete.
    failed: Cell<Option<UploadFailure>>,
    /// The body was received to its end.
    ended: Cell<bool>,
    /// The next bytes have to come from the client.
    awaits_client: Cell<bool>,
    /// The response has begun: from then on its deadline applies.
    answered: Cell<bool>,
    /// The response has ended: the rest is not sent.
    is_cancelled: Cell<bool>,
    /// The task that sends the body.
    waker: RefCell<Option<Waker>>,
    /// The fields that may be trailers.
    announced: SmallVec<[HeaderName; 2]>,
    worker: Rc<WorkerState>,
    deadline: Rc<Deadline>,
    /// The timeouts for the next bytes of the client, for the response, and between two reads of the response.
    client_timeout: Duration,
    response_timeout: Duration,
    idle_timeout: Duration,
}

/// Why a request body is incomplete.
#[derive(Clone, Copy)]
enum UploadFailure {
    /// It is longer than allowed.
    TooLarge,
    /// The client disconnected, or the body is malformed.
    Broken,
    /// The client was too slow.
    Slow,
}

impl Upload {
    /// The response has ended: the rest of the body is not sent.
    pub(super) fn cancel(&self) {
        if self.ended.get() {
            return;
        }
        self.is_cancelled.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// The response has begun.
    pub(super) fn set_answered(&self) {
        self.answered.set(true);
    }

    /// The body does not have the announced length.
    pub(super) fn set_malformed(&self) {
        self.failed.set(Some(UploadFailure::Broken));
    }

    /// Whether the next bytes have to come from the client.
    pub(super) fn awaits_client(&self) -> bool {
        self.awaits_client.get()
    }

    /// Bytes were received from the client or sent to the server: sets the deadline for the next step.
    pub(super) fn progress(&self) {
        let within = match (self.answered.get(), self.awaits_client.get()) {
            (false, true) => self.client_timeout,
            (false, false) => self.response_timeout,
            (true, _) if self.deadline.request_is_set() => self.idle_timeout,
            (true, _) => return,
        };
        self.deadline.set_request(Some(self.worker.deadlines.after(within)));
    }

    /// The server takes no more bytes, but may still respond.
    pub(super) fn set_write_aborted(&self) {
        self.awaits_client.set(false);
        self.progress();
    }

    /// The error if the deadline has passed.
    pub(super) fn timeout(&self) -> ForwardError {
        if self.awaits_client.get() { ForwardError::ClientSlow } else { ForwardError::ResponseTimeout }
    }

    /// The error of the client, if the body is incomplete.
    pub(super) fn client_error(&self) -> Option<ForwardError> {
        self.failed.get().map(|failed| match failed {
            UploadFailure::TooLarge => ForwardError::TooLarge,
            UploadFailure::Broken => ForwardError::ClientBroken,
            UploadFailure::Slow => ForwardError::ClientSlow,
        })
    }
}

/// A request was not sent to its end. hyper resets the stream of an HTTP/2 server with CANCEL.
#[derive(Debug, thiserror::Error)]
#[error("the request body is incomplete")]
pub(crate) struct UploadError(#[source] h2::Error);

impl UploadError {
    pub(super) fn new() -> Self {
        Self(h2::Reason::CANCEL.into())
    }
}

impl UploadBody {
    /// No body.
    pub(super) fn empty() -> Self {
        Self(None)
    }

    /// A body of at most `max` bytes, and its state. With `keeps`, a short one is kept until the response
    /// begins.
    pub(super) fn new(
        body: RequestBody,
        (max, keeps): (Option<u64>, bool),
        (worker, deadline): (&Rc<WorkerState>, &Rc<Deadline>),
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
            worker: Rc::clone(worker),
            deadline: Rc::clone(deadline),
            announced: underscores.announced_trailers(head),
            client_timeout: config.timeouts.response.min(worker.client().body),
            response_timeout: config.timeouts.response,
            idle_timeout: config.timeouts.idle,
        });
        (Self(Some((body, Rc::clone(&state), keeps.then(Box::default)))), state)
    }

    /// Whether it may have to be sent again.
    pub(super) fn is_kept(&self) -> bool {
        self.0.as_ref().is_some_and(|(_, state, kept)| kept.is_some() && !state.answered.get())
    }

    /// The body from its begin, if all that was sent of it was kept.
    pub(super) fn rewound(mut self) -> Option<Self> {
        let (_, state, kept) = self.0.as_mut()?;
        let kept = kept.as_mut().filter(|_| state.failed.get().is_none())?;
        kept.sent.reverse();
        kept.again.append(&mut kept.sent);
        Some(self)
    }
}

impl http_body::Body for UploadBody {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let Self(Some((body, state, kept))) = &mut *self else { return Poll::Ready(None) };
        let failed = |why| {
            state.failed.set(Some(why));
            Poll::Ready(Some(Err(UploadError::new())))
        };
        if state.is_cancelled.get() || state.failed.get().is_some() {
            return Poll::Ready(Some(Err(UploadError::new())));
        }
        if let Some(kept) = kept
            && let Some(again) = kept.again.pop()
        {
            kept.sent.push(again.clone());
            return Poll::Ready(Some(Ok(Frame::data(again))));
        }
        let polled = Pin::new(&mut *body).poll_frame(cx);
        let waited = state.awaits_client.replace(polled.is_pending());
        if polled.is_pending() && state.answered.get() {
            *state.waker.borrow_mut() = Some(cx.waker().clone());
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
                match (kept.as_mut(), frame.data_ref()) {
                    (Some(all), Some(data)) if all.length + data.len() <= MOST_KEPT => {
                        all.length += data.len();
                        all.sent.push(data.clone());
                    }
                    _ => *kept = None, // it is too long, or ends with trailers
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
        self.0.as_ref().is_none_or(|(body, _, kept)| {
            body.is_end_stream() && kept.as_ref().is_none_or(|kept| kept.again.is_empty())
        })
    }

    fn size_hint(&self) -> SizeHint {
        let Some((body, _, kept)) = &self.0 else { return SizeHint::with_exact(0) };
        let hint = body.size_hint();
        let again: u64 = kept.iter().flat_map(|kept| &kept.again).map(|bytes| bytes.len() as u64).sum();
        hint.exact().map_or(hint, |left| SizeHint::with_exact(left + again))
    }
}
