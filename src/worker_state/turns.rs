//! Turns of work that takes long without a wait in it, such as the signature of a TLS handshake: between two looks for events a
//! worker does one piece of it, or an eighth of what waits, and everything else goes on in between. However many clients
//! connect at the same time, other requests wait for few handshakes, not for all.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Of so many tasks that wait, one has its turn: so the queue becomes shorter even if a worker seldom looks for events.
const PART: usize = 8;

/// The tasks that wait for a turn, in their order.
#[derive(Default)]
pub struct Turns {
    waiting: RefCell<VecDeque<Waker>>,
    /// Whether a task had a turn since the worker last looked for events.
    taken: Cell<bool>,
    /// The task that gives the next turn, while nobody needs one.
    task: Cell<Option<Waker>>,
}

impl Turns {
    /// Waits for a turn. Ready at the second poll in any case.
    pub(crate) async fn wait(&self) {
        let mut has_waited = false;
        poll_fn(|context| {
            if has_waited {
                return Poll::Ready(());
            }
            if let Some(task) = self.task.take() {
                task.wake();
            }
            if !self.taken.replace(true) {
                return Poll::Ready(());
            }
            has_waited = true;
            self.waiting.borrow_mut().push_back(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Gives turns, forever.
    pub(crate) async fn run(&self) {
        loop {
            poll_fn(|context| {
                if !self.taken.get() {
                    self.task.set(Some(context.waker().clone()));
                    return Poll::Pending;
                }
                Poll::Ready(())
            })
            .await;
            // Before the runtime goes on here, it looks for events and runs the tasks that wait for them.
            tokio::task::yield_now().await;
            let mut waiting = self.waiting.borrow_mut();
            let count = waiting.len().min(1 + waiting.len() / PART);
            self.taken.set(count > 0);
            waiting.drain(..count).for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use tokio::task::{LocalSet, spawn_local, yield_now};

    use super::*;

    #[test]
    fn few_tasks_have_a_turn_between_two_looks_for_events() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let (turns, done) = (Rc::new(Turns::default()), Rc::new(RefCell::new(Vec::new())));
            let running = Rc::clone(&turns);
            spawn_local(async move { running.run().await });
            for number in 0..40 {
                let (turns, done) = (Rc::clone(&turns), Rc::clone(&done));
                spawn_local(async move {
                    turns.wait().await;
                    done.borrow_mut().push(number);
                });
            }
            for _ in 0..200 {
                let before = done.borrow().len();
                yield_now().await;
                assert!(done.borrow().len() <= before + 1 + (40 - before) / PART);
            }
            assert_eq!(*done.borrow(), (0..40).collect::<Vec<_>>(), "all of them, in their order");
            turns.wait().await; // nobody waits: at once
        });
    }
}
