//! What an admitted request gives back: its place when it ends, its position in a queue when it gives up, and what it was
//! charged above its final cost.

use std::sync::Arc;
use std::task::Waker;

use sluicegate_limiter::{Receipt, Time};

use super::ask::Ask;
use super::counters::{Counters, Reservation};
use super::fingerprint::Fingerprint;
use super::limit::{CountedLimit, LateCost};

/// Everything that a request holds. Dropping it frees the places. `R` is what stores count of it.
pub struct Holds<R: RemoteHold + ?Sized = dyn RemoteHold>(Vec<Hold<R>>);

/// One thing that a request holds of one limit.
pub struct Hold<R: RemoteHold + ?Sized = dyn RemoteHold> {
    counters: Arc<Counters>,
    key: Fingerprint,
    cost: u64,
    /// The ticket of a charge that may be refunded.
    charge: Option<u32>,
    reservation: Reservation,
    /// The nanoseconds by which the clock of the counter is ahead of the clock of this process.
    ahead: i64,
    /// Its part in the store that counts the limit.
    remote: Option<Box<R>>,
    /// How its late cost is computed.
    settling: Option<Box<Settling>>,
}

/// The part of a hold that a store counts. Dropping it frees places.
pub trait RemoteHold {
    /// The request gives up its position in a queue: its charge is refunded.
    fn give_up(&self, _cost: u64) {}

    /// Changes a charge from `charged` to `cost`. `ticket` is that of the charge, if it is still known.
    fn settle(&self, _ticket: Option<u32>, _charged: u64, _cost: u64) {}
}

/// Whoever else has to know what a request cost in the end.
pub trait SettledCost: Send {
    /// The cost of the request is known.
    fn settled(&self, cost: u64);
}

/// A late cost.
struct Settling {
    late: LateCost,
    /// The cost of the request itself.
    base: u64,
    /// The cost of the request itself and what the response says, without bytes; `None` until there is one, and for a response without a
    /// cost.
    known: Option<(u64, u64)>,
    /// The number of times that it counts.
    share: u16,
    observer: Option<Box<dyn SettledCost>>,
}

impl<R: RemoteHold + ?Sized> Default for Holds<R> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl Hold {
    /// A charge in a store that may change until the cost of the request is known.
    pub fn charged(
        limit: &CountedLimit,
        key: Fingerprint,
        (cost, base): (u64, u64),
        receipt: Receipt,
        remote: Box<dyn RemoteHold>,
    ) -> Self {
        let charge = limit.counters.remote.open(key, &limit.quota, cost, receipt);
        Self::new(&limit.counters, key, cost, charge, Reservation::Charge)
            .with(remote)
            .settling(limit, base, 1)
    }

    /// Places that a store has admitted; they are counted here too.
    pub fn places(limit: &CountedLimit, key: Fingerprint, places: u64, remote: Box<dyn RemoteHold>) -> Self {
        let key = limit.counters.take(key, places);
        Self::new(&limit.counters, key, places, None, Reservation::Place).with(remote)
    }

    /// Places that are held here already and are to be reported to a store.
    pub fn places_to_report(limit: &CountedLimit, key: Fingerprint, remote: Box<dyn RemoteHold>) -> Self {
        Self::new(&limit.counters, key, 0, None, Reservation::Nothing).with(remote)
    }

    /// A leaky-bucket position that is due at `due`: the queue is local, the charge is in the store.
    pub fn queued(
        limit: &CountedLimit,
        key: Fingerprint,
        cost: u64,
        due: Time,
        remote: Box<dyn RemoteHold>,
    ) -> Self {
        let queued = limit.counters.enter(key, due).map_or(Reservation::Nothing, Reservation::Queued);
        Self::new(&limit.counters, key, cost, None, queued).with(remote)
    }
}

impl<R: RemoteHold + ?Sized> Hold<R> {
    fn new(
        counters: &Arc<Counters>,
        key: Fingerprint,
        cost: u64,
        charge: Option<u32>,
        reservation: Reservation,
    ) -> Self {
        let counters = Arc::clone(counters);
        Self { counters, key, cost, charge, reservation, ahead: 0, remote: None, settling: None }
    }

