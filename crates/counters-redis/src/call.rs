//! One call of the script that decides, and its reply.

use std::cell::Cell;
use std::rc::Rc;

use redis::{Cmd, Value};
use sluicegate_counters::{Decision, Hold, Holds, Verdict, Verdicts};
use sluicegate_limiter::{Span, Time};
use smallvec::SmallVec;

use super::cluster::Servers;
use super::connection::{CallClass, CallError, Connection, Pending};
use super::corrections::{ChargeInStore, QueuedCharge};
use super::evaluation::{self, Outcome};
use super::item::{FinalCharge, Items, is_stricter};
use super::key_name::StoreKey;
use super::lease::Lease;
use super::lease_renewal::LEASE;
use super::metrics::Operation;
use super::protocol::{self, Algorithms, Decided, Reply};
use super::reply::Malformed;
use super::scripts::SCRIPTS;
use super::store::{Delivery, Store};

/// The share of the timeout, as a divisor, that is reserved for the reply: after the rest, the script changes nothing.
const REPLY_SHARE: u64 = 10;

impl Store {
    /// Decides about `requests` equal requests with one call, or in a cluster with one call for each slot, one after the
    /// other. Charges are refunded if a later call refuses.
    pub(super) async fn ask(
        self: &Rc<Self>,
        items: &Rc<Items>,
        requests: usize,
        until: Time,
    ) -> Option<Vec<Delivery>> {
        let mut outcomes: SmallVec<[Outcome; 1]> = SmallVec::new();
        let mut admitted = requests;
        for group in self.groups(items) {
            match self.call(items, group, admitted, until).await {
                Some(outcome) => {
                    admitted = outcome.admitted();
                    outcomes.push(outcome);
                }
                None => {
                    outcomes.iter().for_each(|outcome| self.refund_from(items, outcome, 0));
                    return None;
                }
            }
            if admitted == 0 {
                break;
            }
        }
        for outcome in &outcomes {
            self.refund_from(items, outcome, admitted);
        }
        Some(
            (0..requests)
                .map(|request| self.decision(items, &mut outcomes, request, request < admitted))
                .collect(),
        )
    }

    /// The limits of each call, in the order of the calls.
    fn groups(&self, items: &Items) -> SmallVec<[SmallVec<[usize; 2]>; 1]> {
        if let Servers::One(_) = self.servers {
            return SmallVec::from_iter([(0..items.len()).collect()]);
        }
        let mut groups: SmallVec<[SmallVec<[usize; 2]>; 1]> = SmallVec::new();
        for (at, item) in items.iter().enumerate() {
            match groups.iter_mut().find(|group| items[group[0]].key.tag.slot() == item.key.tag.slot()) {
                Some(group) => group.push(at),
                None => groups.push(SmallVec::from_iter([at])),
            }
        }
        groups
    }

