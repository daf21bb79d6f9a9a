//! Coarse deadlines: one timer per worker checks all connections ten times per second, instead of one timer per request. A
//! deadline fires up to a tenth of a second late; one that is cleared in time costs nothing.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A deadline that is not set.
const NEVER: u64 = u64::MAX;

/// The most deadlines that are kept for reuse.
const SPARE: usize = 256;

/// The deadlines of one worker.
#[derive(Default)]
pub struct Deadlines {
    /// Milliseconds since the gateway started, as of the last tick.
    now: Cell<u64>,
    all: RefCell<Vec<Weak<Deadline>>>,
    spare: RefCell<Vec<Rc<Deadline>>>,
}

/// The deadlines of one connection: for its socket and for its present request.
pub struct Deadline {
    socket: Cell<u64>,
    request: Cell<u64>,
    /// The total timeout of the request.
    total: Cell<u64>,
    socket_passed: Cell<bool>,
    request_passed: Cell<bool>,
    closing: Cell<bool>,
    expired_early: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    group: u64,
}

impl Deadlines {
    /// The interval of the checks.
    pub const TICK: Duration = Duration::from_millis(100);

    /// Milliseconds since the gateway started, as of the last tick.
    pub fn now(&self) -> u64 {
        self.now.get()
    }

    /// Deadlines for a new connection of a group (a listener). None of them is set.
    pub fn register(&self, group: u64) -> Rc<Deadline> {
        let deadline = Rc::new(Deadline {
            socket: Cell::new(NEVER),
            request: Cell::new(NEVER),
            total: Cell::new(NEVER),
            socket_passed: Cell::new(false),
            request_passed: Cell::new(false),
            closing: Cell::new(false),
            expired_early: Cell::new(false),
            waker: RefCell::new(None),
            group,
        });
        self.all.borrow_mut().push(Rc::downgrade(&deadline));
        deadline
    }

    /// Deadlines for one request on a shared connection, of no group. They are returned by [`recycle`](Self::recycle), so that
    /// the next sweep has fewer to check.
    pub fn take_spare(&self) -> Rc<Deadline> {
        let spare = self.spare.borrow_mut().pop();
        spare.unwrap_or_else(|| self.register(u64::MAX))
    }

    /// Keeps deadlines for reuse, unless there are other references to them.
    pub fn recycle(&self, deadline: Rc<Deadline>) {
        let mut spare = self.spare.borrow_mut();
        if Rc::strong_count(&deadline) == 1 && spare.len() < SPARE {
            deadline.clear();
            spare.push(deadline);
        }
    }

    /// The time `span` from now, in milliseconds.
    pub fn after(&self, span: Duration) -> u64 {
        // One more tick, because the time of the last tick is up to one tick old.
        let millis = span.saturating_add(Self::TICK).as_millis();
        self.now.get().saturating_add(u64::try_from(millis).unwrap_or(NEVER))
    }

    /// Wakes all connections with a deadline that has passed. `uptime` is the time since the gateway started.
    pub fn sweep(&self, uptime: Duration) {
        let now = u64::try_from(uptime.as_millis()).unwrap_or(NEVER);
        self.now.set(now);
        self.all.borrow_mut().retain(|deadline| {
            let Some(deadline) = deadline.upgrade() else { return false };
            deadline.check(now);
            true
        });
    }

    /// Asks the connections of a group to close as soon as they are idle.
    pub fn close(&self, group: u64) {
        for deadline in self.all.borrow().iter().filter_map(Weak::upgrade).filter(|d| d.group == group) {
            deadline.close();
        }
    }
}

impl Deadline {
    fn check(&self, now: u64) {
        let socket = now >= self.socket.get();
        let request = now >= self.request.get();
        let total = now >= self.total.get() && !self.request_passed.get();
        if socket {
            self.socket.set(NEVER);
            self.socket_passed.set(true);
        }
        if request || total {
            self.request.set(NEVER);
            self.request_passed.set(true);
        }
        if socket || request || total {
            self.wake();
        }
    }