    /// What a request holds of a limit of this process; `charge` is the ticket of a charge that may be refunded.
    pub(super) fn of(
        ask: &Ask<'_>,
        key: Fingerprint,
        cost: u64,
        charge: Option<u32>,
        reservation: Reservation,
    ) -> Self {
        let [now, at] = [ask.now, ask.at].map(|time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
        let mut hold = Self::new(&ask.limit.counters, key, cost, charge, reservation);
        hold.ahead = at - now;
        hold.settling(ask.limit, ask.base, ask.share)
    }

    fn with(mut self, remote: Box<R>) -> Self {
        self.remote = Some(remote);
        self
    }

    /// Adds the late cost, if the limit has one.
    fn settling(mut self, limit: &CountedLimit, base: u64, share: u16) -> Self {
        if let Some(late) = limit.late_cost() {
            self.settling = Some(Box::new(Settling { late, base, known: None, share, observer: None }));
        }
        self
    }

    /// Charges or gives back the difference between what was charged and what the request costs in the end: nothing,
    /// if there was no response.
    fn settle(&mut self, settling: &Settling, now: Time, (sent, received): (u64, u64)) {
        let cost = settling.known.map_or(0, |(base, said)| {
            let known = base.saturating_add(said);
            let sent = if settling.late.response_bytes { sent } else { 0 };
            let received = if settling.late.request_bytes { received } else { 0 };
            known.saturating_add(sent).saturating_add(received)
        });
        let cost = cost.saturating_mul(u64::from(settling.share));
        settling.observer.iter().for_each(|observer| observer.settled(cost));
        let (more, less) = (cost.saturating_sub(self.cost), self.cost.saturating_sub(cost));
        let charge = self.charge.take();
        if let Some(remote) = &self.remote {
            return remote.settle(charge, self.cost, cost);
        }
        let at = self.at(now);
        if let Some(charge) = charge {
            self.counters.give_back(self.key, at, charge, (less, self.cost));
        }
        if more > 0 {
            self.counters.settle(self.key, at, more);
        }
    }

    /// The time on the clock of the counter at `now`.
    fn at(&self, now: Time) -> Time {
        Time::from_nanos(now.as_nanos().saturating_add_signed(self.ahead))
    }

    /// Removes the request from its queue; those behind it move up.
    fn give_up_queued(&mut self, ticket: u64, now: Time) {
        match (&self.remote, self.charge.take()) {
            (Some(remote), _) => {
                self.counters.give_up_queued(self.key, ticket, self.cost);
                remote.give_up(self.cost);
            }
            (None, Some(charge)) => {
                self.counters.give_up(self.key, ticket, self.at(now), (charge, self.cost));
            }
            (None, None) => self.counters.leave(self.key, ticket),
        }
    }

    /// Ends the charge without a refund.
    fn close(&mut self) {
        let Some(charge) = self.charge.take() else { return };
        match &self.remote {
            Some(_) => _ = self.counters.remote.close(self.key, Time::EPOCH, charge, (0, 1)),
            None => self.counters.close(self.key, charge),
        }
    }
}

impl<R: RemoteHold + ?Sized> Holds<R> {
    /// Adds one.
    pub fn push(&mut self, hold: Hold<R>) {
        self.0.push(hold);
    }

    /// Adds all of another.
    pub fn append(&mut self, mut more: Self) {
        self.0.append(&mut more.0);
    }

    /// Tells what the request cost in the end, if this limit learns it late.
    pub fn tell(&mut self, limit: &CountedLimit, observer: Box<dyn SettledCost>) {
        let is_of = |hold: &&mut Hold<R>| Arc::ptr_eq(&hold.counters, &limit.counters);
        if let Some(settling) = self.0.iter_mut().find(is_of).and_then(|hold| hold.settling.as_mut()) {
            settling.observer = Some(observer);
        }
    }

    /// Whether it holds a place until its end.
    pub fn has_places(&self) -> bool {
        self.0.iter().any(|hold| hold.reservation == Reservation::Place)
    }

    /// The time at which the request is due in all its queues; `None` if it need not wait. It leaves the queues in which it is
    /// due: its charge there is final, even if it still waits elsewhere. `waker` is woken when it is the first of a queue, or
    /// a request before it gives up.
    pub fn due(&mut self, now: Time, waker: &Waker) -> Option<Time> {
        let mut last = None;
        for hold in &mut self.0 {
            let Reservation::Queued(ticket) = hold.reservation else { continue };
            match hold.counters.due(hold.key, ticket, waker).filter(|due| *due > now) {
                Some(due) => last = last.max(Some(due)),
                None => {
                    hold.counters.leave(hold.key, ticket);
                    hold.reservation = Reservation::Nothing;
                    hold.close();
                }
            }
        }
        last
    }

