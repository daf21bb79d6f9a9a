//! Requests on their way to the store. While a call for some keys is under way, requests for the same keys wait and
//! ride in the next one, so that a hot key costs one call at a time and not one a request.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use redis::{Cmd, RedisError, Value};
use sluicegate_limiter::{Receipt, Span, Time};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::lease::Lease;
use super::link::{Link, Pending, Trouble};
use super::name::Tag;
use super::outcome::{Charge, Outcome};
use super::scripts::SCRIPTS;
use super::tend::LEASE;
use super::wire::{self, Algorithms, Reply};
use super::{Servers, Store};
use crate::key::Fingerprint;
use crate::limit::turn::Hold;
use crate::limit::{Ask, Decision, Holds, Limit, Verdict};
use crate::observe::Operation;

/// Requests that one call takes along.
const MAX_RIDERS: usize = 256;
/// How long a call may take that nobody waits for.
pub(super) const UNHURRIED: Span = Span::SECOND;
/// A share of the timeout, as a divisor, that is left for the way back: what the store decides later than that is
/// not decided at all.
const WAY_BACK: u64 = 10;

/// One limit of a request.
#[derive(Clone)]
pub(in crate::limit) struct Item {
    pub(in crate::limit) limit: Arc<Limit>,
    pub(in crate::limit) key: Fingerprint,
    pub(in crate::limit) tag: Tag,
    pub(in crate::limit) cost: u64,
}

/// The shared limits of a request.
pub(super) type Items = SmallVec<[Item; 2]>;

/// What requests must have in common to ride together: the limits, by their place in memory, the keys, the costs.
type Bound = SmallVec<[(usize, u64, u64); 2]>;

/// What is under way, with who waits for the next call.
#[derive(Default)]
pub(super) struct Flights(RefCell<HashMap<Bound, Vec<Rider>>>);

/// A request that waits.
struct Rider {
    answer: oneshot::Sender<Option<Decision>>,
    since: Time,
}

impl Flights {
    /// Takes a rider; whether there is a flight already that takes it along.
    fn joined(&self, bound: &Bound, rider: Rider) -> bool {
        let mut flights = self.0.borrow_mut();
        match flights.get_mut(bound) {
            Some(waiting) => waiting.push(rider),
            None => {
                flights.insert(bound.clone(), vec![rider]);
                return false;
            }
        }
        true
    }

    /// Those who ride in the next call. If nobody waits, the flight has ended.
    fn next(&self, bound: &Bound) -> Vec<Rider> {
        let mut flights = self.0.borrow_mut();
        let Some(waiting) = flights.get_mut(bound) else { return Vec::new() };
        if waiting.is_empty() {
            flights.remove(bound);
            return Vec::new();
        }
        let rest = waiting.split_off(waiting.len().min(MAX_RIDERS));
        std::mem::replace(waiting, rest)
    }
}

impl Item {
    pub(super) fn of(ask: &Ask<'_>) -> Self {
        Self { limit: Arc::clone(ask.limit), key: ask.key, tag: Tag::of(&ask.text), cost: ask.cost }
    }

    /// What the key is called in the store.
    fn name(&self) -> Vec<u8> {
        self.tag.name(&self.limit.names)
    }

    /// What the script is told of the limit.
    fn argument(&self) -> Cow<'_, [u8]> {
        match &self.limit.argument {
            Some(argument) => Cow::Borrowed(argument),
            None => Cow::Owned(wire::argument(&self.limit.config.quota, self.limit.enforces(), self.cost)),
        }
    }
}

impl Store {
    /// Has the store decide, or `None` if it cannot in time.
    pub(super) async fn ride(self: &Rc<Self>, items: Items, now: Time) -> Option<Decision> {
        self.reachable(&items, now).await?;
        let bound: Bound =
            items.iter().map(|item| (Arc::as_ptr(&item.limit) as usize, item.key.get(), item.cost)).collect();
        let (answer, decided) = oneshot::channel();
        if !self.flights.joined(&bound, Rider { answer, since: now }) {
            tokio::task::spawn_local(Rc::clone(self).fly(bound, items));
        }
        decided.await.ok().flatten()
    }

