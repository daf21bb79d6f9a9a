//! Places of concurrency limits in the store are leases: those of a gateway that dies expire.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

use sluicegate_counters::{Fingerprint, RemoteHold};
use tokio::sync::Notify;

use super::key_name::{StoreKey, Tag};
use super::store::Store;

/// The places that requests of one worker hold, also those that the store does not know.
#[derive(Default)]
pub(super) struct Leases {
    held: RefCell<HashMap<(u64, Fingerprint), Held>>,
    freed: RefCell<Vec<Places>>,
    /// Notified when places are freed.
    pub(super) some_freed: Notify,
}

struct Held {
    key: StoreKey,
    places: u64,
    /// The number of them that the store does not know.
    unknown: u64,
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
        let new = || Held { key: key.clone(), places: 0, unknown: 0 };
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
        of_key.places = of_key.places.saturating_sub(self.places);
        if of_key.places == 0 {
            held.remove(&id);
        }
        if self.places > unknown {
            leases.freed.borrow_mut().push(Places { key: self.key.clone(), places: self.places - unknown });
            leases.some_freed.notify_one();
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
                held.unknown = 0;
            }
            Places { key: held.key.clone(), places: held.places - held.unknown }
        });
        known.filter(|places| places.places > 0).collect()
    }
}
