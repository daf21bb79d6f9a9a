//! Charges that may still be refunded, apart from the states of their keys.
//!
//! The amount of a refund depends on earlier refunds and on reloads since the charge. So the charge of a request whose cost is
//! settled later is kept here, under the lock of its key, until the request ends.

use std::collections::HashMap;

use sluicegate_limiter::Charge;

/// The charges of one shard, by key. Most limits have none.
#[allow(clippy::box_collection, reason = "a lock and all behind it fit two cache lines")]
#[derive(Default)]
pub(super) struct OpenCharges(Option<Box<HashMap<u64, Charges>>>);

/// The charges of one key, in the order in which they were made.
#[derive(Default)]
struct Charges {
    next: u32,
    tickets: Vec<u32>,
    charges: Vec<Charge>,
}

impl OpenCharges {
    /// Keeps a charge; returns the ticket with which it is taken out again.
    pub(super) fn put(&mut self, key: u64, charge: Charge) -> u32 {
        let of_key = self.0.get_or_insert_default().entry(key).or_default();
        let ticket = of_key.next;
        of_key.next = ticket.wrapping_add(1);
        of_key.tickets.push(ticket);
        of_key.charges.push(charge);
        ticket
    }

    /// Takes a charge out and passes it, with the others of the key, to `then`.
    pub(super) fn take<T>(
        &mut self,
        key: u64,
        ticket: u32,
        then: impl FnOnce(Charge, &mut [Charge]) -> T,
    ) -> Option<T> {
        let keys = self.0.as_mut()?;
        let of_key = keys.get_mut(&key)?;
        let at = of_key.tickets.iter().position(|open| *open == ticket)?;
        of_key.tickets.remove(at);
        let charge = of_key.charges.remove(at);
        let said = then(charge, &mut of_key.charges);
        if of_key.charges.is_empty() {
            keys.remove(&key);
            if keys.is_empty() {
                self.0 = None;
            }
        }
        Some(said)
    }

    /// The charges of a key.
    pub(super) fn of(&mut self, key: u64) -> &mut [Charge] {
        let of_key = self.0.as_mut().and_then(|keys| keys.get_mut(&key));
        of_key.map_or(&mut [], |of_key| &mut of_key.charges)
    }

    /// Calls `change` for the charges of every key.
    pub(super) fn each(&mut self, mut change: impl FnMut(u64, &mut [Charge])) {
        for (key, of_key) in self.0.iter_mut().flat_map(|keys| keys.iter_mut()) {
            change(*key, &mut of_key.charges);
        }
    }
}
