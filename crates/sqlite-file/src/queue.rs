//! Jobs that wait for the writer.

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Unwritten;
use crate::job::{Job, Outcome};

/// So many jobs wait at most.
const MAX_JOBS: usize = 1_000;

/// So many changes wait at most, unless they are of a single job.
const MAX_CHANGES: usize = 200_000;

/// A transaction takes jobs until it has so many changes: those who wait for the first ones do not wait for all.
const CHANGES_OF_A_TRANSACTION: usize = 20_000;

/// What is called with the outcome of a job.
pub(crate) type Reply<J> = Box<dyn FnOnce(Outcome<J>) + Send>;

/// A job and who waits for it. If the writer panics, the reply is dropped.
pub(crate) struct Waiting<J: Job> {
    pub(crate) job: J,
    reply: Reply<J>,
}

impl<J: Job> Waiting<J> {
    /// Tells the caller.
    pub(crate) fn answer(self, outcome: Outcome<J>) {
        (self.reply)(outcome);
    }
}

impl<J: Job + Debug> Debug for Waiting<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("job", &self.job).finish_non_exhaustive()
    }
}

/// Jobs in the order in which they came.
#[derive(Debug)]
pub(crate) struct Queue<J: Job> {
    state: Mutex<State<J>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<J: Job> {
    jobs: VecDeque<Waiting<J>>,
    /// The changes of all jobs.
    changes: usize,
    closed: bool,
}

impl<J: Job> Default for Queue<J> {
    fn default() -> Self {
        let state = State { jobs: VecDeque::new(), changes: 0, closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<J: Job> Queue<J> {
    /// Adds a job; the reply is called with what becomes of it, or dropped if the writer panics.
    pub(crate) fn push(&self, job: J, reply: Reply<J>) -> Result<(), Unwritten> {
        let mut state = self.state();
        if state.closed {
            return Err(Unwritten::Released);
        }
        let changes = state.changes + job.changes();
        if state.jobs.len() >= MAX_JOBS || (changes > MAX_CHANGES && !state.jobs.is_empty()) {
            return Err(Unwritten::Busy);
        }
        state.changes = changes;
        state.jobs.push_back(Waiting { job, reply });
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for a job. `false`: the queue is empty and closed.
    pub(crate) fn wait(&self) -> bool {
        let waits = |state: &mut State<J>| state.jobs.is_empty() && !state.closed;
        let state = self.changed.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner);
        !state.jobs.is_empty()
    }

    /// Takes what one transaction should do: at least one job if any waits.
    pub(crate) fn take(&self) -> Vec<Waiting<J>> {
        let mut state = self.state();
        let (mut taken, mut changes) = (0, 0);
        for waiting in &state.jobs {
            changes += waiting.job.changes();
            if taken > 0 && changes > CHANGES_OF_A_TRANSACTION {
                changes -= waiting.job.changes();
                break;
            }
            taken += 1;
        }
        state.changes -= changes;
        let rest = state.jobs.split_off(taken);
        mem::replace(&mut state.jobs, rest).into()
    }

    /// Refuses jobs from now on; those that wait stay.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    /// A job of so many changes.
    #[derive(Debug)]
    struct Changes(usize);

    impl Job for Changes {
        type Answer = ();
        type Error = Unwritten;
        type Statements<'c> = ();

        fn prepare(_: &Connection) -> rusqlite::Result<()> {
            Ok(())
        }

        fn changes(&self) -> usize {
            self.0
        }

        fn make((): &mut (), jobs: &[&Self]) -> rusqlite::Result<(Vec<Outcome<Self>>, bool)> {
            Ok((jobs.iter().map(|_| Ok(())).collect(), false))
        }
    }

    fn reply() -> Reply<Changes> {
        Box::new(|_| ())
    }

    #[test]
    fn jobs_are_bounded() {
        let queue = Queue::default();
        (0..MAX_JOBS).for_each(|_| queue.push(Changes(1), reply()).unwrap());
        assert_eq!(queue.push(Changes(1), reply()).unwrap_err(), Unwritten::Busy);
        queue.take();
        queue.push(Changes(1), reply()).unwrap();
    }

    #[test]
    fn changes_are_bounded_too_but_a_single_job_may_have_any_number() {
        let queue = Queue::default();
        queue.push(Changes(MAX_CHANGES + 1), reply()).unwrap();
        assert_eq!(queue.push(Changes(1), reply()).unwrap_err(), Unwritten::Busy);
        assert_eq!(queue.take().len(), 1);
        queue.push(Changes(CHANGES_OF_A_TRANSACTION), reply()).unwrap();
        queue.push(Changes(1), reply()).unwrap();
        assert_eq!(queue.take().len(), 1, "the third one belongs to the next transaction");
        assert_eq!(queue.take().len(), 1);
        assert!(queue.take().is_empty());
    }

    #[test]
    fn a_closed_queue_refuses_and_is_emptied() {
        let queue = Queue::default();
        queue.push(Changes(1), reply()).unwrap();
        queue.close();
        assert_eq!(queue.push(Changes(1), reply()).unwrap_err(), Unwritten::Released);
        assert!(queue.wait());
        queue.take();
        assert!(!queue.wait());
    }
}
