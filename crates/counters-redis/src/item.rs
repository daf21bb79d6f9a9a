//! The limits of a request, as calls of the store have them.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use sluicegate_counters::{Ask, CountedLimit, Fingerprint, KeyState, RemoteState};
use sluicegate_limiter::{Receipt, Time, Usage};
use smallvec::SmallVec;

use super::key_name::StoreKey;
use super::protocol;

/// The holder of charges that are not leases.
pub(super) const NOBODY: [u8; 8] = [0; 8];

/// One limit of a request.
#[derive(Clone)]
pub(super) struct Item {
    pub(super) key: StoreKey,
    pub(super) cost: u64,
    pub(super) base: u64,
    /// Whether the charge is kept in the holds, so that it can be undone.
    pub(super) for_now: bool,
    /// Whether the cost is that of many requests.
    pub(super) many: bool,
}

/// The shared limits of a request.
pub(super) type Items = SmallVec<[Item; 2]>;

impl Item {
    pub(super) fn of(ask: &Ask<'_>) -> Self {
        Self { key: StoreKey::of(ask), cost: ask.cost, base: ask.base, for_now: ask.for_now, many: false }
    }

    pub(super) fn limit(&self) -> &Arc<CountedLimit> {
        &self.key.limit
    }

    /// The argument of the limit.
    pub(super) fn argument(&self) -> Cow<'_, [u8]> {
        let usual = self.limit().shared.as_ref().filter(|_| !self.many);
        match usual.and_then(|shared| shared.argument.as_ref()) {
            Some(argument) => Cow::Borrowed(argument),
            None => Cow::Owned(protocol::limit_argument(self.limit(), self.cost)),
        }
    }
}

/// A charge that the request does not hold, because it is final once the request has its decision: the place of the limit in the
/// batch, the receipt, and the holder.
pub(super) type FinalCharge = (usize, Receipt, [u8; 8]);

/// Whether the state of a key that the store returned at `now` leaves less than the state that is known.
pub(super) fn is_stricter(limit: &CountedLimit, key: Fingerprint, state: &RemoteState, now: Time) -> bool {
    let left = |usage: Usage| (usage.remaining, Reverse(usage.reset));
    limit.usage(key, now).is_none_or(|known| left(state.usage(now)) < left(known))
}
