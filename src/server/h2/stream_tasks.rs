//! The requests of a connection, each in a slot, which are polled in its task when they are woken. The waker of a slot serves
//! one request after the other, and so does the future, which is large: requests move neither, and count no references.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::answer::{self, Asked};

/// Slots whose state is in one number.
const BITS: usize = u64::BITS as usize;
/// So many slots there are at the most.
pub(super) const SLOTS: usize = 2 * BITS;
/// Slots that a connection keeps while it has no request.
const KEPT: usize = 8;
/// Servers that a worker keeps for the next requests of any connection.
const SPARE: usize = 64;

thread_local! {
    static SPARES: RefCell<Vec<Server>> = const { RefCell::new(Vec::new()) };
}

/// Requests in their slots.
#[derive(Default)]
pub(super) struct StreamTasks {
    slots: Vec<Slot>,
    ready: Option<Arc<Ready>>,
}

struct Slot {
    server: Option<Server>,
    waker: Waker,
}

/// What serves one request after the other.
struct Server {
    next: Rc<Next>,
    serving: Pin<Box<dyn Future<Output = Infallible>>>,
}

/// The request that a server is given next.
#[derive(Default)]
pub(super) struct Next {
    asked: Cell<Option<Asked>>,
    waits: Cell<bool>,
}

impl Next {
    /// Waits for it.
    pub(super) async fn wait(&self) -> Asked {
        poll_fn(|_| {
            let asked = self.asked.take();
            self.waits.set(asked.is_none());
            asked.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

impl Server {
    fn begin(asked: Asked) -> Self {
        let spare = SPARES.with_borrow_mut(Vec::pop);
        let server = spare.unwrap_or_else(|| {
            let next = Rc::new(Next::default());
            Self { serving: Box::pin(answer::serve(Rc::clone(&next))), next }
        });
        server.next.asked.set(Some(asked));
        server
    }

    /// It has nothing to do: another may need it.
    fn rest(self) {
        SPARES.with_borrow_mut(|spares| {
            if spares.len() < SPARE {
                spares.push(self);
            }
        });
    }
}

/// Which slots were woken, from whatever thread.
struct Ready {
    slots: [AtomicU64; 2],
    /// The task of the connection.
    task: Waker,
}

/// Wakes a slot.
struct WakesSlot {
    slot: usize,
    ready: Arc<Ready>,
}

impl Wake for WakesSlot {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.set(self.slot);
        self.ready.task.wake_by_ref();
    }
}

impl Ready {
    fn set(&self, slot: usize) {
        self.slots[slot / BITS].fetch_or(1 << (slot % BITS), Ordering::AcqRel);
    }

    /// The slots that were woken since the last time: none twice.
    fn take(&self, half: usize) -> u64 {
        match self.slots[half].load(Ordering::Relaxed) {
            0 => 0,
            _ => self.slots[half].swap(0, Ordering::AcqRel),
        }
    }
}

impl StreamTasks {
    /// Has the requests wake this task from now on. It is nearly always the same.
    pub(super) fn enter(&mut self, context: &Context<'_>) {
        if self.ready.as_ref().is_some_and(|ready| ready.task.will_wake(context.waker())) {
            return;
        }
        let ready = Arc::new(Ready { slots: Default::default(), task: context.waker().clone() });
        for (at, slot) in self.slots.iter_mut().enumerate() {
            slot.waker = waker(at, &ready);
            ready.set(at); // it has to tell whoever it waits for
        }
        self.ready = Some(ready);
    }

    /// Puts a request into a slot, which is one of [`SLOTS`] and is free. It is polled next.
    pub(super) fn put(&mut self, slot: usize, asked: Asked) {
        let Some(ready) = &self.ready else { return };
        while self.slots.len() <= slot {
            self.slots.push(Slot { server: None, waker: waker(self.slots.len(), ready) });
        }
        self.slots[slot].server = Some(Server::begin(asked));
        ready.set(slot);
    }

    /// Has the request in a slot polled next.
    pub(super) fn wake(&self, slot: usize) {
        if let Some(ready) = &self.ready {
            ready.set(slot);
        }
    }

    /// Breaks off what is served in a slot.
    pub(super) fn end(&mut self, slot: usize) {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.server = None;
        }
    }

    /// Polls those that were woken.
    pub(super) fn poll(&mut self) {
        let Some(ready) = &self.ready else { return };
        for half in 0..2 {
            let mut woken = ready.take(half);
            while woken != 0 {
                let at = half * BITS + woken.trailing_zeros() as usize;
                woken &= woken - 1;
                let Some(Slot { server, waker }) = self.slots.get_mut(at) else { continue };
                let Some(running) = server else { continue };
                let Poll::Pending = running.serving.as_mut().poll(&mut Context::from_waker(waker));
                if running.next.waits.get()
                    && let Some(server) = server.take()
                {
                    server.rest();
                }
            }
        }
    }

    /// Gives back memory. There is no request.
    pub(super) fn shrink(&mut self) {
        self.slots.truncate(KEPT);
    }
}

fn waker(slot: usize, ready: &Arc<Ready>) -> Waker {
    Arc::new(WakesSlot { slot, ready: Arc::clone(ready) }).into()
}
