//! Charges that are changed or refunded after the decision. No request waits for that.

use std::rc::Rc;

use redis::Cmd;
use sluicegate_counters::{Ask, RemoteHold};
use sluicegate_limiter::{Charge, Quota, Receipt, Time};

use super::connection::Connection;
use super::item::{NOBODY, is_stricter};
use super::key_name::{StoreKey, Tag};
use super::protocol;
use super::scripts::{SCRIPTS, Script};
use super::store::Store;

/// A charge of one request in the store, which changes when the cost of the request is known.
pub(super) struct ChargeInStore {
    pub(super) store: Rc<Store>,
    pub(super) key: StoreKey,
    pub(super) receipt: Receipt,
}

/// The charge of a request that waits in a queue.
pub(super) struct QueuedCharge(pub(super) ChargeInStore);

impl RemoteHold for ChargeInStore {
    /// Changes the charge under the quota in force.
    fn settle(&self, ticket: Option<u32>, charged: u64, cost: u64) {
        let StoreKey { limit, key, tag } = &self.key;
        let (less, remote) = (charged.saturating_sub(cost), &limit.counters.remote);
        let now = self.store.clock_at(*tag);
        let known = ticket.and_then(|ticket| remote.close(*key, now, ticket, (less, charged)));
        if cost > charged {
            self.store.charge_late(&self.key, cost - charged);
        } else if less > 0 {
            let (old, quota) = (&limit.quota, remote.quota());
            let part = || old.charged(charged, self.receipt).last_part(less, charged);
            let charge = known.unwrap_or_else(|| remote.carried(old, part(), now));
            self.store.give_back(&self.key, quota, charge, NOBODY);
        }
    }
}

impl RemoteHold for QueuedCharge {
    fn give_up(&self, cost: u64) {
        let ChargeInStore { store, key, receipt } = &self.0;
        store.refund(key, cost, (*receipt, NOBODY));
    }
}

impl Store {
    /// Charges a cost without a decision, also above the limit. No request waits for it.
    pub fn charge(self: &Rc<Self>, ask: &Ask<'_>, cost: u64) {
        self.charge_late(&StoreKey::of(ask), cost);
    }

    /// Refunds a cost of earlier requests. No request waits for it.
    pub fn refund_earlier(self: &Rc<Self>, ask: &Ask<'_>, cost: u64) {
        let key = StoreKey::of(ask);
        let receipt = ask.limit.counters.receipt(ask.key, self.clock_at(key.tag));
        self.refund(&key, cost, (receipt, NOBODY));
    }

    /// The time on the clock of the server that holds a tag; on the clock of this process while that is not known.
    fn clock_at(&self, tag: Tag) -> Time {
        let now = self.clock.now();
        self.servers.owner_of(self.slot(tag)).map_or(now, |connection| connection.clock.earliest(now))
    }

    /// Charges a late cost. If the store fails, the cost is counted in this process and reported later.
    fn charge_late(self: &Rc<Self>, key: &StoreKey, cost: u64) {
        let (store, key) = (Rc::clone(self), key.clone());
        crate::store::spawn_local(async move {
            let counters = &key.limit.counters;
            let quota = counters.remote.quota();
            let argument = protocol::spend_argument(&quota, cost);
            let argument = protocol::at(argument, &quota, || store.state.clocks_at(store.clock.now()));
            let charge = |call: &mut Cmd| _ = call.arg(&*argument);
            if !store.correct(&key, quota, (&SCRIPTS.spend, false), charge).await {
                let here = cost.saturating_mul(u64::from(store.state.gateways()));
                counters.settle(key.key, store.clock_at(key.tag), here);
                store.state.unreported.add(&key, cost);
            }
        });
    }

    /// Refunds what a key of the store was charged and is not used. No request waits for it.
    pub(super) fn refund(self: &Rc<Self>, key: &StoreKey, cost: u64, (receipt, holder): (Receipt, [u8; 8])) {
        let quota = key.limit.quota;
        self.give_back(key, quota, quota.charged(cost, receipt), holder);
    }

    /// Refunds a charge that is given in the numbers of `quota`.
    fn give_back(self: &Rc<Self>, key: &StoreKey, quota: Quota, charge: Charge, holder: [u8; 8]) {
        let (store, key) = (Rc::clone(self), key.clone());
        crate::store::spawn_local(async move {
            let argument = protocol::refund_argument(&quota, charge);
            let argument = protocol::at(argument, &quota, || store.state.clocks_at(store.clock.now()));
            let refund = |call: &mut Cmd| _ = call.arg(&holder).arg(&*argument);
            store.correct(&key, quota, (&SCRIPTS.refund, true), refund).await;
        });
    }

    /// Calls a script that corrects a key after its decision, and keeps the state that it returns in the numbers of
    /// `quota`, in which its arguments are. Returns whether the server has done so.
    async fn correct(
        self: &Rc<Self>,
        key: &StoreKey,
        quota: Quota,
        (script, refunds): (&'static Script, bool),
        arguments: impl Fn(&mut Cmd),
    ) -> bool {
        let slot = self.slot(key.tag);
        let Some(connection) = self.servers.owner_of(slot) else { return false };
        let command = |_: &Connection| {
            let mut call = script.call([key.name().as_slice()].into_iter());
            arguments(&mut call);
            call
        };
        let sent = self.clock.now();
        let Some(Ok(value)) = self.send_background(&connection, slot, command).await else { return false };
        match protocol::StatesReply::read(&value, &[&quota]) {
            Ok(reply) => {
                let latest = connection.clock.is_latest(reply.now);
                for state in reply.keys.iter().filter(|_| !self.state.unreported.has(&key.limit, key.key)) {
                    // Workers read replies in any order: an older one must not replace a later one.
                    if latest || is_stricter(&key.limit, key.key, state, reply.now) {
                        key.limit.relearn(key.key, state, reply.now);
                    } else if refunds {
                        key.limit.counters.pardon(key.key); // neither is known to be the later one: the store is asked
                    }
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
