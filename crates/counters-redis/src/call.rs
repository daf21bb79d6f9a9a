//! One call of the script, there and back.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use redis::{Cmd, Value};
use sluicegate_counters::{Ask, CountedLimit, Decision, Hold, Holds, KeyState, Verdict};
use sluicegate_limiter::{Span, Time};
use smallvec::SmallVec;

use super::cluster::Servers;
use super::connection::{CallClass, CallError, Connection, Pending};
use super::corrections::{ChargeInStore, QueuedCharge};
use super::evaluation::{self, Outcome};
use super::key_name::StoreKey;
use super::lease::Lease;
use super::lease_renewal::LEASE;
use super::metrics::Operation;
use super::protocol::{self, Algorithms, Decided, Reply};
use super::scripts::SCRIPTS;
use super::store::Store;

/// The timeout of a call that no request waits for.
pub(super) const BACKGROUND_TIMEOUT: Span = Span::SECOND;
/// The holder of charges that are not leases.
pub(super) const NOBODY: [u8; 8] = [0; 8];
/// A share of the timeout, as a divisor, that is reserved for the response: the script does nothing behind the deadline
/// that is left.
const WAY_BACK: u64 = 10;

/// One limit of a request.
#[derive(Clone)]
pub(super) struct Item {
    pub(super) key: StoreKey,
    pub(super) cost: u64,
    pub(super) base: u64,
    /// Whether the charge is kept in the holds, so that it can be undone.
    pub(super) for_now: bool,
}

/// The shared limits of a request.
pub(super) type Items = SmallVec<[Item; 2]>;

impl Item {
    pub(super) fn of(ask: &Ask<'_>) -> Self {
        Self { key: StoreKey::of(ask), cost: ask.cost, base: ask.base, for_now: ask.for_now }
    }

    fn limit(&self) -> &Arc<CountedLimit> {
        &self.key.limit
    }

    /// What the script is told of the limit.
    fn argument(&self) -> Cow<'_, [u8]> {
        match self.limit().shared.as_ref().and_then(|shared| shared.argument.as_ref()) {
            Some(argument) => Cow::Borrowed(argument),
            None => Cow::Owned(protocol::limit_argument(self.limit(), self.cost)),
        }
    }
}

impl Store {
    /// Has the store decide about `requests` equal requests: in one call, or in a cluster one call for each slot in turn,
    /// whose charges are given back if a later one refuses.
    pub(super) async fn ask(
        self: &Rc<Self>,
        items: &Items,
        requests: usize,
        until: Time,
    ) -> Option<Vec<Decision>> {
        let mut outcomes: SmallVec<[Outcome; 1]> = SmallVec::new();
        let mut admitted = requests;
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
        Some(
            (0..requests)
                .map(|request| self.decision(items, &mut outcomes, request, request < admitted))
                .collect(),
        )
    }

