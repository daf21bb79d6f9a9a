//! What an admitted request gives back: its place when it ends, its turn when it gives up, and what it was charged
//! above its final cost.

use std::sync::Arc;
use std::task::Waker;

use sluicegate_limiter::{Receipt, Time};

use super::counters::{Counters, Reservation};
use super::{Ask, CountedLimit, Fingerprint, LateCost};

/// Everything that a request holds. Dropping it frees the places, on every way out.
#[derive(Default)]
pub struct Holds(Vec<Hold>);

/// One thing that a request holds of one limit.
pub struct Hold {
    counters: Arc<Counters>,
    key: Fingerprint,
    cost: u64,
    /// The ticket of a charge that may be given back.
    charge: Option<u32>,
    reservation: Reservation,
    /// Nanoseconds that the clock by which it is counted is ahead of the gateway's.
    ahead: i64,
    /// Its part in a store that counts the limit.
    remote: Option<Box<dyn RemoteHold>>,
    /// How its cost is found once the response is there.
    settling: Option<Box<Settling>>,
}

/// The part of a hold that a store counts. Dropping it frees places.
pub trait RemoteHold {
    /// The request gives up its turn in a queue: what it was charged is given back.
    fn give_up(&self, _cost: u64) {}

    /// Changes a charge from `charged` to `cost`. `ticket` is that of the charge, if it is still known.
    fn settle(&self, _ticket: Option<u32>, _charged: u64, _cost: u64) {}
}

/// A cost that is known late.
struct Settling {
    late: LateCost,
    /// What the request itself costs.
    base: u64,
    /// What the response costs without bytes; `None` until there is one.
    known: Option<u64>,
    /// How many times it counts.
    share: u16,
}

impl Hold {
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

    /// What a request was charged here; `charge` is the ticket of what may be given back.
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

    /// A charge of a store that may change until the cost of the request is known.
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

    /// Places that a store has given, which are counted here too.
    pub fn places(limit: &CountedLimit, key: Fingerprint, places: u64, remote: Box<dyn RemoteHold>) -> Self {
        let key = limit.counters.take(key, places);
        Self::new(&limit.counters, key, places, None, Reservation::Place).with(remote)
    }

    /// Places that are held here already, and that a store is to hear of.
    pub fn places_to_report(limit: &CountedLimit, key: Fingerprint, remote: Box<dyn RemoteHold>) -> Self {
        Self::new(&limit.counters, key, 0, None, Reservation::Nothing).with(remote)
    }

    /// A turn at `due` that a store has given: the queue is here, the charge there.
    pub fn queued(
        limit: &CountedLimit,
        key: Fingerprint,
        cost: u64,
        due: Time,
        remote: Box<dyn RemoteHold>,
    ) -> Self {
        let turn = limit.counters.enter(key, due).map_or(Reservation::Nothing, Reservation::Queued);
        Self::new(&limit.counters, key, cost, None, turn).with(remote)
    }

    fn with(mut self, remote: Box<dyn RemoteHold>) -> Self {
        self.remote = Some(remote);
        self
    }

    /// With a cost that is known late, if the limit's are.
    fn settling(mut self, limit: &CountedLimit, base: u64, share: u16) -> Self {
        if let Some(late) = limit.late_cost() {
            self.settling = Some(Box::new(Settling { late, base, known: None, share }));
        }
        self
    }

    /// Charges or gives back the difference between what was charged and what the request costs in the end: nothing,
    /// if there was no response.
    fn settle(&mut self, settling: &Settling, now: Time, (sent, received): (u64, u64)) {
        let cost = settling.known.map_or(0, |known| {
            let sent = if settling.late.response_bytes { sent } else { 0 };
            let received = if settling.late.request_bytes { received } else { 0 };
            known.saturating_add(sent).saturating_add(received)
        });
        let cost = cost.saturating_mul(u64::from(settling.share));
        let (more, less) = (cost.saturating_sub(self.cost), self.cost.saturating_sub(cost));
        let charge = self.charge.take();
        if let Some(remote) = &self.remote {
            return remote.settle(charge, self.cost, cost);
        }
        let at = self.counted(now);
        if let Some(charge) = charge {
            self.counters.give_back(self.key, at, charge, (less, self.cost));
        }
        if more > 0 {
            self.counters.settle(self.key, at, more);
        }
    }

