//! Batches of requests for the same keys. While a call for some keys is in flight, further requests for them wait and
//! share the next call, so that a hot key costs one call at a time and not one per request.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use sluicegate_counters::Decision;
use sluicegate_limiter::{Span, Time};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::call::Items;
use super::delivery::Delivery;
use super::store::Store;

/// The largest number of requests that share a call.
const MAX_BATCH: usize = 256;
/// The largest number of calls in flight for the same keys.
const MAX_CALLS: u32 = 8;
/// A share of the timeout, as a divisor: if a call takes longer, the next one starts in parallel.
const NEXT_AFTER: u64 = 4;
/// A share of the timeout, as a divisor: a request with less time left is not sent.
const TOO_LATE: u64 = 8;

/// What the requests of a batch have in common: the limits (by address), the keys, the costs, and whether charges may be
/// undone.
type BatchKey = SmallVec<[(usize, u64, u64, u64, bool); 2]>;

/// The batches of one worker.
#[derive(Default)]
pub(super) struct Batches(RefCell<HashMap<BatchKey, Batch>>);

/// The calls for some keys, and the requests that wait for the next.
#[derive(Default)]
struct Batch {
    waiting: Vec<Waiter>,
    calls: u32,
    /// When the last call began.
    last: Time,
}

/// A request that waits.
struct Waiter {
    answer: oneshot::Sender<Option<Delivery>>,
    since: Time,
}

/// The calls of one task. When the last is dropped, even by a panic, waiting requests learn that the store does not decide.
struct BatchGuard<'a> {
    batches: &'a Batches,
    batch_key: BatchKey,
}

impl Batches {
    /// Adds a request. Returns whether the caller has to start a task that calls the store.
    fn enqueue(&self, batch_key: &BatchKey, request: Waiter, now: Time, next_after: Span) -> bool {
        let mut batches = self.0.borrow_mut();
        let batch = batches.entry(batch_key.clone()).or_default();
        batch.waiting.push(request);
        batch.begins(now, next_after)
    }

    /// Whether one more task has to start, because waiting requests have waited long.
    fn overdue(&self, batch_key: &BatchKey, now: Time, next_after: Span) -> bool {
        let mut batches = self.0.borrow_mut();
        batches
            .get_mut(batch_key)
            .is_some_and(|batch| !batch.waiting.is_empty() && batch.begins(now, next_after))
    }

    /// Takes the requests of the next call.
    fn next(&self, batch_key: &BatchKey, now: Time) -> Vec<Waiter> {
        let mut batches = self.0.borrow_mut();
        let Some(batch) = batches.get_mut(batch_key) else { return Vec::new() };
        batch.last = now;
        let rest = batch.waiting.split_off(batch.waiting.len().min(MAX_BATCH));
        std::mem::replace(&mut batch.waiting, rest)
    }
}

impl Batch {
    fn begins(&mut self, now: Time, next_after: Span) -> bool {
        let begins = self.calls == 0 || (self.calls < MAX_CALLS && now.since(self.last) >= next_after);
        if begins {
            self.calls += 1;
            self.last = now;
        }
        begins
    }
}

impl Drop for BatchGuard<'_> {
    fn drop(&mut self) {
        let mut batches = self.batches.0.borrow_mut();
        let Some(batch) = batches.get_mut(&self.batch_key) else { return };
        batch.calls -= 1;
        if batch.calls == 0 {
            batches.remove(&self.batch_key); // requests that still wait are decided without the store
        }
    }
}

impl Store {
    /// Lets the store decide; `None` if it cannot in time.
    pub(super) async fn submit(self: &Rc<Self>, items: Items, now: Time) -> Option<Decision> {
        self.reachable(&items, now).await?;
        let batch_key: BatchKey = items
            .iter()
            .map(|item| {
                (
                    Arc::as_ptr(&item.key.limit) as usize,
                    item.key.key.get(),
                    item.cost,
                    item.base,
                    item.for_now,
                )
            })
            .collect();
        let (answer, decision) = oneshot::channel();
        if self.batches.enqueue(
            &batch_key,
            Waiter { answer, since: now },
            self.clock.now(),
            self.share(NEXT_AFTER),
        ) {
            crate::store::spawn_local(Rc::clone(self).run_batch(batch_key, Rc::new(items)));
        }
        decision.await.ok().flatten()?.take()
    }

    /// Waits for the first attempt to connect. `None` if a server that is needed cannot be called.
    async fn reachable(&self, items: &Items, now: Time) -> Option<()> {
        let until = self.clock.instant(now.plus(self.timeout.get()));
        for item in items {
            let connection = match self.servers.single() {
                Some(connection) => Rc::clone(connection),
                None => self.mapped(item.key.tag.slot(), until).await?,
            };
            connection.first_attempt(until).await;
            if !connection.is_up() {
                return None;
            }
        }
        Some(())
    }

    /// A share of the timeout.
    pub(super) fn share(&self, divisor: u64) -> Span {
        Span::from_nanos(self.timeout.get().as_nanos() / divisor)
    }

    /// Calls the store for all waiting requests, and again for those that arrived meanwhile.
    async fn run_batch(self: Rc<Self>, batch_key: BatchKey, items: Rc<Items>) {
        let guard = BatchGuard { batches: &self.batches, batch_key };
        loop {
            let now = self.clock.now();
            let mut requests = self.batches.next(&guard.batch_key, now);
            if requests.is_empty() {
                return;
            }
            requests.retain(|request| !request.answer.is_closed()); // clients that have left are not charged
            let deadline = |request: &Waiter| request.since.plus(self.timeout.get());
            let (requests, late): (Vec<Waiter>, Vec<Waiter>) =
                requests.into_iter().partition(|request| deadline(request) >= now.plus(self.share(TOO_LATE)));
            drop(late); // they are decided without the store
            let Some(until) = requests.iter().map(deadline).min() else { continue };
            let decided = self.decide_batch(&guard.batch_key, &items, requests.len(), until).await;
            let mut decisions = decided.unwrap_or_default().into_iter();
            for request in requests {
                let _ = request.answer.send(decisions.next()); // dropped if the client has gone
            }
        }
    }

    /// Waits for a call. If it takes long, another task starts for the requests that arrived meanwhile.
    async fn decide_batch(
        self: &Rc<Self>,
        batch_key: &BatchKey,
        items: &Rc<Items>,
        requests: usize,
        until: Time,
    ) -> Option<Vec<Delivery>> {
        let next_after = self.share(NEXT_AFTER);
        let mut call = std::pin::pin!(self.ask(items, requests, until));
        loop {
            let long = tokio::time::sleep(next_after.into());
            tokio::select! {
                biased;
                decided = &mut call => return decided,
                () = long => if self.batches.overdue(batch_key, self.clock.now(), next_after) {
                    crate::store::spawn_local(Rc::clone(self).run_batch(batch_key.clone(), Rc::clone(items)));
                },
            }
        }
    }
}
