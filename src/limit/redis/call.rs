//! One call of the script, there and back.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use redis::{Cmd, Value};
use sluicegate_limiter::{Charge, Quota, Receipt, Span, Time};
use smallvec::SmallVec;

use super::lease::Lease;
use super::link::{Link, Pending, Trouble, Weight};
use super::name::Tag;
use super::outcome::{self, Outcome};
use super::places::{LEASE, said};
use super::scripts::{SCRIPTS, Script};
use super::wire::{self, Algorithms, Decided, Reply};
use super::{Servers, Store};
use crate::keys::Fingerprint;
use crate::limit::turn::Hold;
use crate::limit::{Ask, Decision, Holds, Key, Limit, Verdict};
use crate::metrics::Operation;

/// How long a call may take that nobody waits for.
pub(super) const UNHURRIED: Span = Span::SECOND;
/// The holder of what has none.
pub(in crate::limit) const NOBODY: [u8; 8] = [0; 8];
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
    pub(in crate::limit) base: u64,
    /// Whether what it is charged is held, so that it can be undone.
    pub(super) for_now: bool,
}

/// The shared limits of a request.
pub(super) type Items = SmallVec<[Item; 2]>;

impl Item {
    pub(super) fn of(ask: &Ask<'_>) -> Self {
        Self {
            limit: Arc::clone(ask.limit),
            key: ask.key,
            tag: Tag::of(&ask.text),
            cost: ask.cost,
            base: ask.base,
            for_now: ask.for_now,
        }
    }

    /// What the key is called in the store.
    pub(super) fn name(&self) -> Vec<u8> {
        self.tag.name(&self.limit.names)
    }

    /// What the key's ban is called there, if the limit bans.
    fn ban(&self) -> Option<Vec<u8>> {
        self.limit.config.ban.map(|_| self.tag.ban(&self.limit.names))
    }

    /// What the script is told of the limit.
    fn argument(&self) -> Cow<'_, [u8]> {
        match &self.limit.argument {
            Some(argument) => Cow::Borrowed(argument),
            None => Cow::Owned(wire::limit_argument(&self.limit.config, self.cost)),
        }
    }
}

impl Store {
    /// Has the store decide about so many equal requests: one call, or in a cluster one after the other for each
    /// slot, and back with what a later one refuses.
    pub(super) async fn ask(
        self: &Rc<Self>,
        items: &Items,
        riders: usize,
        until: Time,
    ) -> Option<Vec<Decision>> {
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
        let costs = stop.iter().map(|at| &items[*at]);
        let costs = costs.map(|item| (&*item.limit, item.key, item.cost.saturating_mul(riders as u64)));
        // A call that is late is not under way any more: the script does nothing behind its deadline.
        let under_way = self.state.under_way.begin(costs);
        self.report_first(&link, items, &stop, until).await?;
        let sent = self.clock.now();
        // Whom the script then takes for the holder of places, in case that they are to be given back.
        let holder = Cell::new(link.holder());
        let question = |link: &Link| {
            holder.set(link.holder());
            self.question(items, &stop, riders, until, link)
        };
        // A call that had only the rest of somebody's time says little about the server when it is late.
        let whole = until.since(sent) >= self.share(2);
        let weight = if whole { Weight::Full } else { Weight::Short };
        let result = self.send(&link, slot, until, weight, question).await;
        drop(under_way);
        let received = self.clock.now();
        let finish = |operation| self.metrics.finish(operation, received.since(sent));
        match result {
            Ok((link, value)) => match self.read(items, &stop, riders, holder.get(), value) {
                Ok((now, Some(outcome))) => {
                    finish(Operation::Ok);
                    self.state.seen(&link.clock, now, sent, received);
                    self.learn(items, &outcome, sent, link.clock.is_latest(now));
                    Some(outcome)
                }
                Ok((now, None)) => {
                    finish(Operation::Expired);
                    self.state.seen(&link.clock, now, sent, received); // perhaps it was only that clock
                    None
                }
                Err(malformed) => {
                    finish(Operation::Error);
                    link.malformed(&malformed, sent, received);
                    None
                }
            },
            Err(Trouble::Late(pending)) => {
                finish(Operation::Timeout);
                let call = (items.clone(), stop, riders, holder.get());
                tokio::task::spawn_local(Rc::clone(self).late(call, pending));
                None
            }
            Err(_) => {
                finish(Operation::Error);
                None
            }
        }
    }

    /// Tells the store what these keys spent without it, before it is asked about them again.
    async fn report_first(&self, link: &Rc<Link>, items: &Items, stop: &[usize], until: Time) -> Option<()> {
        let outstanding = &self.state.outstanding;
        if !stop.iter().any(|at| outstanding.has(&items[*at].limit, items[*at].key)) {
            return Some(());
        }
        let asked = |limit: &Limit, key: Fingerprint| {
            stop.iter()
                .map(|at| &items[*at])
                .any(|item| item.key == key && item.limit.counters.order == limit.counters.order)
        };
        let connection = link.ready().ok().filter(|_| !link.is_silent())?;
        let report = self.report(link, &connection, asked);
        let heard = tokio::time::timeout_at(self.clock.instant(until), report).await;
        heard.ok().flatten().map(|_| ())
    }