    /// Whether all servers that are needed can be asked. At the very start, waits for the first word of them.
    async fn reachable(&self, items: &Items, now: Time) -> Option<()> {
        let until = self.clock.instant(now.plus(self.timeout));
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

    /// Calls the store for all that ride together, and again for those that came meanwhile.
    async fn fly(self: Rc<Self>, bound: Bound, items: Items) {
        loop {
            let riders = self.flights.next(&bound);
            if riders.is_empty() {
                return;
            }
            let since = riders.iter().map(|rider| rider.since).min().unwrap_or(Time::EPOCH);
            let decided = self.ask(&items, riders.len(), since.plus(self.timeout)).await;
            let mut decisions = decided.unwrap_or_default().into_iter();
            for rider in riders {
                if let Err(Some(mut unheard)) = rider.answer.send(decisions.next()) {
                    unheard.holds.give_up(self.clock.now()); // the client has left
                }
            }
        }
    }

    /// Has the store decide about so many equal requests: one call, or in a cluster one after the other for each
    /// slot, and back with what a later one refuses.
    async fn ask(self: &Rc<Self>, items: &Items, riders: usize, until: Time) -> Option<Vec<Decision>> {
        let mut outcomes: SmallVec<[Outcome; 1]> = SmallVec::new();
        let mut admitted = riders;
        for stop in self.stops(items) {
            match self.call(items, stop, admitted, until).await {
                Some(outcome) => {
                    admitted = outcome.admitted();
                    outcomes.push(outcome);
                }
                None => {
                    outcomes.iter().for_each(|outcome| self.take_back(items, outcome, 0));
                    return None;
                }
            }
            if admitted == 0 {
                break;
            }
        }
        for outcome in &outcomes {
            self.take_back(items, outcome, admitted);
        }
        Some((0..riders).map(|rider| self.decision(items, &mut outcomes, rider, rider < admitted)).collect())
    }

    /// The limits of each call, in the order in which they are asked.
    fn stops(&self, items: &Items) -> SmallVec<[SmallVec<[usize; 2]>; 1]> {
        if let Servers::One(_) = self.servers {
            return SmallVec::from_iter([(0..items.len()).collect()]);
        }
        let mut stops: SmallVec<[SmallVec<[usize; 2]>; 1]> = SmallVec::new();
        for (at, item) in items.iter().enumerate() {
            match stops.iter_mut().find(|stop| items[stop[0]].tag.slot() == item.tag.slot()) {
                Some(stop) => stop.push(at),
                None => stops.push(SmallVec::from_iter([at])),
            }
        }
        stops
    }

    /// One call.
    async fn call(
        self: &Rc<Self>,
        items: &Items,
        stop: SmallVec<[usize; 2]>,
        riders: usize,
        until: Time,
    ) -> Option<Outcome> {
        let slot = self.slot(items[stop[0]].tag);
        let link = self.servers.of(slot)?;
        let sent = self.clock.now();
        let result =
            self.send(&link, slot, until, |link| self.question(items, &stop, riders, until, link)).await;
        let received = self.clock.now();
        let finish = |operation| self.stripe.finish(operation, received.since(sent));
        match result {
            Ok((link, value)) => match self.read(items, &stop, riders, value) {
                Ok((now, Some(outcome))) => {
                    finish(Operation::Ok);
                    link.clock.seen(now, sent, received);
                    self.learn(items, &outcome);
                    Some(outcome)
                }
                Ok((now, None)) => {
                    finish(Operation::Expired);
                    link.clock.seen(now, sent, received); // perhaps it was only that clock
                    None
                }
                Err(wire::Malformed(_)) => {
                    finish(Operation::Error);
                    None
                }
            },
            Err(Trouble::Late(pending)) => {
                finish(Operation::Timeout);
                let items = items.clone();
                tokio::task::spawn_local(Rc::clone(self).late(items, stop, riders, pending));
                None
            }
            Err(_) => {
                finish(Operation::Error);
                None
            }
        }
    }

    /// Sends what `question` says, once more where the server lacked its scripts or the slot has moved.
    pub(super) async fn send(
        self: &Rc<Self>,
        link: &Rc<Link>,
        slot: u16,
        until: Time,
        question: impl Fn(&Link) -> Cmd,
    ) -> Result<(Rc<Link>, Value), Trouble> {
        let first = link.call(question(link), until, &self.clock).await;
        let (link, second) = match first {
            Err(Trouble::NoScript) => {
                link.reload(until, &self.clock).await;
                (Rc::clone(link), link.call(question(link), until, &self.clock).await)
            }
            Err(Trouble::Moved(error)) => self.follow(slot, &error, until, &question).await?,
            answer => (Rc::clone(link), answer),
        };
        second.map(|value| (link, value))
    }

    /// Asks the server that the cluster names instead.
    async fn follow(
        self: &Rc<Self>,
        slot: u16,
        error: &RedisError,
        until: Time,
        question: impl Fn(&Link) -> Cmd,
    ) -> Result<(Rc<Link>, Result<Value, Trouble>), Trouble> {
        let link = self.redirected(slot, error).ok_or(Trouble::Failed)?;
        link.known(self.clock.instant(until)).await;
        let asking = error.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::Ask);
        let send = async |link: &Rc<Link>| match asking {
            true => link.call_asking(question(link), until, &self.clock).await,
            false => link.call(question(link), until, &self.clock).await,
        };
        let mut answer = send(&link).await;
        if let Err(Trouble::NoScript) = answer {
            link.reload(until, &self.clock).await;
            answer = send(&link).await;
        }
        Ok((link, answer))
    }

