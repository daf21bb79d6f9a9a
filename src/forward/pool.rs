//! Kept connections to one server: the one used last is used next, so that the rest may grow old and go.

use std::cell::RefCell;
use std::time::Duration;

/// Connections that are kept for one server by one worker.
const MOST_IDLE: usize = 1024;

/// The kept connections of one kind to one server.
pub(super) struct Pool<T>(RefCell<Vec<Idle<T>>>);

struct Idle<T> {
    connection: T,
    /// The worker's milliseconds at which it was last used.
    since: u64,
}

impl<T> Pool<T> {
    pub(super) fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// A kept connection, if there is one. It may have been closed meanwhile.
    pub(super) fn take(&self) -> Option<T> {
        self.0.borrow_mut().pop().map(|idle| idle.connection)
    }

    /// Keeps a connection that was used until now, in the worker's milliseconds.
    pub(super) fn keep(&self, connection: T, now: u64) {
        let mut idle = self.0.borrow_mut();
        if idle.len() < MOST_IDLE {
            idle.push(Idle { connection, since: now });
        }
    }

    /// Drops the connections that were not used for `idle`, and those that are not `open` any more.
    pub(super) fn reap(&self, now: u64, idle: Duration, open: impl Fn(&mut T) -> bool) {
        let idle = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        self.0
            .borrow_mut()
            .retain_mut(|kept| now.saturating_sub(kept.since) < idle && open(&mut kept.connection));
    }
}
