//! Charges that a store has made for this process and that may still be refunded.

use sluicegate_limiter::{Algorithm, Charge, Quota, Receipt, Tat, Time};

use super::Fingerprint;
use super::open_charges::OpenCharges;
use super::sync::{Mutex, lock};

/// The charges of one limit in a store that may still be refunded.
pub struct RemoteCharges(Mutex<State>);

struct State {
    /// The quota in force.
    quota: Quota,
    /// Charges that were made under this quota.
    open: OpenCharges,
}

impl RemoteCharges {
    pub(super) fn new(quota: &Quota) -> Self {
        Self(Mutex::new(State { quota: *quota, open: OpenCharges::default() }))
    }

    /// Another quota is in force. Charges under the old one are converted when they are refunded.
    pub(super) fn reconfigure(&self, quota: &Quota) {
        let mut state = lock(&self.0);
        if state.quota != *quota {
            *state = State { quota: *quota, open: OpenCharges::default() };
        }
    }

    /// The quota in force.
    pub fn quota(&self) -> Quota {
        lock(&self.0).quota
    }

    /// Keeps a charge that was made under `quota`; its ticket, unless another quota is in force by now.
    pub fn open(&self, key: Fingerprint, quota: &Quota, cost: u64, receipt: Receipt) -> Option<u32> {
        let mut state = lock(&self.0);
        (state.quota == *quota).then(|| state.open.put(key.get(), quota.charged(cost, receipt)))
    }

    /// Ends a charge, of which the last `cost` of the `whole` is refunded at `now`. Returns the part to refund, or `None` if
    /// the charge is not known any more because the quota has changed.
    pub fn close(
        &self,
        key: Fingerprint,
        now: Time,
        charge: u32,
        (cost, whole): (u64, u64),
    ) -> Option<Charge> {
        let mut state = lock(&self.0);
        let State { quota, open } = &mut *state;
        open.take(key.get(), charge, |charge, others| {
            let part = charge.last_part(cost, whole);
            move_up(quota, now, part, others);
            part
        })
    }

    /// The part to refund at `now`, under the quota in force, of a charge that was made under `old`.
    pub fn carried(&self, old: &Quota, charge: Charge, now: Time) -> Charge {
        let mut charges = [charge];
        match (self.quota(), old) {
            (Quota::TokenBucket(new, ..), Quota::TokenBucket(old, ..)) => {
                new.carry(old, &Tat::until(charge.at()), now, &mut charges);
            }
            (Quota::FixedWindow(new, _), Quota::FixedWindow(old, _)) => {
                new.carry(old, &Default::default(), now, &mut charges);
            }
            (Quota::SlidingWindow(new, _), Quota::SlidingWindow(old, _)) => {
                new.carry(old, &Default::default(), now, &mut charges);
            }
            _ => {} // the instants of a log do not change; queues and places have no late costs
        }
        charges[0]
    }
}

/// After a refund, later charges of a bucket are paid earlier. Other algorithms have no such order.
fn move_up(quota: &Quota, now: Time, charge: Charge, others: &mut [Charge]) {
    if let Quota::TokenBucket(bucket, ..) = quota {
        bucket.take_back(&mut Tat::until(charge.at()), now, charge, others);
    }
}
