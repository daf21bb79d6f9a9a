//! Places of concurrency limits in the store are leases: those of a gateway that dies expire.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use sluicegate_counters::{Ask, Hold, RemoteHold};
use sluicegate_limiter::Time;

use super::held_places::{Held, IDLE};
use super::key_name::StoreKey;
use super::places::Places;
use super::store::Store;

/// Places of one request; dropping it frees them.
pub(super) struct Lease {
    store: Rc<Store>,
    key: StoreKey,
    places: u64,
}

impl RemoteHold for Lease {}

impl Lease {
    /// Takes places. `known`: the store knows them.
    pub(super) fn new(store: Rc<Store>, key: StoreKey, places: u64, known: bool) -> Self {
        let mut held = store.leases.held.borrow_mut();
        let new = || Held { key: key.clone(), places: 0, unknown: 0, idle: 0, used: Time::EPOCH };
        let of_key = held.entry(key.id()).or_insert_with(new);
        of_key.places += places;
        if !known {
            of_key.unknown += places;
        }
        drop(held);
        Self { store, key, places }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let leases = &self.store.leases;
        let mut held = leases.held.borrow_mut();
        let id = self.key.id();
        let Some(of_key) = held.get_mut(&id) else { return };
        // Places are interchangeable: those that the store does not know are freed first.
        let unknown = of_key.unknown.min(self.places);
        of_key.unknown -= unknown;
        let (known, now) = (self.places - unknown, self.store.now());
        let kept = known.min(self.store.most_idle(&self.key, now).saturating_sub(of_key.idle));
        if kept > 0 {
            of_key.idle += kept;
            of_key.used = now;
            leases.some_idle.notify_one();
        }
        of_key.places = of_key.places.saturating_sub(self.places - kept);
        if of_key.places == 0 {
            held.remove(&id);
        }
        if known > kept {
            leases.freed.borrow_mut().push(Places { key: self.key.clone(), places: known - kept });
            leases.some_freed.notify_one();
        }
    }
}

impl Store {
    /// The places of a key that this worker may keep for the next requests.
    fn most_idle(&self, key: &StoreKey, now: Time) -> u64 {
        let Some(terms) = key.limit.leased().filter(|_| self.state.membership.may_lease(now)) else {
            return 0;
        };
        if !self.connection_of_tag(key.tag).is_some_and(|connection| connection.is_up()) {
            return 0; // the next connection states which places are held
        }
        terms.share(self.state.gateways()) / u64::from(self.state.stores.load(Ordering::Relaxed).max(1))
    }

    /// Takes places that were kept, and returns what the request then holds and how many are left of them; `None` if there
    /// are not enough.
    pub fn take_places(self: &Rc<Self>, ask: &Ask<'_>, now: Time) -> Option<(Hold, u64)> {
        let id = (ask.limit.counters.id, ask.key);
        let mut held = self.leases.held.borrow_mut();
        let of_key = held.get_mut(&id).filter(|of_key| of_key.idle >= ask.cost)?;
        if self.most_idle(&of_key.key, now) == 0 {
            return None;
        }
        of_key.idle -= ask.cost;
        of_key.used = now;
        let (key, left) = (of_key.key.clone(), of_key.idle);
        drop(held);
        let lease = Self::lease_of(self, key, ask.cost);
        Some((Hold::places(ask.limit, ask.key, ask.cost, Box::new(lease)), left))
    }

    fn lease_of(self: &Rc<Self>, key: StoreKey, places: u64) -> Lease {
        Lease { store: Rc::clone(self), key, places }
    }

    /// Frees places that were kept and that no request took.
    pub(super) async fn free_idle(self: Rc<Self>) {
        loop {
            self.leases.some_idle.notified().await;
            while self.leases.has_idle() {
                tokio::time::sleep(IDLE.into()).await;
                self.leases.free_unused(self.now());
            }
        }
    }
}
