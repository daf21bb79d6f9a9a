//! Coarse deadlines: one timer a worker looks at all connections ten times a second, instead of a timer a
//! request. Late by up to a tenth of a second, and free for whoever is in time.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

/// What was set and has not passed is this far away.
const NEVER: u64 = u64::MAX;

/// Deadlines that were lent and come back are kept for the next, so many of them.
const SPARE: usize = 256;

/// All deadlines of one worker.
pub struct Deadlines {
    /// Milliseconds since the gateway started, as of the last tick.
    now: Cell<u64>,
    all: RefCell<Vec<Weak<Deadline>>>,
    spare: RefCell<Vec<Rc<Deadline>>>,
}

/// The deadlines of one connection: one for its socket, one for the request it is serving.
pub struct Deadline {
    socket: Cell<u64>,
    request: Cell<u64>,
    /// When the request has to be over, whoever makes progress.
    total: Cell<u64>,
    socket_passed: Cell<bool>,
    request_passed: Cell<bool>,
    closing: Cell<bool>,
    given_up: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    group: u64,
}

impl Deadlines {
    /// How often they are looked at.
    pub const TICK: Duration = Duration::from_millis(100);

    pub(crate) fn new() -> Self {
        Self { now: Cell::new(0), all: RefCell::default(), spare: RefCell::default() }
    }

    /// Milliseconds since the gateway started, as of the last tick.
    pub fn now(&self) -> u64 {
        self.now.get()
    }

    /// Deadlines for a new connection of a group (a listener), none of them set.
    pub fn register(&self, group: u64) -> Rc<Deadline> {
        let deadline = Rc::new(Deadline {
            socket: Cell::new(NEVER),
            request: Cell::new(NEVER),
            total: Cell::new(NEVER),
            socket_passed: Cell::new(false),
            request_passed: Cell::new(false),
            closing: Cell::new(false),
            given_up: Cell::new(false),
            waker: RefCell::new(None),
            group,
        });
        self.all.borrow_mut().push(Rc::downgrade(&deadline));
        deadline
    }

    /// Deadlines for a request of its own, of no group: it ends with its connection. They are to be given back, so that
    /// requests by the thousand leave nothing to the next sweep.
    pub(crate) fn lend(&self) -> Rc<Deadline> {
        let spare = self.spare.borrow_mut().pop();
        spare.unwrap_or_else(|| self.register(u64::MAX))
    }

    /// Takes back what was lent, unless somebody else still has it.
    pub(crate) fn take_back(&self, deadline: Rc<Deadline>) {
        let mut spare = self.spare.borrow_mut();
        if Rc::strong_count(&deadline) == 1 && spare.len() < SPARE {
            deadline.clear();
            spare.push(deadline);
        }
    }

    /// The point `span` from now.
    pub fn after(&self, span: Duration) -> u64 {
        // A tick more, so that what was set right before one does not lose it.
        let millis = span.saturating_add(Self::TICK).as_millis();
        self.now.get().saturating_add(u64::try_from(millis).unwrap_or(NEVER))
    }

    /// Wakes every connection with a deadline that has passed. `uptime` is the time since the gateway started.
    pub(crate) fn sweep(&self, uptime: Duration) {
        let now = u64::try_from(uptime.as_millis()).unwrap_or(NEVER);
        self.now.set(now);
        self.all.borrow_mut().retain(|deadline| {
            let Some(deadline) = deadline.upgrade() else { return false };
            deadline.look(now);
            true
        });
    }

    /// Asks the connections of a group to end when they are idle.
    pub(crate) fn close(&self, group: u64) {
        for deadline in self.all.borrow().iter().filter_map(Weak::upgrade).filter(|d| d.group == group) {
            deadline.close();
        }
    }
}

impl Deadline {
    fn look(&self, now: u64) {
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

    /// As if nothing had been set.
    fn clear(&self) {
        self.set_socket(None);
        self.set_request(None);
        self.set_total(None);
        self.closing.set(false);
        self.given_up.set(false);
        self.waker.take();
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Whom to wake: the task of the connection.
    pub fn watch(&self, context: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
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

    /// Has the socket's deadline pass now, to make room for others.
    pub(crate) fn give_up(&self) {
        self.given_up.set(true);
        self.socket_passed.set(true);
        self.wake();
    }

    /// Whether it was given up.
    pub(crate) fn was_given_up(&self) -> bool {
        self.given_up.get()
    }

    /// Sets the request's deadline; `None` clears it.
    pub fn set_request(&self, at: Option<u64>) {
        self.request.set(at.unwrap_or(NEVER));
        self.request_passed.set(false);
    }

    /// Sets when the request has to be over; `None` clears it.
    pub fn set_total(&self, at: Option<u64>) {
        self.total.set(at.unwrap_or(NEVER));
    }

    /// Whether the request should be over by `now`.
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

    /// Asks the connection to end when its request has.
    fn close(&self) {
        self.closing.set(true);
        self.wake();
    }

    /// Whether it is asked to end.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// Whether it was asked to end; true once.
    pub fn take_closing(&self) -> bool {
        self.closing.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lent_comes_back_as_new() {
        let deadlines = Deadlines::new();
        let (one, held) = (deadlines.lend(), deadlines.lend());
        let kept = Rc::clone(&held);
        for deadline in [&one, &held] {
            deadline.set_socket(Some(0));
            deadline.set_request(Some(0));
            deadline.set_total(Some(0));
        }
        deadlines.sweep(Duration::from_secs(1));
        assert!(one.socket_passed() && one.request_passed());
        let was = Rc::as_ptr(&one);
        deadlines.take_back(held);
        deadlines.take_back(one);
        let again = deadlines.lend();
        assert_eq!(Rc::as_ptr(&again), was, "the one that nobody else had");
        assert!(!again.socket_passed() && !again.request_passed() && !again.is_over(u64::MAX - 1));
        assert!(kept.socket_passed(), "somebody still has it");
    }
}
