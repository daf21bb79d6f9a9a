//! Charges that are changed or given back after the decision. Nobody waits for that.

use std::rc::Rc;
use std::sync::Arc;

use redis::Cmd;
use sluicegate_counters::{CountedLimit, Fingerprint, RemoteHold};
use sluicegate_limiter::{Charge, Quota, Receipt};

use super::call::{BACKGROUND_TIMEOUT, NOBODY};
use super::connection::{CallClass, CallError, Connection};
use super::key_name::{Tag, key_prefix};
use super::lease_renewal::server_error_as_err;
use super::protocol;
use super::scripts::{SCRIPTS, Script};
use super::store::Store;

/// A charge of one request in the store, which changes when the cost of the request is known.
pub(super) struct ChargeInStore {
    pub(super) store: Rc<Store>,
    pub(super) limit: Arc<CountedLimit>,
    pub(super) tag: Tag,
    pub(super) receipt: Receipt,
}

/// The charge of a request that waits in a queue.
pub(super) struct QueuedCharge(pub(super) ChargeInStore);

impl RemoteHold for ChargeInStore {
    fn settle(&self, key: Fingerprint, ticket: Option<u32>, charged: u64, cost: u64) {
        self.store.settle((&self.limit, key, self.tag), (ticket, self.receipt), (charged, cost));
    }
}

impl RemoteHold for QueuedCharge {
    fn give_up(&self, key: Fingerprint, cost: u64) {
        let ChargeInStore { store, limit, tag, receipt } = &self.0;
        store.refund(limit, key, *tag, cost, (*receipt, NOBODY));
    }
}

impl Store {
    /// Makes what a request was charged what it cost in the end, under the quota in force. `charge` is the ticket and the
    /// receipt of what was taken. Nobody waits for it.
    pub(super) fn settle(
        self: &Rc<Self>,
        (limit, key, tag): (&Arc<CountedLimit>, Fingerprint, Tag),
        (ticket, receipt): (Option<u32>, Receipt),
        (taken, cost): (u64, u64),
    ) {
        let (less, stored) = (taken.saturating_sub(cost), &limit.counters.remote);
        let now = self
            .servers
            .of(self.slot(tag))
            .map_or(self.clock.now(), |connection| connection.clock.at_least(self.clock.now()));
        let known = ticket.and_then(|ticket| stored.close(key, now, ticket, (less, taken)));
        let (old, quota) = (&limit.quota, stored.quota());
        if cost > taken {
            self.charge_late((limit, key, tag), cost - taken);
        } else if less > 0 {
            let carried = || stored.carried(old, old.charged(taken, receipt).last_part(less, taken), now);
            let charge = known.unwrap_or_else(carried);
            self.give_back((limit, key, tag), quota, charge, NOBODY);
        }
    }

    /// Charges a late cost. If the store is away it is counted here, and the store hears of it when it is back.
    fn charge_late(self: &Rc<Self>, (limit, key, tag): (&Arc<CountedLimit>, Fingerprint, Tag), cost: u64) {
        let (store, limit) = (Rc::clone(self), Arc::clone(limit));
        tokio::task::spawn_local(async move {
            let quota = limit.counters.remote.quota();
            let argument = protocol::spend_argument(&quota, cost);
            let argument = protocol::at(argument, &quota, || store.state.clocks_at(store.clock.now()));
            let charge = |call: &mut Cmd| _ = call.arg(&*argument);
            if !store.correct((&limit, key, tag), quota, &SCRIPTS.spend, charge).await {
                let now = store.clock.now();
                let at = store
                    .servers
                    .of(store.slot(tag))
                    .map_or(now, |connection| connection.clock.at_least(now));
                let here = cost.saturating_mul(u64::from(store.state.gateways()));
                limit.counters.settle(key, at, here);
                store.state.unreported.add(&limit, key, tag, cost);
            }
        });
    }

    /// Gives back to a key of the store what was charged and is not used. Nobody waits for it.
    pub(super) fn refund(
        self: &Rc<Self>,
        limit: &Arc<CountedLimit>,
        key: Fingerprint,
        tag: Tag,
        cost: u64,
        (receipt, holder): (Receipt, [u8; 8]),
    ) {
        let quota = limit.quota;
        self.give_back((limit, key, tag), quota, quota.charged(cost, receipt), holder);
    }

    /// Gives back a charge that is told in the numbers of `quota`.
    fn give_back(
        self: &Rc<Self>,
        (limit, key, tag): (&Arc<CountedLimit>, Fingerprint, Tag),
        quota: Quota,
        charge: Charge,
        holder: [u8; 8],
    ) {
        let (store, limit) = (Rc::clone(self), Arc::clone(limit));
        tokio::task::spawn_local(async move {
            let argument = protocol::refund_argument(&quota, charge);
            let argument = protocol::at(argument, &quota, || store.state.clocks_at(store.clock.now()));
            let refund = |call: &mut Cmd| _ = call.arg(&holder).arg(&*argument);
            store.correct((&limit, key, tag), quota, &SCRIPTS.refund, refund).await;
        });
    }

    /// Has a script correct a key behind its decision, and keeps what it tells in the numbers of the `quota` that its
    /// arguments are of. Whether the server has done so.
    async fn correct(
        self: &Rc<Self>,
        (limit, key, tag): (&Arc<CountedLimit>, Fingerprint, Tag),
        quota: Quota,
        script: &'static Script,
        arguments: impl Fn(&mut Cmd),
    ) -> bool {
        let slot = self.slot(tag);
        let Some(connection) = self.servers.of(slot) else { return false };
        let question = |_: &Connection| {
            let name = tag.name(key_prefix(limit));
            let mut call = script.call([name.as_slice()].into_iter());
            arguments(&mut call);
            call
        };
        let sent = self.clock.now();
        let until = sent.plus(BACKGROUND_TIMEOUT);
        let value = match self.send(&connection, slot, until, CallClass::Background, question).await {
            Ok((_, value)) => value,
            // A server that is only slow does it all the same.
            Err(CallError::Late(pending)) => match server_error_as_err(pending.await) {
                Ok(value) => value,
                Err(_) => return false,
            },
            Err(_) => return false,
        };
        match protocol::StatesReply::read(&value, &[&quota]) {
            Ok(told) => {
                if !self.state.unreported.has(limit, key) {
                    told.keys.iter().for_each(|state| limit.relearn(key, state, told.now));
                }
                true
            }
            Err(malformed) => {
                connection.malformed(&malformed, sent, self.clock.now());
                false
            }
        }
    }
}