    /// The script's call for these limits.
    fn question(&self, items: &Items, stop: &[usize], riders: usize, until: Time, link: &Link) -> Cmd {
        let names: SmallVec<[Vec<u8>; 2]> = stop.iter().map(|at| items[*at].name()).collect();
        let algorithms = Algorithms::of(stop.iter().map(|at| &items[*at].limit.config.quota));
        let mut call = SCRIPTS.decide(algorithms).call(names.iter().map(Vec::as_slice));
        let margin = self.timeout.as_nanos() / WAY_BACK;
        let deadline = link.clock.at_least(until).as_nanos().saturating_sub(margin) / 1000;
        call.arg(deadline).arg(riders).arg(&link.holder()).arg(LEASE.as_micros() as u64);
        for at in stop {
            call.arg(&*items[*at].argument());
        }
        call
    }

    /// What an answer says, and the server's time: no outcome if the call came too late and changed nothing.
    fn read(
        &self,
        items: &Items,
        stop: &SmallVec<[usize; 2]>,
        riders: usize,
        value: Value,
    ) -> Result<(Time, Option<Outcome>), wire::Malformed> {
        let quotas: SmallVec<[_; 2]> = stop.iter().map(|at| &items[*at].limit.config.quota).collect();
        match Reply::read(&value, &quotas)? {
            Reply::Expired { now } => Ok((now, None)),
            Reply::Decided { now, admitted, keys } => {
                let outcome = Outcome::new(items, stop.clone(), keys, riders, now);
                debug_assert_eq!(outcome.admitted(), admitted as usize, "the script and the core disagree");
                Ok((now, Some(outcome)))
            }
        }
    }

    /// An answer that came when nobody waited any more: what it charged is given back.
    async fn late(self: Rc<Self>, items: Items, stop: SmallVec<[usize; 2]>, riders: usize, pending: Pending) {
        let Ok(value) = pending.await else { return };
        if let Ok((_, Some(outcome))) = self.read(&items, &stop, riders, value) {
            self.take_back(&items, &outcome, 0);
        }
    }

