//! Tasks of a worker that wait in their order until it has less to do, and the task that wakes them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Tasks that wait, the oldest first.
#[derive(Default)]
pub struct Waiters {
    queue: RefCell<VecDeque<Waker>>,
    /// The task that runs [`serve`](Self::serve), while it has nothing to do.
    server: Cell<Option<Waker>>,
}

impl Waiters {
    /// The number of tasks that wait.
    #[inline]
    pub fn count(&self) -> usize {
        self.queue.borrow().len()
    }

    /// Adds a task.
    pub fn push(&self, waker: Waker) {
        self.queue.borrow_mut().push_back(waker);
    }

    /// Makes [`serve`](Self::serve) look whether it is needed.
    pub fn notify(&self) {
        if let Some(server) = self.server.take() {
            server.wake();
        }
    }

    /// Wakes as many of the oldest tasks as `next` says, once per iteration of the event loop, as long as `is_needed`. Never
    /// ends.
    pub async fn serve(&self, is_needed: impl Fn() -> bool, next: impl Fn() -> usize) {
        loop {
            poll_fn(|cx| {
                if is_needed() {
                    return Poll::Ready(());
                }
                self.server.set(Some(cx.waker().clone()));
                Poll::Pending
            })
            .await;
            // The runtime polls for I/O, and runs the tasks that were woken, before it continues here.
            tokio::task::yield_now().await;
            let count = next();
            let mut queue = self.queue.borrow_mut();
            let count = count.min(queue.len());
            queue.drain(..count).for_each(Waker::wake);
        }
    }
}
