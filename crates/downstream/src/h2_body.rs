//! The body of a request over HTTP/2. Reading it returns flow-control window to the client.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use sluicegate_wire::h2::{Session, StreamKey};

use crate::RequestBodyError;

/// The body of a request on a stream. If it is dropped before its end, the session discards the rest.
pub struct Http2Body {
    session: Rc<RefCell<Session>>,
    key: StreamKey,
    /// The bytes still to come, if the request has a Content-Length. The session enforces it.
    left: Option<u64>,
    ended: bool,
    /// The first part, if it was read before anybody wanted it.
    first: Option<Box<Result<Frame<Bytes>, RequestBodyError>>>,
}

impl Http2Body {
    /// The body on the stream `key`; `left` is its Content-Length.
    pub fn new(session: &Rc<RefCell<Session>>, key: StreamKey, left: Option<u64>) -> Self {
        Self { session: Rc::clone(session), key, left, ended: false, first: None }
    }

    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(*first));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        let read = ready!(self.session.borrow_mut().poll_body(self.key, cx));
        Poll::Ready(match read {
            Ok((frame, ended)) => {
                self.ended = ended;
                let length = frame.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64;
                self.left = self.left.map(|left| left.saturating_sub(length));
                frame.map(Ok)
            }
            Err(_) => Some(Err(RequestBodyError::Http2)),
        })
    }

    /// Waits until it is known whether there is anything in the body.
    pub(crate) async fn begin(&mut self) {
        while let Some(first) = poll_fn(|cx| self.poll(cx)).await {
            if !first.as_ref().is_ok_and(|frame| frame.data_ref().is_some_and(Bytes::is_empty)) {
                self.first = Some(Box::new(first));
                return;
            }
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.first.is_none() && self.is_read()
    }

    fn is_read(&self) -> bool {
        self.ended || self.session.borrow_mut().body_is_read(self.key)
    }

    /// The bytes still to come, if the request has a Content-Length.
    pub fn left(&self) -> Option<u64> {
        self.left
    }
}

impl Drop for Http2Body {
    fn drop(&mut self) {
        self.session.borrow_mut().stop_reading(self.key);
    }
}