    /// Keeps in the limits' tables what the store has told.
    fn learn(&self, items: &Items, outcome: &Outcome) {
        for (at, state) in outcome.items.iter().zip(&outcome.left) {
            items[*at].limit.counters.learn(items[*at].key, state, outcome.now);
        }
    }

    /// Gives back what the requests from `first` on were charged.
    fn take_back(self: &Rc<Self>, items: &Items, outcome: &Outcome, first: usize) {
        for (item, cost, receipt) in outcome.charged_from(items, first) {
            let Item { limit, key, tag, .. } = &items[item];
            self.refund(limit, *key, *tag, cost, receipt);
        }
    }

    /// The decision about one request, with what it holds.
    fn decision(
        self: &Rc<Self>,
        items: &Items,
        outcomes: &mut [Outcome],
        rider: usize,
        admitted: bool,
    ) -> Decision {
        let mut whole = Decision { admitted, ..Decision::default() };
        if let [only] = outcomes {
            whole.verdicts = std::mem::take(&mut only.decisions[rider].verdicts);
            whole.delay = only.decisions[rider].delay;
        } else {
            whole.verdicts = items.iter().map(|item| Verdict::fresh(&item.limit)).collect();
            for outcome in outcomes.iter() {
                let Some(decision) = outcome.decisions.get(rider) else { continue };
                for (at, verdict) in outcome.items.iter().zip(&decision.verdicts) {
                    whole.verdicts[*at] = *verdict;
                }
                whole.delay = whole.delay.max(decision.delay);
            }
        }
        if admitted {
            whole.holds = self.holds(items, outcomes, rider);
        } else {
            whole.delay = Span::ZERO;
        }
        whole
    }

    /// What a request that was admitted holds: places, and turns in queues.
    fn holds(self: &Rc<Self>, items: &Items, outcomes: &[Outcome], rider: usize) -> Holds {
        let mut holds = Holds::default();
        let charges = outcomes.iter().flat_map(|outcome| &outcome.charges);
        for Charge { item, delay, receipt, .. } in charges.filter(|charge| charge.rider == rider) {
            let item = &items[*item];
            if item.limit.config.quota.is_concurrency() {
                let lease = self.lease(&item.limit, item.key, item.tag, item.cost, true);
                holds.push(Hold::leased(&item.limit, item.key, item.cost, lease));
            } else if item.limit.enforces() && !delay.is_zero() {
                let due = self.clock.now().plus(*delay);
                holds.push(Hold::queued(Rc::clone(self), item, *receipt, due));
            }
        }
        holds
    }

    /// Places for a request that was admitted. `known`: the store knows of them.
    pub(super) fn lease(
        self: &Rc<Self>,
        limit: &Arc<Limit>,
        key: Fingerprint,
        tag: Tag,
        places: u64,
        known: bool,
    ) -> Lease {
        Lease::new(Rc::clone(self), Arc::clone(limit), key, tag, places, known)
    }

    /// Gives back to a key of the store what was charged and is not used. Nobody waits for it.
    pub(in crate::limit) fn refund(
        self: &Rc<Self>,
        limit: &Arc<Limit>,
        key: Fingerprint,
        tag: Tag,
        cost: u64,
        receipt: Receipt,
    ) {
        let (store, limit) = (Rc::clone(self), Arc::clone(limit));
        tokio::task::spawn_local(async move {
            let Some(link) = store.servers.of(store.slot(tag)) else { return };
            let until = store.clock.now().plus(UNHURRIED);
            let quota = limit.config.quota;
            let question = |link: &Link| {
                let name = tag.name(&limit.names);
                let mut call = SCRIPTS.refund.call([name.as_slice()].into_iter());
                call.arg(&link.holder()).arg(wire::refund_argument(&quota, cost, receipt));
                call
            };
            let Ok((_, value)) = store.send(&link, store.slot(tag), until, question).await else { return };
            if let Ok(told) = wire::Told::read(&value, &[&quota]) {
                told.keys.iter().for_each(|state| limit.counters.learn(key, state, told.now));
            }
        });
    }
}
