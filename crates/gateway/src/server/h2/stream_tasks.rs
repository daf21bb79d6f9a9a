//! The requests of a connection, each in a slot. The task of the connection polls those that were woken. The waker of a slot and
//! the future, which is large, are reused for later requests, so that a request neither allocates nor moves them.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::answer;
use super::next_request::{NextRequest, StreamRequest};

/// Slots per word of [`Ready`].
const BITS: usize = u64::BITS as usize;
/// The most slots.
pub(super) const SLOTS: usize = 2 * BITS;
/// Slots that an idle connection keeps.
const KEPT: usize = 8;
/// The most idle tasks that a worker keeps for the requests of any connection.
const MAX_IDLE: usize = 64;

thread_local! {
    static IDLE: RefCell<Vec<StreamTask>> = const { RefCell::new(Vec::new()) };
}

/// The requests of a connection by slot.
#[derive(Default)]
pub(super) struct StreamTasks {
    slots: Vec<Slot>,
    ready: Option<Arc<Ready>>,
}

struct Slot {
    task: Option<StreamTask>,
    waker: Waker,
}

/// A future that serves one request after the other.
struct StreamTask {
    next: Rc<NextRequest>,
    serving: Pin<Box<dyn Future<Output = Infallible>>>,
}

impl StreamTask {
    /// An idle task or a new one, with its next request.
    fn begin(request: StreamRequest) -> Self {
        let idle = IDLE.with_borrow_mut(Vec::pop);
        let task = idle.unwrap_or_else(|| {
            let next = Rc::new(NextRequest::default());
            Self { serving: Box::pin(answer::serve(Rc::clone(&next))), next }
        });
        task.next.give(request);
        task
    }

    /// Keeps the idle task for another request.
    fn recycle(self) {
        IDLE.with_borrow_mut(|idle| {
            if idle.len() < MAX_IDLE {
                idle.push(self);
            }
        });
    }
}

/// The slots that were woken, possibly by other threads.
struct Ready {
    slots: [AtomicU64; 2],
    /// The task of the connection.
    task: Waker,
}

/// Wakes a slot.
struct SlotWaker {
    slot: usize,
    ready: Arc<Ready>,
}

impl Wake for SlotWaker {
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

    /// Takes the slots that were woken since the last call.
    fn take(&self, half: usize) -> u64 {
        match self.slots[half].load(Ordering::Relaxed) {
            0 => 0,
            _ => self.slots[half].swap(0, Ordering::AcqRel),
        }
    }
}

impl StreamTasks {
    /// Sets the task that requests wake. It is nearly always the same.
    pub(super) fn enter(&mut self, context: &Context<'_>) {
        if self.ready.as_ref().is_some_and(|ready| ready.task.will_wake(context.waker())) {
            return;
        }
        let ready = Arc::new(Ready { slots: Default::default(), task: context.waker().clone() });
        for (at, slot) in self.slots.iter_mut().enumerate() {
            slot.waker = waker(at, &ready);
            ready.set(at); // the request has to register the new waker
        }
        self.ready = Some(ready);
    }

    /// Puts a request into a slot, which is below [`SLOTS`] and free, to be polled next.
    pub(super) fn put(&mut self, slot: usize, request: StreamRequest) {
        let Some(ready) = &self.ready else { return };
        while self.slots.len() <= slot {
            self.slots.push(Slot { task: None, waker: waker(self.slots.len(), ready) });
        }
        self.slots[slot].task = Some(StreamTask::begin(request));
        ready.set(slot);
    }

    /// Marks the request in a slot to be polled next.
    pub(super) fn wake(&self, slot: usize) {
        if let Some(ready) = &self.ready {
            ready.set(slot);
        }
    }

    /// Stops serving the request in a slot.
    pub(super) fn end(&mut self, slot: usize) {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.task = None;
        }
    }

    /// Polls the requests that were woken.
    pub(super) fn poll(&mut self) {
        let Some(ready) = &self.ready else { return };
        for half in 0..2 {
            let mut woken = ready.take(half);
            while woken != 0 {
                let at = half * BITS + woken.trailing_zeros() as usize;
                woken &= woken - 1;
                let Some(Slot { task, waker }) = self.slots.get_mut(at) else { continue };
                let Some(running) = task else { continue };
                let Poll::Pending = running.serving.as_mut().poll(&mut Context::from_waker(waker));
                if running.next.is_idle()
                    && let Some(task) = task.take()
                {
                    task.recycle();
                }
            }
        }
    }

    /// Releases memory. Called when there is no request.
    pub(super) fn shrink(&mut self) {
        self.slots.truncate(KEPT);
    }
}

fn waker(slot: usize, ready: &Arc<Ready>) -> Waker {
    Arc::new(SlotWaker { slot, ready: Arc::clone(ready) }).into()
}
