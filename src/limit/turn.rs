//! What an admitted request gives back: its place when it ends, its turn when it gives up.

use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use sluicegate_limiter::{Receipt, Time};

use super::counters::{Counters, Taken};
use super::redis::{Item, Lease, NOBODY, Store, Tag};
use super::{Ask, Limit};
use crate::config::DetailedCost;
use crate::keys::Fingerprint;

/// All that a request holds. Dropping it frees the places, on every way out.
#[derive(Default)]
pub struct Holds(Vec<Hold>);

/// One thing that a request holds of one limit.
pub struct Hold {
    counters: Arc<Counters>,
    key: Fingerprint,
    cost: u64,
    /// The ticket of a charge that may be given back.
    charge: Option<u32>,
    taken: Taken,
    /// Nanoseconds that the clock by which it is counted is ahead of the gateway's.
    ahead: i64,
    /// What it holds of a limit that is counted elsewhere.
    elsewhere: Option<Box<Elsewhere>>,
    /// What is still to be known of what it spends.
    settling: Option<Box<Settling>>,
}

/// A cost that is known when the answer is there.
struct Settling {
    limit: Arc<Limit>,
    /// What the request itself costs.
    base: u64,
    /// What the answer costs without bytes; `None` as long as there is none.
    known: Option<u64>,
    /// How often it counts.
    share: u16,
}

/// What a request holds in a shared store.
enum Elsewhere {
    /// Places, which are freed by dropping this.
    Places { _lease: Lease },
    /// A turn, of which the queue is here and the debt there.
    Turn { store: Rc<Store>, limit: Arc<Limit>, tag: Tag, receipt: Receipt },
    /// What is spent there.
    Spent { store: Rc<Store>, limit: Arc<Limit>, tag: Tag, receipt: Receipt },
}

impl Hold {
    fn new(counters: Arc<Counters>, key: Fingerprint, cost: u64, charge: Option<u32>, taken: Taken) -> Self {
        Self { counters, key, cost, charge, taken, ahead: 0, elsewhere: None, settling: None }
    }

    /// What a request was charged here; `charge` is the ticket of what may be given back.
    pub(super) fn of(ask: &Ask<'_>, key: Fingerprint, cost: u64, charge: Option<u32>, taken: Taken) -> Self {
        Self::new(Arc::clone(&ask.limit.counters), key, cost, charge, taken)
            .counted_at(ask.now, ask.at)
            .settling(ask.limit, ask.base, ask.share)
    }

    /// What a shared store has charged until it is known what the request costs.
    pub(super) fn spent(store: Rc<Store>, item: &Item, receipt: Receipt) -> Self {
        let elsewhere = Elsewhere::Spent { store, limit: Arc::clone(&item.limit), tag: item.tag, receipt };
        let counters = Arc::clone(&item.limit.counters);
        let charge = counters.stored.open(item.key, &item.limit.config.quota, item.cost, receipt);
        Self::new(counters, item.key, item.cost, charge, Taken::Spent).with(elsewhere).settling(
            &item.limit,
            item.base,
            1,
        )
    }

    /// With a cost that is only known when the answer is there, if the limit's are.
    fn settling(mut self, limit: &Arc<Limit>, base: u64, share: u16) -> Self {
        if limit.settles().is_some() {
            self.settling = Some(Box::new(Settling { limit: Arc::clone(limit), base, known: None, share }));
        }
        self
    }

    /// Takes or gives back the difference between what was taken and what the request costs in the end: nothing, if
    /// there was no answer.
    fn settle(&mut self, settling: &Settling, now: Time, (sent, received): (u64, u64)) {
        let cost = match (settling.known, settling.limit.settles()) {
            (Some(known), Some(cost)) => {
                let sent = if cost.response_bytes { sent } else { 0 };
                let received = if cost.request_bytes { received } else { 0 };
                known.saturating_add(sent).saturating_add(received)
            }
            _ => 0,
        };
        let cost = cost.saturating_mul(u64::from(settling.share));
        let (more, less) = (cost.saturating_sub(self.cost), self.cost.saturating_sub(cost));
        let charge = self.charge.take();
        match self.elsewhere.as_deref() {
            Some(Elsewhere::Spent { store, limit, tag, receipt }) => {
                store.settle((limit, self.key, *tag), (charge, *receipt), (self.cost, cost));
            }
            Some(_) => {}
            None => {
                let at = self.counted(now);
                if let Some(charge) = charge {
                    self.counters.give_back(self.key, at, charge, (less, self.cost));
                }
                if more > 0 {
                    self.counters.settle(self.key, at, more);
                }
            }
        }
    }

