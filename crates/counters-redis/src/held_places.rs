//! The places that the requests of one worker hold.

use std::cell::RefCell;
use std::collections::HashMap;

use sluicegate_counters::Fingerprint;
use sluicegate_limiter::{Span, Time};
use tokio::sync::Notify;

use super::key_name::{StoreKey, Tag};
use super::places::Places;

/// For how long a place without a request is kept for the next one.
pub(super) const IDLE: Span = Span::from_millis(500);

/// The places that requests of one worker hold, also those that the store does not know.
#[derive(Default)]
pub(super) struct Leases {
    pub(super) held: RefCell<HashMap<(u64, Fingerprint), Held>>,
    pub(super) freed: RefCell<Vec<Places>>,
    /// Notified when places are freed.
    pub(super) some_freed: Notify,
    /// Notified when places are kept for the next request.
    pub(super) some_idle: Notify,
}

pub(super) struct Held {
    pub(super) key: StoreKey,
    pub(super) places: u64,
    /// The number of them that the store does not know.
    pub(super) unknown: u64,
    /// The number of them that no request holds: they are kept for the next.
    pub(super) idle: u64,
    /// When a request took or left one of these last.
    pub(super) used: Time,
}

impl Leases {
    pub(super) fn has_idle(&self) -> bool {
        self.held.borrow().values().any(|of_key| of_key.idle > 0)
    }

    /// Frees the places that were kept for too long.
    pub(super) fn free_unused(&self, now: Time) {
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
