//! The order in which a busy worker reads requests. Requests that are in progress go on first; clients whose next request has
//! arrived wait, unread, until few are in progress. Otherwise a thousand clients that send at the same time have a thousand
//! requests in progress, and none of their memory, nor that of their upstream connections in the kernel, is still in the
//! caches of the processor when the response arrives. A worker that has nothing else to do never lets anybody wait.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// So many requests in progress keep a worker busy.
const ENOUGH: usize = 32;
/// So many more begin if the worker had nothing to do for those in progress.
const MORE: usize = 16;
/// Of so many responses, one lowers the number of requests in progress that is found to be enough.
const FORGETS: usize = 4;

/// The requests in progress on the HTTP/1.1 connections of a worker, and the connections that wait with another one.
#[derive(Default)]
pub struct Backlog {
    in_progress: Cell<usize>,
    /// The requests in progress above [`ENOUGH`] with which the worker still had nothing to do.
    above: Cell<usize>,
    /// Requests that ended since the worker last looked for events.
    ended: Cell<usize>,
    /// Those that ended since `above` was lowered.
    remembered: Cell<usize>,
    waiting: RefCell<VecDeque<Waker>>,
    /// The task that lets them go on, while none waits.
    task: Cell<Option<Waker>>,
}

impl Backlog {
    /// Whether the next request should wait. If few wait, it need not be the last: that costs less.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.in_progress.get() >= ENOUGH + self.above.get() || self.waiting.borrow().len() >= MORE
    }

    /// Wakes `waker` when its request may be read. It may be read earlier, too.
    pub(crate) fn wait(&self, waker: Waker) {
        self.waiting.borrow_mut().push_back(waker);
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// A request begins.
    #[inline]
    pub(crate) fn begin(&self) {
        self.in_progress.set(self.in_progress.get() + 1);
    }

    /// A request has its response, or needs none.
    #[inline]
    pub(crate) fn end(&self) {
        self.in_progress.set(self.in_progress.get().saturating_sub(1));
        self.ended.set(self.ended.get() + 1);
    }

    /// Lets waiting requests go on, forever.
    pub(crate) async fn run(&self) {
        loop {
            poll_fn(|context| {
                if self.waiting.borrow().is_empty() {
                    self.task.set(Some(context.waker().clone()));
                    return Poll::Pending;
                }
                Poll::Ready(())
            })
            .await;
            // Before the runtime goes on here, it looks for events and runs the tasks that wait for them.
            tokio::task::yield_now().await;
            let count = self.next();
            self.waiting.borrow_mut().drain(..count).for_each(Waker::wake);
        }
    }

    /// The number of waiting requests that may begin now.
    fn next(&self) -> usize {
        let ended = self.ended.take();
        let remembered = self.remembered.get() + ended;
        self.remembered.set(remembered % FORGETS);
        self.above.set(self.above.get().saturating_sub(remembered / FORGETS));
        let in_progress = self.in_progress.get();
        if ended == 0 {
            self.above.set((in_progress + MORE).saturating_sub(ENOUGH).max(self.above.get()));
        }
        let room = (ENOUGH + self.above.get()).saturating_sub(in_progress);
        // Requests that never wait, such as those over TLS, may take all of the room.
        room.max(ended.div_ceil(2)).min(self.waiting.borrow().len())
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use futures_util::FutureExt;
    use tokio::task::{LocalSet, spawn_local, yield_now};

    use super::*;

    /// What a connection does: it waits if need be, and notes its number when its request begins.
    async fn arrive(backlog: Rc<Backlog>, number: usize, begun: Rc<RefCell<Vec<usize>>>) {
        let mut has_waited = false;
        poll_fn(|context| {
            if !has_waited && backlog.is_long() {
                has_waited = true;
                backlog.wait(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        backlog.begin();
        begun.borrow_mut().push(number);
    }

    /// Runs `test` with a backlog, and a function that lets so many requests arrive.
    fn with(test: impl AsyncFnOnce(&Rc<Backlog>, &Rc<RefCell<Vec<usize>>>)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let local = LocalSet::new();
        local.block_on(&runtime, async {
            let (backlog, begun) = (Rc::new(Backlog::default()), Rc::default());
            let running = Rc::clone(&backlog);
            spawn_local(async move { running.run().await });
            test(&backlog, &begun).await;
        });
    }

    fn arrivals(backlog: &Rc<Backlog>, begun: &Rc<RefCell<Vec<usize>>>, count: usize) {
        for number in 0..count {
            spawn_local(arrive(Rc::clone(backlog), number, Rc::clone(begun)));
        }
    }

    #[test]
    fn few_requests_never_wait() {
        with(async |backlog, begun| {
            arrivals(backlog, begun, ENOUGH);
            yield_now().await;
            assert_eq!(begun.borrow().len(), ENOUGH);
        });
    }

    #[test]
    fn while_responses_come_no_more_begin_than_end() {
        with(async |backlog, begun| {
            arrivals(backlog, begun, 10 * ENOUGH);
            while begun.borrow().len() < 9 * ENOUGH {
                let before = begun.borrow().len();
                (0..4).for_each(|_| backlog.end());
                yield_now().await;
                assert!(backlog.in_progress.get() <= ENOUGH + MORE, "{}", backlog.in_progress.get());
                assert!(begun.borrow().len() <= before + ENOUGH + MORE);
            }
            let mut begun = begun.borrow().clone().into_iter().enumerate();
            assert!(begun.all(|(at, number)| at.abs_diff(number) <= ENOUGH), "nearly in their order");
        });
    }

    #[test]
    fn without_responses_all_begin_soon() {
        with(async |backlog, begun| {
            arrivals(backlog, begun, 10 * ENOUGH);
            for _ in 0..2 * 10 * ENOUGH / MORE {
                yield_now().await;
            }
            assert_eq!(begun.borrow().len(), 10 * ENOUGH);
            // They end, and as many more begin at once: as the worker had nothing to do with so many.
            (0..ENOUGH).for_each(|_| backlog.end());
            assert!(!backlog.is_long());
            // After a busy time few are enough again.
            (0..10 * ENOUGH * FORGETS).for_each(|_| backlog.end());
            backlog.next();
            assert_eq!(backlog.above.get(), 0);
        });
    }

    #[test]
    fn requests_that_never_wait_starve_nobody() {
        with(async |backlog, begun| {
            (0..10 * ENOUGH).for_each(|_| backlog.begin());
            arrivals(backlog, begun, ENOUGH);
            for _ in 0..2 * ENOUGH {
                backlog.end();
                backlog.begin();
                yield_now().await;
            }
            assert_eq!(begun.borrow().len(), ENOUGH);
        });
    }

    #[test]
    fn a_request_that_ends_early_is_not_counted() {
        let backlog = Backlog::default();
        backlog.end();
        assert_eq!((backlog.in_progress.get(), backlog.run().now_or_never()), (0, None));
    }
}
