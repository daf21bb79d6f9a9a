//! Batches of requests for the same keys. While a call for some keys is in flight, further requests for them wait and
//! share the next call, so that a hot key costs one call at a time and not one per request.

use std::rc::Rc;
use std::sync::Arc;

use sluicegate_counters::Decision;
use sluicegate_limiter::{Span, Time};
use tokio::sync::oneshot;

use super::batches::{BatchGuard, BatchKey, Waiter};
use super::item::Items;
use super::store::{Delivery, Store};

/// A share of the timeout, as a divisor: if a call takes longer, the next one starts in parallel.
const NEXT_AFTER: u64 = 4;
/// A share of the timeout, as a divisor: a request with less time left is not sent.
const TOO_LATE: u64 = 8;

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
            let deadline = |request: &Waiter<Delivery>| request.since.plus(self.timeout.get());
            let (requests, late): (Vec<Waiter<_>>, Vec<Waiter<_>>) =
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
