//! Batches that wait for the writer.

use std::collections::VecDeque;
use std::mem;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use sluicegate_rules::{Batch, Written};

use crate::error::WriteError;

/// So many batches wait at most.
const MOST_BATCHES: usize = 1_000;

/// So many changes wait at most, unless they are of a single batch.
const MOST_CHANGES: usize = 200_000;

/// A transaction takes batches until it has so many changes: those who wait for the first ones do not wait for all.
const CHANGES_OF_A_TRANSACTION: usize = 20_000;

/// A batch and who waits for it. Whoever drops it unanswered has answered that it failed.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) batch: Batch,
    answer: SyncSender<Result<Written, WriteError>>,
}

impl Job {
    /// Tells the caller.
    pub(crate) fn answer(self, result: Result<Written, WriteError>) {
        // The channel has a place for it, and the caller waits as long as it takes.
        _ = self.answer.send(result);
    }
}

/// Batches in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    /// The changes of all jobs.
    changes: usize,
    closed: bool,
}

impl Queue {
    /// Adds a batch; the receiver gets what becomes of it, or nothing if the writer panics.
    pub(crate) fn push(&self, batch: Batch) -> Result<Receiver<Result<Written, WriteError>>, WriteError> {
        let mut state = self.state();
        if state.closed {
            return Err(WriteError::Released);
        }
        let changes = state.changes + batch.changes.len();
        if state.jobs.len() >= MOST_BATCHES || (changes > MOST_CHANGES && !state.jobs.is_empty()) {
            return Err(WriteError::Busy);
        }
        let (answer, answered) = sync_channel(1);
        state.changes = changes;
        state.jobs.push_back(Job { batch, answer });
        self.changed.notify_one();
        Ok(answered)
    }

    /// Waits for a batch. `false`: the queue is empty and closed.
    pub(crate) fn wait(&self) -> bool {
        let waits = |state: &mut State| state.jobs.is_empty() && !state.closed;
        let state = self.changed.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner);
        !state.jobs.is_empty()
    }

    /// Takes what one transaction should do: at least one batch if any waits.
    pub(crate) fn take(&self) -> Vec<Job> {
        let mut state = self.state();
        let (mut taken, mut changes) = (0, 0);
        for job in &state.jobs {
            changes += job.batch.changes.len();
            if taken > 0 && changes > CHANGES_OF_A_TRANSACTION {
                changes -= job.batch.changes.len();
                break;
            }
            taken += 1;
        }
        state.changes -= changes;
        let rest = state.jobs.split_off(taken);
        mem::replace(&mut state.jobs, rest).into()
    }

    /// Refuses batches from now on; those that wait stay.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_rules::{Op, Precondition, Write};

    use super::*;

    fn batch(changes: usize) -> Batch {
        let write = Write { op: Op::Delete { id: "a".into() }, precondition: Precondition::None };
        Batch { changes: vec![write; changes], ..Batch::default() }
    }

    #[test]
    fn a_full_queue_refuses() {
        let queue = Queue::default();
        let waiting: Vec<_> = (0..MOST_BATCHES).map(|_| queue.push(batch(1)).unwrap()).collect();
        assert_eq!(queue.push(batch(1)).unwrap_err(), WriteError::Busy);
        assert_eq!(queue.take().len(), waiting.len());
        queue.push(batch(1)).unwrap();
    }

    #[test]
    fn changes_are_bounded_too_but_a_single_batch_may_have_any_number() {
        let queue = Queue::default();
        let _first = queue.push(batch(MOST_CHANGES + 1)).unwrap();
        assert_eq!(queue.push(batch(1)).unwrap_err(), WriteError::Busy);
        assert_eq!(queue.take().len(), 1);
        let _second = queue.push(batch(CHANGES_OF_A_TRANSACTION)).unwrap();
        let _third = queue.push(batch(1)).unwrap();
        assert_eq!(queue.take().len(), 1, "the third one belongs to the next transaction");
        assert_eq!(queue.take().len(), 1);
        assert!(queue.take().is_empty());
    }

    #[test]
    fn a_closed_queue_refuses_and_is_emptied() {
        let queue = Queue::default();
        let _waiting = queue.push(batch(1)).unwrap();
        queue.close();
        assert_eq!(queue.push(batch(1)).unwrap_err(), WriteError::Released);
        assert!(queue.wait());
        queue.take();
        assert!(!queue.wait());
    }
}
