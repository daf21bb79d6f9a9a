//! Spreads work that occupies the processor for long, such as the key exchange and the signature of a TLS handshake, over
//! iterations of the event loop. However many clients connect at the same time, other requests wait for few handshakes only.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

use sluicegate_downstream::worker_state::Waiters;

/// One in so many waiting tasks continues in an iteration, and at least one. So a long queue becomes shorter even if iterations
/// are long.
const SHARE: usize = 8;

/// The tasks that wait.
#[derive(Default)]
pub(crate) struct Pacer {
    waiting: Waiters,
    /// Whether a task was let through in this iteration.
    used: Cell<bool>,
}

impl Pacer {
    /// Waits until the task may do its work. A task that is woken by something else meanwhile is let through, too.
    pub(super) async fn wait(&self) {
        let mut has_waited = false;
        poll_fn(|cx| {
            if has_waited {
                return Poll::Ready(());
            }
            self.waiting.notify();
            if !self.used.replace(true) {
                return Poll::Ready(());
            }
            has_waited = true;
            self.waiting.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Lets tasks through. Never ends.
    pub(crate) async fn run(&self) {
        self.waiting.serve(|| self.used.get(), || self.next()).await;
    }

    /// The number of waiting tasks that continue in this iteration of the event loop.
    fn next(&self) -> usize {
        let waiting = self.waiting.count();
        self.used.set(waiting > 0);
        1 + waiting / SHARE
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::task::{LocalSet, spawn_local, yield_now};

    use super::*;

    #[test]
    fn few_tasks_continue_in_an_iteration_of_the_event_loop() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let (pacer, done) = (Rc::new(Pacer::default()), Rc::new(RefCell::new(Vec::new())));
            let running = Rc::clone(&pacer);
            spawn_local(async move { running.run().await });
            for number in 0..40 {
                let (pacer, done) = (Rc::clone(&pacer), Rc::clone(&done));
                spawn_local(async move {
                    pacer.wait().await;
                    done.borrow_mut().push(number);
                });
            }
            for _ in 0..200 {
                let before = done.borrow().len();
                yield_now().await;
                assert!(done.borrow().len() <= before + 1 + (40 - before) / SHARE);
            }
            assert_eq!(*done.borrow(), (0..40).collect::<Vec<_>>(), "all of them, in their order");
            pacer.wait().await; // nobody waits: at once
        });
    }
}
