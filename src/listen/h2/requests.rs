//! The requests of a connection as futures, polled in its task when they are woken. A slot serves one after the other, and
//! so does its waker: a request counts no references of its own.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Slots whose state is in one number.
const BITS: usize = u64::BITS as usize;
/// So many slots there are at the most.
pub(super) const SLOTS: usize = 2 * BITS;

/// Requests in their slots.
pub(super) struct Requests<F> {
    slots: Vec<Slot<F>>,
    ready: Option<Arc<Ready>>,
}

struct Slot<F> {
    /// In a box, which moves when the slots do.
    request: Option<Pin<Box<F>>>,
    waker: Waker,
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

impl<F: Future<Output = ()>> Requests<F> {
    /// No requests.
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), ready: None }
    }

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

    /// Puts a request into a slot, which is one of [`SLOTS`], in place of what is there. It is polled next.
    pub(super) fn put(&mut self, slot: usize, request: F) {
        let Some(ready) = &self.ready else { return };
        while self.slots.len() <= slot {
            self.slots.push(Slot { request: None, waker: waker(self.slots.len(), ready) });
        }
        self.slots[slot].request = Some(Box::pin(request));
        ready.set(slot);
    }

    /// Has the request in a slot polled next.
    pub(super) fn wake(&self, slot: usize) {
        if let Some(ready) = &self.ready {
            ready.set(slot);
        }
    }

    /// Ends the request in a slot.
    pub(super) fn end(&mut self, slot: usize) {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.request = None;
        }
    }

    /// Polls those that were woken. Whether there were any.
    pub(super) fn poll(&mut self) -> bool {
        let Some(ready) = &self.ready else { return false };
        let mut any = false;
        for half in 0..2 {
            let mut woken = ready.take(half);
            while woken != 0 {
                let at = half * BITS + woken.trailing_zeros() as usize;
                woken &= woken - 1;
                let Some(Slot { request, waker }) = self.slots.get_mut(at) else { continue };
                let Some(running) = request else { continue };
                any = true;
                if running.as_mut().poll(&mut Context::from_waker(waker)) == Poll::Ready(()) {
                    *request = None;
                }
            }
        }
        any
    }

    /// Gives back memory, if there is no request.
    pub(super) fn shrink(&mut self) {
        if self.slots.len() > 1 && self.slots.iter().all(|slot| slot.request.is_none()) {
            self.slots = Vec::new();
        }
    }
}

fn waker(slot: usize, ready: &Arc<Ready>) -> Waker {
    Arc::new(WakesSlot { slot, ready: Arc::clone(ready) }).into()
}