    /// The limits of each call, in the order in which they are asked.
    fn stops(&self, items: &Items) -> SmallVec<[SmallVec<[usize; 2]>; 1]> {
        if let Servers::One(_) = self.servers {
            return SmallVec::from_iter([(0..items.len()).collect()]);
        }
        let mut stops: SmallVec<[SmallVec<[usize; 2]>; 1]> = SmallVec::new();
        for (at, item) in items.iter().enumerate() {
            match stops.iter_mut().find(|stop| items[stop[0]].key.tag.slot() == item.key.tag.slot()) {
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
        requests: usize,
        until: Time,
    ) -> Option<Outcome> {
        let slot = self.slot(items[stop[0]].key.tag);
        let connection = self.servers.of(slot)?;
        let costs = stop.iter().map(|at| &items[*at]);
        let costs = costs.map(|item| (&item.key, item.cost.saturating_mul(requests as u64)));
        // A call that is late is not under way any more: the script does nothing behind its deadline.
        let in_flight = self.state.in_flight.begin(costs);
        self.report_first(&connection, items, &stop, until).await?;
        let sent = self.clock.now();
        // Whom the script then takes for the holder of places, in case that they are to be given back.
        let holder = Cell::new(connection.holder());
        let question = |connection: &Connection| {
            holder.set(connection.holder());
            self.question(items, &stop, requests, until, connection)
        };
        // A call that had only the rest of somebody's time says little about the server when it is late.
        let whole = until.since(sent) >= self.share(2);
        let class = if whole { CallClass::Full } else { CallClass::Short };
        let result = self.send(&connection, slot, until, class, question).await;
        drop(in_flight);
        let received = self.clock.now();
        let finish = |operation| self.metrics.finish(operation, received.since(sent));
        match result {
            Ok((connection, value)) => match self.read(items, &stop, requests, holder.get(), value) {
                Ok((now, Some(outcome))) => {
                    finish(Operation::Ok);
                    self.state.seen(&connection.clock, now, sent, received);
                    self.learn(items, &outcome, sent, connection.clock.is_latest(now));
                    Some(outcome)
                }
                Ok((now, None)) => {
                    finish(Operation::Expired);
                    self.state.seen(&connection.clock, now, sent, received); // perhaps it was only that clock
                    None
                }
                Err(malformed) => {
                    finish(Operation::Error);
                    connection.malformed(&malformed, sent, received);
                    None
                }
            },
            Err(CallError::Late(pending)) => {
                tracing::debug!(server = connection.name, requests, ?class, "store call timed out");
                finish(Operation::Timeout);
                let call = (items.clone(), stop, requests, holder.get());
                crate::store::spawn_local(Rc::clone(self).late(call, pending));
                None
            }
            Err(_) => {
                finish(Operation::Error);
                None
            }
        }
    }

    /// Reports to the store what these keys were charged without it, before it decides about them again.
    async fn report_first(
        &self,
        connection: &Rc<Connection>,
        items: &Items,
        stop: &[usize],
        until: Time,
    ) -> Option<()> {
        let unreported = &self.state.unreported;
        if !stop.iter().any(|at| {
            let key = &items[*at].key;
            unreported.has(&key.limit, key.key)
        }) {
            return Some(());
        }
        let asked = |key: &StoreKey| stop.iter().any(|at| items[*at].key.id() == key.id());
        let channel = connection.ready().ok().filter(|_| !connection.is_silent())?;
        let report = self.report(connection, &channel, asked);
        let heard = tokio::time::timeout_at(self.clock.instant(until), report).await;
        heard.ok().flatten().map(|_| ())
    }

    /// The script's call for these limits.
    fn question(
        &self,
        items: &Items,
        stop: &[usize],
        requests: usize,
        until: Time,
        connection: &Connection,
    ) -> Cmd {
        let all = || stop.iter().map(|at| &items[*at]);
        let bans = all().filter_map(|item| item.key.ban_name());
        let names: SmallVec<[Vec<u8>; 2]> = all().map(|item| item.key.name()).chain(bans).collect();
        let algorithms = Algorithms::of(all().map(|item| &item.limit().quota));
        let mut call = SCRIPTS.decide(algorithms).call(names.iter().map(Vec::as_slice));
        let margin = self.share(WAY_BACK).as_nanos();
        let deadline = connection.clock.at_least(until).as_nanos().saturating_sub(margin) / 1000;
        call.arg(deadline).arg(requests).arg(&connection.holder()).arg(LEASE.as_micros() as u64);
        for at in stop {
            let (argument, quota) = (items[*at].argument(), &items[*at].limit().quota);
            call.arg(&*protocol::at(argument, quota, || connection.clock.at_least(self.clock.now())));
        }
        call
    }

    /// What an answer says, and the server's time: no outcome if the call came too late and changed nothing.
    fn read(
        &self,
        items: &Items,
        stop: &SmallVec<[usize; 2]>,
        requests: usize,
        holder: [u8; 8],
        value: Value,
    ) -> Result<(Time, Option<Outcome>), protocol::Malformed> {
        let quotas: SmallVec<[_; 2]> = stop.iter().map(|at| &items[*at].limit().quota).collect();
        let bans: SmallVec<[_; 2]> = stop.iter().filter_map(|at| items[*at].limit().ban).collect();
        let Reply { now, decided } = Reply::read(&value, &quotas, &bans)?;
        let Some(Decided { admitted, keys, bans }) = decided else { return Ok((now, None)) };
        let requests = (requests, admitted as usize);
        let outcome = Outcome::new(items, stop.clone(), (keys, bans), requests, holder, now);
        if let Some(disagreement) = outcome.disagreement {
            self.metrics.disagrees();
            self.state.tell_disagreement(disagreement, self.clock.now());
        }
        Ok((now, Some(outcome)))
    }

    /// Gives back what a late answer charged: no request waits for it any more.
    async fn late(self: Rc<Self>, call: (Items, SmallVec<[usize; 2]>, usize, [u8; 8]), pending: Pending) {
        let (items, stop, requests, holder) = call;
        let Ok(value) = pending.await else { return };
        if let Ok((_, Some(outcome))) = self.read(&items, &stop, requests, holder, value) {
            self.take_back(&items, &outcome, 0);
        }
    }

    /// Keeps the states that the store returned in the limits' tables. A ban is counted from the sending of the call, so that
    /// it is never remembered for longer than it lasts. If another thread has read a later answer already, only a stricter
    /// state is kept.
    fn learn(&self, items: &Items, outcome: &Outcome, sent: Time, latest: bool) {
        for (at, state) in outcome.items.iter().zip(&outcome.left) {
            let StoreKey { limit, key, .. } = &items[*at].key;
            // What was spent without the store, and it has not heard of yet, must not be forgotten here.
            let known = || limit.counters.usage(*key, outcome.now).map(|known| known.remaining);
            let newer = latest || known().is_none_or(|known| state.usage(outcome.now).remaining < known);
            if newer && !self.state.unreported.has(limit, *key) {
                limit.counters.learn(*key, state, outcome.now);
            }
        }
        for (item, told) in &outcome.bans {
            let StoreKey { limit, key, .. } = &items[*item].key;
            if let (Some(bans), Some(left)) = (&limit.bans, told.ban.left(&told.strikes, outcome.now)) {
                bans.learn(*key, sent.plus(left), told.begun, sent);
            }
        }
    }

    /// Gives back what the requests from `first` on were charged.
    fn take_back(self: &Rc<Self>, items: &Items, outcome: &Outcome, first: usize) {
        for (item, cost, receipt) in outcome.charged_from(items, first) {
            self.refund(&items[item].key, cost, (receipt, outcome.holder));
        }
    }

    /// The decision about one request, with what it holds.
    fn decision(
        self: &Rc<Self>,
        items: &Items,
        outcomes: &mut [Outcome],
        request: usize,
        admitted: bool,
    ) -> Decision {
        let mut whole = Decision { admitted, ..Decision::default() };
        if let [only] = outcomes {
            whole.verdicts = std::mem::take(&mut only.decisions[request].verdicts);
            whole.delay = only.decisions[request].delay;
        } else {
            whole.verdicts = items.iter().map(|item| Verdict::fresh(item.limit())).collect();
            for outcome in outcomes.iter() {
                let Some(decision) = outcome.decisions.get(request) else { continue };
                for (at, verdict) in outcome.items.iter().zip(&decision.verdicts) {
                    whole.verdicts[*at] = *verdict;
                }
                whole.delay = whole.delay.max(decision.delay);
            }
        }
        if admitted {
            whole.holds = self.holds(items, outcomes, request);
        } else {
            whole.delay = Span::ZERO;
        }
        whole
    }

    /// What a request that was admitted holds: places, and turns in queues.
    fn holds(self: &Rc<Self>, items: &Items, outcomes: &[Outcome], request: usize) -> Holds {
        let mut holds = Holds::default();
        let charges = outcomes.iter().flat_map(|outcome| &outcome.charges);
        for evaluation::Charge { item, delay, receipt, .. } in
            charges.filter(|charge| charge.request == request)
        {
            let item = &items[*item];
            let StoreKey { limit, key, .. } = &item.key;
            let charge =
                || ChargeInStore { store: Rc::clone(self), key: item.key.clone(), receipt: *receipt };
            let charged = || Hold::charged(limit, *key, (item.cost, item.base), *receipt, Box::new(charge()));
            if limit.late_cost().is_some() {
                holds.push(charged());
            } else if limit.quota.is_concurrency() {
                let lease = Lease::new(Rc::clone(self), item.key.clone(), item.cost, true);
                holds.push(Hold::places(limit, *key, item.cost, Box::new(lease)));
            } else if limit.enforced && !delay.is_zero() {
                let due = self.clock.now().plus(*delay);
                holds.push(Hold::queued(limit, *key, item.cost, due, Box::new(QueuedCharge(charge()))));
            } else if item.for_now {
                holds.push(charged());
            }
        }
        holds
    }
}
