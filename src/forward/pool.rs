//! Kept connections to one server: the one used last is used next, so that the rest may grow old and go.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use hyper::client::conn::http1::SendRequest;

use super::body::{RequestBody, Upload};

/// Connections that are kept for one server by one worker.
const MOST_IDLE: usize = 1024;

/// The kept connections to one server.
pub(super) struct Pool {
    idle: RefCell<Vec<Idle>>,
}

struct Idle {
    sender: SendRequest<RequestBody>,
    /// The worker's milliseconds at which it was last used.
    since: u64,
}

/// A connection that is in use and goes back to its pool.
pub(super) struct Returning {
    pub(super) sender: SendRequest<RequestBody>,
    pub(super) pool: Rc<Pool>,
    /// The worker's milliseconds.
    pub(super) now: u64,
    /// The request's body, if it had one.
    pub(super) upload: Option<Rc<Upload>>,
}

impl Pool {
    pub(super) fn new() -> Self {
        Self { idle: RefCell::new(Vec::new()) }
    }

    /// A kept connection that is still open, if there is one.
    pub(super) async fn take(&self) -> Option<SendRequest<RequestBody>> {
        loop {
            let mut sender = self.idle.borrow_mut().pop()?.sender;
            if sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    /// Drops the connections that were last used before `oldest`, and those that the server has closed.
    pub(super) fn reap(&self, now: u64, idle: Duration) {
        let idle = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        self.idle
            .borrow_mut()
            .retain(|kept| !kept.sender.is_closed() && now.saturating_sub(kept.since) < idle);
    }
}

impl Returning {
    /// Puts the connection back. Call it when the answer has been read to its end: hyper then makes it ready
    /// by itself, or closes it.
    pub(super) fn give_back(self) {
        if self.upload.is_some_and(|upload| !upload.ended.get()) {
            return; // what is still to be sent belongs to this request: the connection is no good for another
        }
        let mut idle = self.pool.idle.borrow_mut();
        if idle.len() < MOST_IDLE && !self.sender.is_closed() {
            idle.push(Idle { sender: self.sender, since: self.now });
        }
    }
}