    /// The script's call for these limits.
    fn question(&self, items: &Items, stop: &[usize], riders: usize, until: Time, link: &Link) -> Cmd {
        let all = || stop.iter().map(|at| &items[*at]);
        let bans = all().filter_map(Item::ban);
        let names: SmallVec<[Vec<u8>; 2]> = all().map(Item::name).chain(bans).collect();
        let algorithms = Algorithms::of(all().map(|item| &item.limit.config.quota));
        let mut call = SCRIPTS.decide(algorithms).call(names.iter().map(Vec::as_slice));
        let margin = self.share(WAY_BACK).as_nanos();
        let deadline = link.clock.at_least(until).as_nanos().saturating_sub(margin) / 1000;
        call.arg(deadline).arg(riders).arg(&link.holder()).arg(LEASE.as_micros() as u64);
        for at in stop {
            let (argument, quota) = (items[*at].argument(), &items[*at].limit.config.quota);
            call.arg(&*wire::at(argument, quota, || link.clock.at_least(self.clock.now())));
        }
        call
    }

    /// What an answer says, and the server's time: no outcome if the call came too late and changed nothing.
    fn read(
        &self,
        items: &Items,
        stop: &SmallVec<[usize; 2]>,
        riders: usize,
        holder: [u8; 8],
        value: Value,
    ) -> Result<(Time, Option<Outcome>), wire::Malformed> {
        let quotas: SmallVec<[_; 2]> = stop.iter().map(|at| &items[*at].limit.config.quota).collect();
        let bans: SmallVec<[_; 2]> = stop.iter().filter_map(|at| items[*at].limit.config.ban).collect();
        let Reply { now, decided } = Reply::read(&value, &quotas, &bans)?;
        let Some(Decided { admitted, keys, bans }) = decided else { return Ok((now, None)) };
        let requests = (riders, admitted as usize);
        let outcome = Outcome::new(items, stop.clone(), (keys, bans), requests, holder, now);
        if let Some(disagreement) = outcome.disagreement {
            self.metrics.disagrees();
            self.state.tell_disagreement(disagreement, self.clock.now());
        }
        Ok((now, Some(outcome)))
    }

    /// An answer that came when nobody waited any more: what it charged is given back.
    async fn late(self: Rc<Self>, call: (Items, SmallVec<[usize; 2]>, usize, [u8; 8]), pending: Pending) {
        let (items, stop, riders, holder) = call;
        let Ok(value) = pending.await else { return };
        if let Ok((_, Some(outcome))) = self.read(&items, &stop, riders, holder, value) {
            self.take_back(&items, &outcome, 0);
        }
    }

    /// Keeps in the limits' tables what the store has told. A ban is counted from the sending of the call, so that it is
    /// never remembered for longer than it holds. Where another thread has read a later answer already, only what is stricter
    /// than what is known is kept: it may be older.
    fn learn(&self, items: &Items, outcome: &Outcome, sent: Time, latest: bool) {
        for (at, state) in outcome.items.iter().zip(&outcome.left) {
            let Item { limit, key, .. } = &items[*at];
            // What was spent without the store, and it has not heard of yet, must not be forgotten here.
            let known = || limit.counters.standing(*key, outcome.now).map(|known| known.remaining);
            let newer = latest || known().is_none_or(|known| state.standing(outcome.now).remaining < known);
            if newer && !self.state.outstanding.has(limit, *key) {
                limit.counters.learn(*key, state, outcome.now);
            }
        }
        for (item, told) in &outcome.bans {
            let Item { limit, key, .. } = &items[*item];
            if let (Some(bans), Some(left)) = (&limit.bans, told.ban.left(&told.strikes, outcome.now)) {
                bans.learn(*key, sent.plus(left), told.begun, sent);
            }
        }
    }

