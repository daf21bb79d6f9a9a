//! Places of concurrency limits in the store are leases: those of a gateway that dies expire.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use sluicegate_counters::{Ask, Fingerprint, Hold, RemoteHold};
use sluicegate_limiter::{Span, Time};
use tokio::sync::Notify;

use super::key_name::{StoreKey, Tag};
use super::store::Store;

/// For how long a place without a request is kept for the next one.
const IDLE: Span = Span::from_millis(500);

/// The places that requests of one worker hold, also those that the store does not know.
#[derive(Default)]
pub(super) struct Leases {
    held: RefCell<HashMap<(u64, Fingerprint), Held>>,
    freed: RefCell<Vec<Places>>,
    /// Notified when places are freed.
    pub(super) some_freed: Notify,
    /// Notified when places are kept for the next request.
    pub(super) some_idle: Notify,
}

struct Held {
    key: StoreKey,
    places: u64,
    /// The number of them that the store does not know.
    unknown: u64,
    /// The number of them that no request holds: they are kept for the next.
    idle: u64,
    /// When a request took or left one of these last.
    used: Time,
}

/// Places of one key.
pub(super) struct Places {
    pub(super) key: StoreKey,
    pub(super) places: u64,
}

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
        let id = (ask.limit.counters.order, ask.key);
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

/// Merges the places of each key: a call reads all of its keys before it changes any.
pub(super) fn by_key(places: Vec<Places>) -> Vec<Places> {
    let mut by_key: HashMap<(u64, Fingerprint), Places> = HashMap::new();
    for freed in places {
        match by_key.entry(freed.key.id()) {
            Entry::Occupied(mut same) => same.get_mut().places += freed.places,
            Entry::Vacant(new) => _ = new.insert(freed),
        }
    }
    by_key.into_values().collect()
}

impl Leases {
    fn has_idle(&self) -> bool {
        self.held.borrow().values().any(|of_key| of_key.idle > 0)
    }

    /// Frees the places that were kept for too long.
    fn free_unused(&self, now: Time) {
        let mut freed = self.freed.borrow_mut();
        self.held.borrow_mut().retain(|_, of_key| {
            if of_key.idle > 0 && now.since(of_key.used) >= IDLE {
                freed.push(Places { key: of_key.key.clone(), places: of_key.idle });
                of_key.places -= of_key.idle;
                of_key.idle = 0;
            }
            of_key.places > 0
        });
        if !freed.is_empty() {
            self.some_freed.notify_one();
        }
    }

    /// Takes the places that were freed since the last call.
    pub(super) fn take_freed(&self) -> Vec<Places> {
        self.freed.take()
    }

    /// Removes the freed places of the keys that `holds` selects.
    pub(super) fn forget_freed(&self, holds: impl Fn(Tag) -> bool) {
        self.freed.borrow_mut().retain(|places| !holds(places.key.tag));
    }

    /// The held places that the store knows, of the keys that `holds` selects; with `anew` it will know all.
    pub(super) fn held(&self, anew: bool, holds: impl Fn(Tag) -> bool) -> Vec<Places> {
        let mut held = self.held.borrow_mut();
        let picked = held.values_mut().filter(|held| holds(held.key.tag));
        let known = picked.map(|held| {
            if anew {
                // The store may have given those that no request holds to others.
                held.places -= held.idle;
                held.idle = 0;
                held.unknown = 0;
            }
            Places { key: held.key.clone(), places: held.places - held.unknown }
        });
        known.filter(|places| places.places > 0).collect()
    }
}