    /// Leaves all queues at `now`, so that those behind move up. Dropping the holds frees places.
    #[inline]
    pub fn give_up(&mut self, now: Time) {
        for hold in &mut self.0 {
            if let Reservation::Queued(ticket) = hold.reservation {
                hold.give_up_queued(ticket, now);
                hold.reservation = Reservation::Nothing;
            }
        }
    }

    /// The request is admitted: its charges are final, except for late costs.
    pub fn keep(&mut self) {
        self.0.retain(|hold| hold.reservation != Reservation::Charge || hold.settling.is_some());
    }

    /// The response has arrived: `cost_of` computes the cost without bytes from the cost of the request itself, and what the head of the
    /// response says besides; `None` if the response has no cost, nor have its bytes then.
    #[inline]
    pub fn answered(&mut self, cost_of: impl Fn(LateCost, u64) -> Option<(u64, u64)>) {
        for settling in self.0.iter_mut().filter_map(|hold| hold.settling.as_mut()) {
            settling.known = cost_of(settling.late, settling.base);
        }
    }

    /// The trailers of the response have arrived: of what they and its head say of its cost, the larger one counts.
    pub fn ended(&mut self, cost_of: impl Fn(LateCost) -> u64) {
        for settling in self.0.iter_mut().filter_map(|hold| hold.settling.as_mut()) {
            if let Some((_, said)) = &mut settling.known {
                *said = cost_of(settling.late).max(*said);
            }
        }
    }

    /// The request has ended, after so many bytes of the response's body were sent and of the request's body received: its
    /// charges are changed to its final cost.
    #[inline]
    pub fn settle(&mut self, now: Time, sent: u64, received: u64) {
        for hold in &mut self.0 {
            if let Some(settling) = hold.settling.take() {
                hold.settle(&settling, now, (sent, received));
            }
        }
    }

    /// The request is refused after all: its charges are refunded.
    pub fn undo(&mut self, now: Time) {
        self.give_up(now);
        for mut hold in self.0.drain(..).filter(|hold| hold.reservation == Reservation::Charge) {
            let observer = hold.settling.as_mut().and_then(|settling| settling.observer.take());
            observer.iter().for_each(|observer| observer.settled(0));
            match (&hold.remote, hold.charge.take()) {
                (Some(remote), charge) => remote.settle(charge, hold.cost, 0),
                (None, Some(charge)) => {
                    let whole = (hold.cost, hold.cost);
                    hold.counters.give_back(hold.key, hold.at(now), charge, whole);
                }
                (None, None) => {}
            }
        }
    }
}

impl<R: RemoteHold + ?Sized> Drop for Hold<R> {
    fn drop(&mut self) {
        match self.reservation {
            Reservation::Place => self.counters.free(self.key, self.cost),
            // A request that gives up has called `give_up`; without the time, its charge cannot be refunded.
            Reservation::Queued(ticket) => self.counters.leave(self.key, ticket),
            Reservation::Nothing | Reservation::Charge => {}
        }
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_limiter::{LeakyBucket, Quota, Rate, Span};

    use super::*;
    use crate::{decide, fixture};

    /// The charge of a request whose turn has come is final: nothing is kept of it for as long as the request lasts.
    #[test]
    fn a_turn_that_has_come_keeps_no_charge() {
        let rate = Rate::new(2, Span::SECOND).expect("a rate");
        let queue = LeakyBucket::new(rate, 4, None).expect("a queue");
        let limit = fixture::limit(Quota::LeakyBucket(queue, rate, 4), 10, 0);
        let (now, key) = (Time::from_nanos(1_795_000_000_000_000_000), Fingerprint::from_hash(1));
        let ask = || decide(&[Ask::new(&limit, key, 1, now)], true).holds;
        let (_first, mut second) = (ask(), ask());
        let open = |holds: &Holds| holds.0.iter().filter(|hold| hold.charge.is_some()).count();
        assert_eq!(open(&second), 1, "it may still be given back");
        assert_eq!(second.due(now.plus(Span::from_millis(500)), Waker::noop()), None);
        assert_eq!(open(&second), 0);
    }
}