    /// Gives back what the requests from `first` on were charged.
    fn take_back(self: &Rc<Self>, items: &Items, outcome: &Outcome, first: usize) {
        for (item, cost, receipt) in outcome.charged_from(items, first) {
            let Item { limit, key, tag, .. } = &items[item];
            self.refund(limit, *key, *tag, cost, (receipt, outcome.holder));
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
        for outcome::Charge { item, delay, receipt, .. } in charges.filter(|charge| charge.rider == rider) {
            let item = &items[*item];
            if item.limit.settles().is_some() {
                holds.push(Hold::spent(Rc::clone(self), item, *receipt));
            } else if item.limit.config.quota.is_concurrency() {
                let lease = self.lease(&item.limit, item.key, item.tag, item.cost, true);
                holds.push(Hold::leased(&item.limit, item.key, item.cost, lease));
            } else if item.limit.enforces() && !delay.is_zero() {
                let due = self.clock.now().plus(*delay);
                holds.push(Hold::queued(Rc::clone(self), item, *receipt, due));
            } else if item.for_now {
                holds.push(Hold::spent(Rc::clone(self), item, *receipt));
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

    /// Makes what a request was charged what it cost in the end, under the quota in force. `charge` is the ticket and the
    /// receipt of what was taken. Nobody waits for it.
    pub(in crate::limit) fn settle(
        self: &Rc<Self>,
        (limit, key, tag): (&Arc<Limit>, Fingerprint, Tag),
        (ticket, receipt): (Option<u32>, Receipt),
        (taken, cost): (u64, u64),
    ) {
        let (less, stored) = (taken.saturating_sub(cost), &limit.counters.stored);
        let now = self
            .servers
            .of(self.slot(tag))
            .map_or(self.clock.now(), |link| link.clock.at_least(self.clock.now()));
        let known = ticket.and_then(|ticket| stored.close(key, now, ticket, (less, taken)));
        let (old, quota) = (&limit.config.quota, stored.quota());
        if cost > taken {
            self.charge_late((limit, key, tag), cost - taken);
        } else if less > 0 {
            let carried = || stored.carried(old, old.charged(taken, receipt).last_part(less, taken), now);
            let charge = known.unwrap_or_else(carried);
            self.give_back((limit, key, tag), quota, charge, NOBODY);
        }
    }

    /// Charges a late cost. If the store is away it is counted here, and the store hears of it when it is back.
    fn charge_late(self: &Rc<Self>, (limit, key, tag): (&Arc<Limit>, Fingerprint, Tag), cost: u64) {
        let (store, limit) = (Rc::clone(self), Arc::clone(limit));
        tokio::task::spawn_local(async move {
            let quota = limit.counters.stored.quota();
            let argument = wire::spend_argument(&quota, cost);
            let argument = wire::at(argument, &quota, || store.state.clocks_at(store.clock.now()));
            let charge = |call: &mut Cmd| _ = call.arg(&*argument);
            if !store.correct((&limit, key, tag), quota, &SCRIPTS.spend, charge).await {
                let now = store.clock.now();
                let at = store.servers.of(store.slot(tag)).map_or(now, |link| link.clock.at_least(now));
                let here = cost.saturating_mul(u64::from(store.state.gateways()));
                limit.counters.settle(key, at, here);
                store.state.outstanding.add(&limit, key, tag, cost);
            }
        });
    }

    /// Gives back to a key of the store what was charged and is not used. Nobody waits for it.
    pub(in crate::limit) fn refund(
        self: &Rc<Self>,
        limit: &Arc<Limit>,
        key: Fingerprint,
        tag: Tag,
        cost: u64,
        (receipt, holder): (Receipt, [u8; 8]),
    ) {
        let quota = limit.config.quota;
        self.give_back((limit, key, tag), quota, quota.charged(cost, receipt), holder);
    }

    /// Gives back a charge that is told in the numbers of `quota`.
    fn give_back(
        self: &Rc<Self>,
        (limit, key, tag): (&Arc<Limit>, Fingerprint, Tag),
        quota: Quota,
        charge: Charge,
        holder: [u8; 8],
    ) {
        let (store, limit) = (Rc::clone(self), Arc::clone(limit));
        tokio::task::spawn_local(async move {
            let argument = wire::refund_argument(&quota, charge);
            let argument = wire::at(argument, &quota, || store.state.clocks_at(store.clock.now()));
            let refund = |call: &mut Cmd| _ = call.arg(&holder).arg(&*argument);
            store.correct((&limit, key, tag), quota, &SCRIPTS.refund, refund).await;
        });
    }

    /// Has a script correct a key behind its decision, and keeps what it tells in the numbers of the `quota` that its
    /// arguments are of. Whether the server has done so.
    async fn correct(
        self: &Rc<Self>,
        (limit, key, tag): (&Arc<Limit>, Fingerprint, Tag),
        quota: Quota,
        script: &'static Script,
        arguments: impl Fn(&mut Cmd),
    ) -> bool {
        let slot = self.slot(tag);
        let Some(link) = self.servers.of(slot) else { return false };
        let question = |_: &Link| {
            let name = tag.name(&limit.names);
            let mut call = script.call([name.as_slice()].into_iter());
            arguments(&mut call);
            call
        };
        let sent = self.clock.now();
        let until = sent.plus(UNHURRIED);
        let value = match self.send(&link, slot, until, Weight::Unhurried, question).await {
            Ok((_, value)) => value,
            // A server that is only slow does it all the same.
            Err(Trouble::Late(pending)) => match said(pending.await) {
                Ok(value) => value,
                Err(_) => return false,
            },
            Err(_) => return false,
        };
        match wire::Told::read(&value, &[&quota]) {
            Ok(told) => {
                if !self.state.outstanding.has(limit, key) {
                    told.keys.iter().for_each(|state| limit.relearn(key, state, told.now));
                }
                true
            }
            Err(malformed) => {
                link.malformed(&malformed, sent, self.clock.now());
                false
            }
        }
    }
}
