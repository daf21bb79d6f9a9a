//! Requests that wait for the next call for their keys, and how many calls are in flight. `A` is the answer that they get.

use std::cell::RefCell;
use std::collections::HashMap;

use sluicegate_limiter::{Span, Time};
use smallvec::SmallVec;
use tokio::sync::oneshot;

/// The largest number of requests that share a call.
const MAX_BATCH: usize = 256;
/// The largest number of calls in flight for the same keys.
const MAX_CALLS: u32 = 8;
/// What the requests of a batch have in common: the limits (by address), the keys, the costs, and whether charges may be
/// undone.
pub(super) type BatchKey = SmallVec<[(usize, u64, u64, u64, bool); 2]>;

/// The batches of one worker.
pub(super) struct Batches<A>(RefCell<HashMap<BatchKey, Batch<A>>>);

/// The calls for some keys, and the requests that wait for the next.
struct Batch<A> {
    waiting: Vec<Waiter<A>>,
    calls: u32,
    /// When the last call began.
    last: Time,
}

/// A request that waits.
pub(super) struct Waiter<A> {
    pub(super) answer: oneshot::Sender<Option<A>>,
    pub(super) since: Time,
}

/// The calls of one task. When the last is dropped, even by a panic, waiting requests learn that the store does not decide.
pub(super) struct BatchGuard<'a, A> {
    pub(super) batches: &'a Batches<A>,
    pub(super) batch_key: BatchKey,
}

impl<A> Default for Batches<A> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<A> Default for Batch<A> {
    fn default() -> Self {
        Self { waiting: Vec::new(), calls: 0, last: Time::EPOCH }
    }
}

impl<A> Batches<A> {
    /// Adds a request. Returns whether the caller has to start a task that calls the store.
    pub(super) fn enqueue(
        &self,
        batch_key: &BatchKey,
        request: Waiter<A>,
        now: Time,
        next_after: Span,
    ) -> bool {
        let mut batches = self.0.borrow_mut();
        let batch = batches.entry(batch_key.clone()).or_default();
        batch.waiting.push(request);
        batch.begins(now, next_after)
    }

    /// Whether one more task has to start, because waiting requests have waited long.
    pub(super) fn overdue(&self, batch_key: &BatchKey, now: Time, next_after: Span) -> bool {
        let mut batches = self.0.borrow_mut();
        batches
            .get_mut(batch_key)
            .is_some_and(|batch| !batch.waiting.is_empty() && batch.begins(now, next_after))
    }

    /// Takes the requests of the next call.
    pub(super) fn next(&self, batch_key: &BatchKey, now: Time) -> Vec<Waiter<A>> {
        let mut batches = self.0.borrow_mut();
        let Some(batch) = batches.get_mut(batch_key) else { return Vec::new() };
        batch.last = now;
        let rest = batch.waiting.split_off(batch.waiting.len().min(MAX_BATCH));
        std::mem::replace(&mut batch.waiting, rest)
    }
}

impl<A> Batch<A> {
    fn begins(&mut self, now: Time, next_after: Span) -> bool {
        let begins = self.calls == 0 || (self.calls < MAX_CALLS && now.since(self.last) >= next_after);
        if begins {
            self.calls += 1;
            self.last = now;
        }
        begins
    }
}

impl<A> Drop for BatchGuard<'_, A> {
    fn drop(&mut self) {
        let mut batches = self.batches.0.borrow_mut();
        let Some(batch) = batches.get_mut(&self.batch_key) else { return };
        batch.calls -= 1;
        if batch.calls == 0 {
            batches.remove(&self.batch_key); // requests that still wait are decided without the store
        }
    }
}
