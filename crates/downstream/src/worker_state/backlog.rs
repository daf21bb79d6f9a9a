//! The order in which a busy worker reads requests: it finishes requests in progress before it reads further ones. Otherwise a
//! thousand clients that send at the same time have a thousand requests in progress, and neither their memory nor that of
//! their upstream connections in the kernel is still in the processor's caches when the responses arrive. A worker with
//! nothing else to do reads at once.

use std::cell::Cell;
use std::task::Waker;

use super::waiters::Waiters;

/// The number of requests in progress that usually keeps a worker busy.
const BUSY: usize = 32;
/// The number of requests that are read at once when those in progress do not keep the worker busy.
const STEP: usize = 16;
/// The number of responses after which one request less is taken to keep the worker busy.
const DECAY: usize = 4;

/// The requests in progress on the HTTP/1.1 connections of a worker, and the connections whose next request has arrived but is
/// not read yet.
#[derive(Default)]
pub struct Backlog {
    in_progress: Cell<usize>,
    /// The number of requests in progress, beyond [`BUSY`], that did not keep the worker busy.
    extra: Cell<usize>,
    /// Requests that ended since the last iteration of the event loop.
    ended: Cell<usize>,
    /// Requests that ended since `extra` was lowered: fewer than [`DECAY`].
    ended_before: Cell<usize>,
    waiting: Waiters,
}

impl Backlog {
    /// Whether the next request should wait. While few wait, a new one may overtake them: that saves a wake-up.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.in_progress.get() >= BUSY + self.extra.get() || self.waiting.count() >= STEP
    }

    /// Wakes `waker` when its request should be read. Reading it earlier is allowed.
    pub(crate) fn wait(&self, waker: Waker) {
        self.waiting.push(waker);
        self.waiting.notify();
    }

    /// A request was read.
    #[inline]
    pub(crate) fn begin(&self) {
        self.in_progress.set(self.in_progress.get() + 1);
    }

    /// A request has its response, or will have none.
    #[inline]
    pub(crate) fn end(&self) {
        self.in_progress.set(self.in_progress.get().saturating_sub(1));
        self.ended.set(self.ended.get() + 1);
    }

    /// Wakes waiting connections. Never ends.
    pub async fn run(&self) {
        self.waiting.serve(|| self.waiting.count() > 0, || self.next()).await;
    }

    /// The most waiting connections that may read their request in this iteration of the event loop.
    fn next(&self) -> usize {
        let ended = self.ended.take();
        let in_progress = self.in_progress.get();
        let since = self.ended_before.get() + ended;
        self.ended_before.set(since % DECAY);
        self.extra.set(self.extra.get().saturating_sub(since / DECAY));
        if ended == 0 {
            self.extra.set((in_progress + STEP).saturating_sub(BUSY).max(self.extra.get()));
        }
        // Requests that never wait, such as those over TLS, may take all of the room: half of what ended is read in any case.
        (BUSY + self.extra.get()).saturating_sub(in_progress).max(ended.div_ceil(2))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::Poll;

    use futures_util::FutureExt;
    use tokio::task::{LocalSet, spawn_local, yield_now};

    use super::*;

    /// What a connection does: it waits if need be, and notes its number when its request begins.
    async fn arrive(backlog: Rc<Backlog>, number: usize, begun: Rc<RefCell<Vec<usize>>>) {
        let mut has_waited = false;
        poll_fn(|cx| {
            if !has_waited && backlog.is_long() {
                has_waited = true;
                backlog.wait(cx.waker().clone());
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
            arrivals(backlog, begun, BUSY);
            yield_now().await;
            assert_eq!(begun.borrow().len(), BUSY);
        });
    }

    #[test]
    fn while_responses_come_no_more_begin_than_end() {
        with(async |backlog, begun| {
            arrivals(backlog, begun, 10 * BUSY);
            while begun.borrow().len() < 9 * BUSY {
                let before = begun.borrow().len();
                (0..4).for_each(|_| backlog.end());
                yield_now().await;
                assert!(backlog.in_progress.get() <= BUSY + STEP, "{}", backlog.in_progress.get());
                assert!(begun.borrow().len() <= before + BUSY + STEP);
            }
            let mut begun = begun.borrow().clone().into_iter().enumerate();
            assert!(begun.all(|(at, number)| at.abs_diff(number) <= BUSY), "nearly in their order");
        });
    }

    #[test]
    fn without_responses_all_begin_soon() {
        with(async |backlog, begun| {
            arrivals(backlog, begun, 10 * BUSY);
            for _ in 0..2 * 10 * BUSY / STEP {
                yield_now().await;
            }
            assert_eq!(begun.borrow().len(), 10 * BUSY);
            // They end, and as many more begin at once: as the worker had nothing to do with so many.
            (0..BUSY).for_each(|_| backlog.end());
            assert!(!backlog.is_long());
            // After a busy time few are enough again.
            (0..10 * BUSY * DECAY).for_each(|_| backlog.end());
            backlog.next();
            assert_eq!(backlog.extra.get(), 0);
        });
    }

    #[test]
    fn requests_that_never_wait_starve_nobody() {
        with(async |backlog, begun| {
            (0..10 * BUSY).for_each(|_| backlog.begin());
            arrivals(backlog, begun, BUSY);
            for _ in 0..2 * BUSY {
                backlog.end();
                backlog.begin();
                yield_now().await;
            }
            assert_eq!(begun.borrow().len(), BUSY);
        });
    }

    #[test]
    fn a_request_that_ends_early_is_not_counted() {
        let backlog = Backlog::default();
        backlog.end();
        assert_eq!((backlog.in_progress.get(), backlog.run().now_or_never()), (0, None));
    }
}