    /// One call.
    pub(super) async fn call(
        self: &Rc<Self>,
        items: &Items,
        group: SmallVec<[usize; 2]>,
        requests: usize,
        until: Time,
    ) -> Option<Outcome> {
        let slot = self.slot(items[group[0]].key.tag);
        let connection = self.servers.owner_of(slot)?;
        let costs = group.iter().map(|at| &items[*at]);
        let costs = costs.map(|item| (&item.key, item.cost.saturating_mul(requests as u64)));
        // A late call is not in flight any more: the script changes nothing after its deadline.
        let in_flight = self.state.in_flight.begin(costs);
        self.report_first(&connection, items, &group, until).await?;
        let sent = self.clock.now();
        // The holder for which the script takes places, in case they are refunded.
        let holder = Cell::new(connection.holder());
        let command = |connection: &Connection| {
            holder.set(connection.holder());
            self.command(items, &group, requests, until, connection)
        };
        // A call with only the rest of a timeout says little about the server if it is late.
        let whole = until.since(sent) >= self.share(2);
        let class = if whole { CallClass::Full } else { CallClass::Short };
        let result = self.send(&connection, slot, until, class, command).await;
        drop(in_flight);
        let received = self.clock.now();
        let finish = |operation| self.metrics.finish(operation, received.since(sent));
        match result {
            Ok((connection, value)) => match self.read(items, &group, requests, holder.get(), value) {
                Ok((now, Some(outcome))) => {
                    finish(Operation::Ok);
                    self.state.observe_clock(&connection.clock, now, sent, received);
                    self.learn(items, &outcome, sent, connection.clock.is_latest(now));
                    Some(outcome)
                }
                Ok((now, None)) => {
                    finish(Operation::Expired);
                    self.state.observe_clock(&connection.clock, now, sent, received); // the known difference of the clocks may be wrong
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
                let call = (items.clone(), group, requests, holder.get());
                crate::store::spawn_local(Rc::clone(self).undo_late(call, pending));
                None
            }
            Err(_) => {
                finish(Operation::Error);
                None
            }
        }
    }

    /// Reports what these keys were charged without the store, before it decides about them again.
    async fn report_first(
        &self,
        connection: &Rc<Connection>,
        items: &Items,
        group: &[usize],
        until: Time,
    ) -> Option<()> {
        let unreported = &self.state.unreported;
        if !group.iter().any(|at| {
            let key = &items[*at].key;
            unreported.has(&key.limit, key.key)
        }) {
            return Some(());
        }
        let is_asked = |key: &StoreKey| group.iter().any(|at| items[*at].key.id() == key.id());
        let channel = connection.channel().ok().filter(|_| !connection.is_silent())?;
        let report = self.report(connection, &channel, is_asked);
        let reported = tokio::time::timeout_at(self.clock.instant(until), report).await;
        reported.ok().flatten().map(|_| ())
    }

    /// The call of the script for these limits.
    fn command(
        &self,
        items: &Items,
        group: &[usize],
        requests: usize,
        until: Time,
        connection: &Connection,
    ) -> Cmd {
        let all = || group.iter().map(|at| &items[*at]);
        let bans = all().filter_map(|item| item.key.ban_name());
        let names: SmallVec<[Vec<u8>; 2]> = all().map(|item| item.key.name()).chain(bans).collect();
        let algorithms = Algorithms::of(all().map(|item| &item.limit().quota));
        let mut call = SCRIPTS.decide(algorithms).call(names.iter().map(Vec::as_slice));
        let margin = self.share(REPLY_SHARE).as_nanos();
        let deadline = connection.clock.earliest(until).as_nanos().saturating_sub(margin) / 1000;
        call.arg(deadline).arg(requests).arg(&connection.holder()).arg(LEASE.as_micros() as u64);
        for at in group {
            let (argument, quota) = (items[*at].argument(), &items[*at].limit().quota);
            call.arg(&*protocol::at(argument, quota, || connection.clock.earliest(self.clock.now())));
        }
        call
    }

    /// Reads a reply. Returns the server's time and the outcome; no outcome if the call came too late and changed nothing.
    fn read(
        &self,
        items: &Items,
        group: &SmallVec<[usize; 2]>,
        requests: usize,
        holder: [u8; 8],
        value: Value,
    ) -> Result<(Time, Option<Outcome>), Malformed> {
        let quotas: SmallVec<[_; 2]> = group.iter().map(|at| &items[*at].limit().quota).collect();
        let bans: SmallVec<[_; 2]> = group.iter().filter_map(|at| items[*at].limit().ban).collect();
        let Reply { now, decided } = Reply::read(&value, &quotas, &bans)?;
        let Some(Decided { admitted, keys, bans }) = decided else { return Ok((now, None)) };
        let requests = (requests, admitted as usize);
        let outcome = Outcome::new(items, group.clone(), (keys, bans), requests, holder, now);
        if let Some(disagreement) = outcome.disagreement {
            self.metrics.disagrees();
            self.state.log_disagreement(disagreement, self.clock.now());
        }
        Ok((now, Some(outcome)))
    }

    /// Refunds what a late call charged: no request waits for it any more.
    async fn undo_late(
        self: Rc<Self>,
        call: (Items, SmallVec<[usize; 2]>, usize, [u8; 8]),
        pending: Pending,
    ) {
        let (items, group, requests, holder) = call;
        let Ok(value) = pending.await else { return };
        if let Ok((_, Some(outcome))) = self.read(&items, &group, requests, holder, value) {
            self.refund_from(&items, &outcome, 0);
        }
    }

    /// Keeps the states that the store returned in the tables of the limits. A ban counts from the sending of the call, so
    /// that it is never remembered for too long. If another worker has read a later reply already, only a stricter state is
    /// kept.
    fn learn(&self, items: &Items, outcome: &Outcome, sent: Time, latest: bool) {
        for (at, state) in outcome.items.iter().zip(&outcome.left) {
            let StoreKey { limit, key, .. } = &items[*at].key;
            // Costs that were admitted without the store and not reported yet must not be overwritten.
            let newer = latest || is_stricter(limit, *key, state, outcome.now);
            if newer && !self.state.unreported.has(limit, *key) {
                limit.learn(*key, state, outcome.now);
            }
        }
        for (item, remote) in &outcome.bans {
            let StoreKey { limit, key, .. } = &items[*item].key;
            if let (Some(bans), Some(left)) = (&limit.bans, remote.ban.left(&remote.strikes, outcome.now)) {
                bans.learn(*key, sent.plus(left), remote.begun, sent);
            }
        }
    }

    /// Refunds what the requests from `first` on were charged.
    fn refund_from(self: &Rc<Self>, items: &Items, outcome: &Outcome, first: usize) {
        for (item, cost, receipt) in outcome.charged_from(items, first) {
            self.refund(&items[item].key, cost, (receipt, outcome.holder));
        }
    }

    /// The decision about one request, with what it holds.
    fn decision(
        self: &Rc<Self>,
        items: &Rc<Items>,
        outcomes: &mut [Outcome],
        request: usize,
        admitted: bool,
    ) -> Delivery {
        let mut whole = Decision::new(Verdicts::default(), admitted);
        // A refusal may have ended the call before the other keys were asked.
        if let [only] = outcomes
            && only.items.len() == items.len()
        {
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
        let mut charges = SmallVec::new();
        if admitted {
            (whole.holds, charges) = self.holds(items, outcomes, request);
        } else {
            whole.delay = Span::ZERO;
        }
        Delivery::new(self, items, whole, charges)
    }

    /// What an admitted request holds: places, positions in queues, and charges that may change; and its other charges.
    fn holds(
        self: &Rc<Self>,
        items: &Items,
        outcomes: &[Outcome],
        request: usize,
    ) -> (Holds, SmallVec<[FinalCharge; 2]>) {
        let (mut holds, mut others) = (Holds::default(), SmallVec::new());
        let charges =
            outcomes.iter().flat_map(|outcome| outcome.charges.iter().map(|charge| (charge, outcome.holder)));
        for (evaluation::Charge { item, delay, receipt, .. }, holder) in
            charges.filter(|(charge, _)| charge.request == request)
        {
            let at = *item;
            let item = &items[at];
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
            } else {
                others.push((at, *receipt, holder));
            }
        }
        (holds, others)
    }
}