    /// Resets everything to the initial state.
    fn clear(&self) {
        self.set_socket(None);
        self.set_request(None);
        self.set_total(None);
        self.closing.set(false);
        self.expired_early.set(false);
        self.waker.take();
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Sets the task that is woken.
    pub fn set_waker(&self, context: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
    }

    /// Waits for a condition, such as [`socket_passed`](Self::socket_passed).
    pub async fn until(&self, condition: impl Fn(&Self) -> bool) {
        poll_fn(|cx| {
            self.set_waker(cx);
            if condition(self) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Sets the socket's deadline; `None` clears it.
    pub fn set_socket(&self, at: Option<u64>) {
        self.socket.set(at.unwrap_or(NEVER));
        self.socket_passed.set(false);
    }

    /// Whether the socket has a deadline that is still to come.
    pub fn socket_is_set(&self) -> bool {
        self.socket.get() != NEVER
    }

    /// Whether the socket's deadline has passed.
    pub fn socket_passed(&self) -> bool {
        self.socket_passed.get()
    }

    /// Makes the socket's deadline pass now, because there are too many connections.
    pub fn expire_early(&self) {
        self.expired_early.set(true);
        self.socket_passed.set(true);
        self.wake();
    }

    /// Whether [`expire_early`](Self::expire_early) was called.
    pub fn expired_early(&self) -> bool {
        self.expired_early.get()
    }

    /// Sets the request's deadline; `None` clears it.
    pub fn set_request(&self, at: Option<u64>) {
        self.request.set(at.unwrap_or(NEVER));
        self.request_passed.set(false);
    }

    /// Sets the total timeout of the request; `None` clears it.
    pub fn set_total(&self, at: Option<u64>) {
        self.total.set(at.unwrap_or(NEVER));
    }

    /// Whether there is a total timeout.
    pub fn total_is_set(&self) -> bool {
        self.total.get() != NEVER
    }

    /// Waits for `future`, whatever it waits for, until the total timeout expires: then `None`. `deadlines` are those of the worker. The
    /// caller pins the future, because an async function that pins an argument holds it twice.
    pub async fn within_total<T>(
        &self,
        deadlines: &Deadlines,
        mut future: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if self.is_over(deadlines.now()) => Poll::Ready(None),
            Poll::Pending => {
                if self.total_is_set() {
                    self.set_waker(cx);
                }
                Poll::Pending
            }
        })
        .await
    }

    /// Whether the total timeout has expired at `now`.
    pub fn is_over(&self, now: u64) -> bool {
        now >= self.total.get()
    }

    /// Whether the request has a deadline that is still to come.
    pub fn request_is_set(&self) -> bool {
        self.request.get() != NEVER
    }

    /// Whether the request's deadline has passed.
    pub fn request_passed(&self) -> bool {
        self.request_passed.get()
    }

    /// Asks the connection to close after its present request.
    fn close(&self) {
        self.closing.set(true);
        self.wake();
    }

    /// Whether the connection was asked to close.
    pub fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// Whether the connection was asked to close; true only once.
    pub fn take_closing(&self) -> bool {
        self.closing.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recycled_deadlines_are_reset() {
        let deadlines = Deadlines::default();
        let (one, held) = (deadlines.take_spare(), deadlines.take_spare());
        let kept = Rc::clone(&held);
        for deadline in [&one, &held] {
            deadline.set_socket(Some(0));
            deadline.set_request(Some(0));
            deadline.set_total(Some(0));
        }
        deadlines.sweep(Duration::from_secs(1));
        assert!(one.socket_passed() && one.request_passed());
        let was = Rc::as_ptr(&one);
        deadlines.recycle(held);
        deadlines.recycle(one);
        let again = deadlines.take_spare();
        assert_eq!(Rc::as_ptr(&again), was, "the one without other references");
        assert!(!again.socket_passed() && !again.request_passed() && !again.is_over(u64::MAX - 1));
        assert!(kept.socket_passed(), "it still has a reference");
    }
}