    /// Charged at `now` of the gateway's clock, which was `at` by the clock of whoever counts.
    fn counted_at(mut self, now: Time, at: Time) -> Self {
        let [now, at] = [now, at].map(|time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
        self.ahead = at - now;
        self
    }

    /// What the clock by which it is counted shows when the gateway's shows `now`.
    fn counted(&self, now: Time) -> Time {
        Time::from_nanos(now.as_nanos().saturating_add_signed(self.ahead))
    }

    fn with(mut self, elsewhere: Elsewhere) -> Self {
        self.elsewhere = Some(Box::new(elsewhere));
        self
    }

    /// Places that a shared store has given, which are counted here too.
    pub(super) fn leased(limit: &Arc<Limit>, key: Fingerprint, places: u64, lease: Lease) -> Self {
        let key = limit.counters.take(key, places);
        Self::new(Arc::clone(&limit.counters), key, places, None, Taken::Place)
            .with(Elsewhere::Places { _lease: lease })
    }

    /// Places that a shared store is to hear of; they are held here already.
    pub(super) fn to_lease(limit: &Arc<Limit>, key: Fingerprint, lease: Lease) -> Self {
        Self::new(Arc::clone(&limit.counters), key, 0, None, Taken::Nothing)
            .with(Elsewhere::Places { _lease: lease })
    }

    /// A turn at `due` that a shared store has given.
    pub(super) fn queued(store: Rc<Store>, item: &Item, receipt: Receipt, due: Time) -> Self {
        let counters = Arc::clone(&item.limit.counters);
        let taken = counters.enter(item.key, due).map_or(Taken::Nothing, Taken::Turn);
        let elsewhere = Elsewhere::Turn { store, limit: Arc::clone(&item.limit), tag: item.tag, receipt };
        Self::new(counters, item.key, item.cost, None, taken).with(elsewhere)
    }

    /// Gives the turn to those behind.
    fn give_up_turn(&mut self, ticket: u64, now: Time) {
        let charge = self.charge.take();
        match (self.elsewhere.as_deref(), charge) {
            (Some(Elsewhere::Turn { store, limit, tag, receipt }), _) => {
                self.counters.give_up_turn(self.key, ticket, self.cost);
                store.refund(limit, self.key, *tag, self.cost, (*receipt, NOBODY));
            }
            (_, Some(charge)) => {
                self.counters.give_up(self.key, ticket, self.counted(now), (charge, self.cost));
            }
            (_, None) => self.counters.leave(self.key, ticket),
        }
    }

    /// Ends the charge: it is not given back any more.
    fn close(&mut self) {
        let Some(charge) = self.charge.take() else { return };
        match &self.elsewhere {
            Some(_) => _ = self.counters.stored.close(self.key, Time::EPOCH, charge, (0, 1)),
            None => self.counters.close(self.key, charge),
        }
    }
}

impl Holds {
    pub(super) fn push(&mut self, hold: Hold) {
        self.0.push(hold);
    }

    /// Whether it holds a place until its end.
    pub fn has_places(&self) -> bool {
        self.0.iter().any(|hold| hold.taken == Taken::Place)
    }

    /// When the last of its turns comes, as things are; `None` if it waits for none. It leaves the queues in which
    /// its turn has come: what it took there is spent, whether it still waits elsewhere or not. `waker` is woken
    /// when it comes to the front of a queue, or a request before it gives up.
    pub fn due(&mut self, now: Time, waker: &Waker) -> Option<Time> {
        let mut last = None;
        for hold in &mut self.0 {
            let Taken::Turn(ticket) = hold.taken else { continue };
            match hold.counters.due(hold.key, ticket, waker).filter(|due| *due > now) {
                Some(due) => last = last.max(Some(due)),
                None => {
                    hold.counters.leave(hold.key, ticket);
                    hold.taken = Taken::Nothing;
                    hold.close();
                }
            }
        }
        last
    }

    /// Gives up all turns at `now`, so that those behind move up. Places are freed by the drop.
    pub fn give_up(&mut self, now: Time) {
        for hold in &mut self.0 {
            if let Taken::Turn(ticket) = hold.taken {
                hold.give_up_turn(ticket, now);
                hold.taken = Taken::Nothing;
            }
        }
    }

    pub(super) fn append(&mut self, mut more: Self) {
        self.0.append(&mut more.0);
    }

    /// The request is admitted after all: what it spent is spent.
    pub(super) fn keep(&mut self) {
        self.0.retain(|hold| hold.taken != Taken::Spent || hold.settling.is_some());
    }

    /// The answer is there: `cost_of` says what it costs without bytes, from what the request itself costs.
    pub fn answered(&mut self, cost_of: impl Fn(&DetailedCost, u64) -> u64) {
        for settling in self.0.iter_mut().filter_map(|hold| hold.settling.as_mut()) {
            settling.known = settling.limit.settles().map(|cost| cost_of(cost, settling.base));
        }
    }

    /// The request has ended, and so many bytes of its answer's body were sent and of its own received: what it was
    /// charged is made what it costs.
    pub fn settle(&mut self, now: Time, sent: u64, received: u64) {
        for hold in &mut self.0 {
            if let Some(settling) = hold.settling.take() {
                hold.settle(&settling, now, (sent, received));
            }
        }
    }

    /// The request is refused after all: it has spent nothing.
    pub fn undo(&mut self, now: Time) {
        self.give_up(now);
        for mut hold in self.0.drain(..).filter(|hold| hold.taken == Taken::Spent) {
            let charge = hold.charge.take();
            match (hold.elsewhere.as_deref(), charge) {
                (Some(Elsewhere::Spent { store, limit, tag, receipt }), charge) => {
                    store.settle((limit, hold.key, *tag), (charge, *receipt), (hold.cost, 0));
                }
                (_, Some(charge)) => {
                    let whole = (hold.cost, hold.cost);
                    hold.counters.give_back(hold.key, hold.counted(now), charge, whole);
                }
                (_, None) => {}
            }
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        match self.taken {
            Taken::Place => self.counters.free(self.key, self.cost),
            // Only without a time to give it back at: whoever waits calls `give_up`.
            Taken::Turn(ticket) => self.counters.leave(self.key, ticket),
            Taken::Nothing | Taken::Spent => {}
        }
        self.close();
    }
}
