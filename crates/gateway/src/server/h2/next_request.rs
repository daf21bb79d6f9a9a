//! A request on its way to the task that serves it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use sluicegate_wire::RequestHead;
use sluicegate_wire::h2::{Session, StreamKey};

use crate::request::Services;
use crate::respond::LocalError;
use sluicegate_downstream::{Connection, RequestBody};

/// A request to be served.
pub(super) struct StreamRequest {
    pub(super) services: Rc<Services>,
    pub(super) connection: Rc<Connection>,
    pub(super) session: Rc<RefCell<Session>>,
    pub(super) key: StreamKey,
    /// Its head, or the error with which it is refused.
    pub(super) head: Result<RequestHead, LocalError>,
    /// Whether the method is HEAD.
    pub(super) is_head: bool,
    pub(super) body: RequestBody,
}

/// Passes the next request to a task.
#[derive(Default)]
pub(super) struct NextRequest {
    request: Cell<Option<StreamRequest>>,
    /// The task has served its request and waits for the next one.
    is_idle: Cell<bool>,
}

impl NextRequest {
    /// Passes a request to the task, which must be woken.
    pub(super) fn give(&self, request: StreamRequest) {
        self.request.set(Some(request));
    }

    /// Whether the task has served its request and waits for the next one.
    pub(super) fn is_idle(&self) -> bool {
        self.is_idle.get()
    }

    /// Waits for the next request.
    pub(super) async fn wait(&self) -> StreamRequest {
        poll_fn(|_| {
            let request = self.request.take();
            self.is_idle.set(request.is_none());
            request.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