    /// What the clock by which it is counted shows when the gateway's shows `now`.
    fn counted(&self, now: Time) -> Time {
        Time::from_nanos(now.as_nanos().saturating_add_signed(self.ahead))
    }

    /// Gives the turn to those behind.
    fn give_up_turn(&mut self, ticket: u64, now: Time) {
        match (&self.remote, self.charge.take()) {
            (Some(remote), _) => {
                self.counters.give_up_queued(self.key, ticket, self.cost);
                remote.give_up(self.cost);
            }
            (None, Some(charge)) => {
                self.counters.give_up(self.key, ticket, self.counted(now), (charge, self.cost));
            }
            (None, None) => self.counters.leave(self.key, ticket),
        }
    }

    /// Ends the charge: it is not given back any more.
    fn close(&mut self) {
        let Some(charge) = self.charge.take() else { return };
        match &self.remote {
            Some(_) => _ = self.counters.remote.close(self.key, Time::EPOCH, charge, (0, 1)),
            None => self.counters.close(self.key, charge),
        }
    }
}

impl Holds {
    /// Adds one.
    pub fn push(&mut self, hold: Hold) {
        self.0.push(hold);
    }

    /// Adds all of another.
    pub fn append(&mut self, mut more: Self) {
        self.0.append(&mut more.0);
    }

    /// Whether it holds a place until its end.
    pub fn has_places(&self) -> bool {
        self.0.iter().any(|hold| hold.reservation == Reservation::Place)
    }

    /// When the last of its turns comes, as things are; `None` if it waits for none. It leaves the queues in which
    /// its turn has come: what it was charged there is spent, whether it still waits elsewhere or not. `waker` is
    /// woken when it comes to the front of a queue, or a request before it gives up.
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

    /// Gives up all turns at `now`, so that those behind move up. Places are freed by the drop.
    #[inline]
    pub fn give_up(&mut self, now: Time) {
        for hold in &mut self.0 {
            if let Reservation::Queued(ticket) = hold.reservation {
                hold.give_up_turn(ticket, now);
                hold.reservation = Reservation::Nothing;
            }
        }
    }

    /// The request is admitted after all: what it was charged for the time being is charged.
    pub fn keep(&mut self) {
        self.0.retain(|hold| hold.reservation != Reservation::Charge || hold.settling.is_some());
    }

    /// The response is there: `cost_of` says what it costs without bytes, from what the request itself costs.
    #[inline]
    pub fn answered(&mut self, cost_of: impl Fn(LateCost, u64) -> u64) {
        for settling in self.0.iter_mut().filter_map(|hold| hold.settling.as_mut()) {
            settling.known = Some(cost_of(settling.late, settling.base));
        }
    }

    /// The request has ended, and so many bytes of the response's body were sent and of its own received: what it was
    /// charged becomes what it costs.
    #[inline]
    pub fn settle(&mut self, now: Time, sent: u64, received: u64) {
        for hold in &mut self.0 {
            if let Some(settling) = hold.settling.take() {
                hold.settle(&settling, now, (sent, received));
            }
        }
    }

    /// The request is refused after all: it is charged nothing.
    pub fn undo(&mut self, now: Time) {
        self.give_up(now);
        for mut hold in self.0.drain(..).filter(|hold| hold.reservation == Reservation::Charge) {
            match (&hold.remote, hold.charge.take()) {
                (Some(remote), charge) => remote.settle(charge, hold.cost, 0),
                (None, Some(charge)) => {
                    let whole = (hold.cost, hold.cost);
                    hold.counters.give_back(hold.key, hold.counted(now), charge, whole);
                }
                (None, None) => {}
            }
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        match self.reservation {
            Reservation::Place => self.counters.free(self.key, self.cost),
            // Only without a time to give it back at: whoever waits calls `give_up`.
            Reservation::Queued(ticket) => self.counters.leave(self.key, ticket),
            Reservation::Nothing | Reservation::Charge => {}
        }
        self.close();
    }
}
