//! Requests on their way to the store. While a call for some keys is under way, requests for the same keys wait and
//! ride in the next one, so that a hot key costs one call at a time and not one a request.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use sluicegate_counters::Decision;
use sluicegate_limiter::{Span, Time};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::call::Items;
use super::store::Store;

/// Requests that one call takes along.
const MAX_RIDERS: usize = 256;
/// Calls that may be under way for the same keys at once.
const MAX_CALLS: u32 = 8;
/// A share of the timeout, as a divisor: a call that takes longer is not waited for by the next.
const PATIENCE: u64 = 4;
/// A share of the timeout, as a divisor: who has less than that left is not taken along.
const TOO_LATE: u64 = 8;

/// What requests must have in common to ride together: the limits, by their place in memory, the keys, the costs, and
/// whether it is for now.
type Bound = SmallVec<[(usize, u64, u64, u64, bool); 2]>;

/// What is under way, by what it is about.
#[derive(Default)]
pub(super) struct Flights(RefCell<HashMap<Bound, Flight>>);

/// The calls for some keys, and who waits for the next.
#[derive(Default)]
struct Flight {
    waiting: Vec<Rider>,
    calls: u32,
    /// When the last call began.
    last: Time,
}

/// A request that waits.
struct Rider {
    answer: oneshot::Sender<Option<Decision>>,
    since: Time,
}

/// Calls of one task. Dropping it, however that comes, leaves nobody waiting for ever.
struct Pilot<'a> {
    flights: &'a Flights,
    bound: Bound,
}

impl Flights {
    /// Takes a rider; whether a task has to begin that calls.
    fn board(&self, bound: &Bound, rider: Rider, now: Time, patience: Span) -> bool {
        let mut flights = self.0.borrow_mut();
        let flight = flights.entry(bound.clone()).or_default();
        flight.waiting.push(rider);
        flight.begins(now, patience)
    }

    /// Whether one more task has to begin, because those who wait have waited long.
    fn overdue(&self, bound: &Bound, now: Time, patience: Span) -> bool {
        let mut flights = self.0.borrow_mut();
        flights
            .get_mut(bound)
            .is_some_and(|flight| !flight.waiting.is_empty() && flight.begins(now, patience))
    }

    /// Those who ride in the next call.
    fn next(&self, bound: &Bound, now: Time) -> Vec<Rider> {
        let mut flights = self.0.borrow_mut();
        let Some(flight) = flights.get_mut(bound) else { return Vec::new() };
        flight.last = now;
        let rest = flight.waiting.split_off(flight.waiting.len().min(MAX_RIDERS));
        std::mem::replace(&mut flight.waiting, rest)
    }
}

impl Flight {
    fn begins(&mut self, now: Time, patience: Span) -> bool {
        let begins = self.calls == 0 || (self.calls < MAX_CALLS && now.since(self.last) >= patience);
        if begins {
            self.calls += 1;
            self.last = now;
        }
        begins
    }
}

impl Drop for Pilot<'_> {
    fn drop(&mut self) {
        let mut flights = self.flights.0.borrow_mut();
        let Some(flight) = flights.get_mut(&self.bound) else { return };
        flight.calls -= 1;
        if flight.calls == 0 {
            flights.remove(&self.bound); // whoever still waits is told by that, and decides without the store
        }
    }
}

impl Store {
    /// Has the store decide, or `None` if it cannot in time.
    pub(super) async fn ride(self: &Rc<Self>, items: Items, now: Time) -> Option<Decision> {
        self.reachable(&items, now).await?;
        let bound: Bound = items
            .iter()
            .map(|item| {
                (Arc::as_ptr(&item.limit) as usize, item.key.get(), item.cost, item.base, item.for_now)
            })
            .collect();
        let (answer, decided) = oneshot::channel();
        if self.flights.board(&bound, Rider { answer, since: now }, self.clock.now(), self.share(PATIENCE)) {
            tokio::task::spawn_local(Rc::clone(self).fly(bound, Rc::new(items)));
        }
        decided.await.ok().flatten()
    }

    /// Whether all servers that are needed can be asked. At the very start, waits for the first word of them.
    async fn reachable(&self, items: &Items, now: Time) -> Option<()> {
        let until = self.clock.instant(now.plus(self.timeout.get()));
        for item in items {
            let link = match self.servers.only() {
                Some(link) => Rc::clone(link),
                None => self.mapped(item.tag.slot(), until).await?,
            };
            link.known(until).await;
            if !link.is_up() {
                return None;
            }
        }
        Some(())
    }

    /// A share of the timeout.
    pub(super) fn share(&self, divisor: u64) -> Span {
        Span::from_nanos(self.timeout.get().as_nanos() / divisor)
    }

    /// Calls the store for all that ride together, and again for those that came meanwhile.
    async fn fly(self: Rc<Self>, bound: Bound, items: Rc<Items>) {
        let pilot = Pilot { flights: &self.flights, bound };
        loop {
            let now = self.clock.now();
            let riders = self.flights.next(&pilot.bound, now);
            if riders.is_empty() {
                return;
            }
            let deadline = |rider: &Rider| rider.since.plus(self.timeout.get());
            let (riders, late): (Vec<Rider>, Vec<Rider>) =
                riders.into_iter().partition(|rider| deadline(rider) >= now.plus(self.share(TOO_LATE)));
            drop(late); // which tells them
            let Some(until) = riders.iter().map(deadline).min() else { continue };
            let decided = self.asked(&pilot.bound, &items, riders.len(), until).await;
            let mut decisions = decided.unwrap_or_default().into_iter();
            for rider in riders {
                if let Err(Some(mut unheard)) = rider.answer.send(decisions.next()) {
                    unheard.holds.give_up(self.clock.now()); // the client has left
                }
            }
        }
    }

    /// Waits for a call. If that takes long, those who came meanwhile are not made to wait for it.
    async fn asked(
        self: &Rc<Self>,
        bound: &Bound,
        items: &Rc<Items>,
        riders: usize,
        until: Time,
    ) -> Option<Vec<Decision>> {
        let patience = self.share(PATIENCE);
        let mut asking = std::pin::pin!(self.ask(items, riders, until));
        loop {
            let long = tokio::time::sleep(std::time::Duration::from_nanos(patience.as_nanos()));
            tokio::select! {
                biased;
                decided = &mut asking => return decided,
                () = long => if self.flights.overdue(bound, self.clock.now(), patience) {
                    tokio::task::spawn_local(Rc::clone(self).fly(bound.clone(), Rc::clone(items)));
                },
            }
        }
    }
}
