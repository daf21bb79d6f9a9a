//! Costs that were admitted without the store and are not reported to it yet.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_counters::{CountedLimit, Fingerprint};

use super::connection::random;
use super::key_name::StoreKey;

/// The largest number of keys that are remembered; costs of further keys are not reported.
const MAX_KEYS: usize = 100_000;

/// The spending of all keys that the store has not heard of, shared by the threads of a gateway.
#[derive(Default)]
pub(super) struct Unreported {
    keys: Mutex<HashMap<(u64, Fingerprint), Spent>>,
    /// How many those are, to look at without a lock.
    count: AtomicUsize,
}

/// What one key spent.
struct Spent {
    key: StoreKey,
    /// The sum of the costs that were admitted since the last report.
    fresh: u64,
    /// The report that is in flight, or that may or may not have arrived.
    report: Option<(ReportId, u64)>,
}

/// Identifies a report: the store charges it once, however often it arrives.
pub(super) type ReportId = [u8; 8];

/// What a key spent, as it is told to the store.
pub(super) struct Report {
    pub(super) key: StoreKey,
    pub(super) id: ReportId,
    pub(super) amount: u64,
}

impl Unreported {
    /// Notes what was admitted without the store.
    pub(super) fn add(&self, key: &StoreKey, cost: u64) {
        let mut keys = self.locked();
        let room = keys.len() < MAX_KEYS;
        match keys.entry(key.id()) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.fresh = known.fresh.saturating_add(cost);
                known.key = key.clone();
            }
            Entry::Vacant(place) if room => {
                place.insert(Spent { key: key.clone(), fresh: cost, report: None });
            }
            Entry::Vacant(_) => {}
        }
        self.count.store(keys.len(), Ordering::Relaxed);
    }

    /// Whether there is anything.
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Whether the store has not heard of all that this key spent.
    pub(super) fn has(&self, limit: &CountedLimit, key: Fingerprint) -> bool {
        self.any() && self.locked().contains_key(&(limit.counters.order, key))
    }

    /// The reports of the keys that `wanted` picks. `still` says how much of what a key spent has not come back to it
    /// by itself. A report without an answer is made again as it was.
    pub(super) fn reports(
        &self,
        wanted: impl Fn(&StoreKey) -> bool,
        still: impl Fn(&StoreKey) -> u64,
    ) -> Vec<Report> {
        let mut keys = self.locked();
        let mut reports = Vec::new();
        keys.retain(|_, spent| {
            if !wanted(&spent.key) {
                return true;
            }
            if spent.report.is_none() {
                let amount = std::mem::take(&mut spent.fresh).min(still(&spent.key));
                spent.report = (amount > 0).then(|| (random(), amount));
            }
            let Some((id, amount)) = spent.report else { return false };
            reports.push(Report { key: spent.key.clone(), id, amount });
            true
        });
        self.count.store(keys.len(), Ordering::Relaxed);
        reports
    }

    /// The store has heard of a report. Whether it now knows of all that the key spent.
    pub(super) fn heard(&self, report: &Report) -> bool {
        let mut keys = self.locked();
        let Entry::Occupied(mut known) = keys.entry(report.key.id()) else { return true };
        let spent = known.get_mut();
        if spent.report.is_some_and(|(id, _)| id == report.id) {
            spent.report = None;
        }
        let all = spent.report.is_none() && spent.fresh == 0;
        if all {
            known.remove();
        }
        self.count.store(keys.len(), Ordering::Relaxed);
        all
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<(u64, Fingerprint), Spent>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_limiter::{FixedWindow, Quota, Rate, Span};

    use super::*;
    use crate::fixture;
    use crate::key_name::Tag;
    use sluicegate_counters::KeyText;

    /// A report is repeated as it was until it is heard, what is spent meanwhile is in the next one, and what has come back
    /// by itself is in none.
    #[test]
    fn a_report_is_repeated_until_it_is_heard() {
        let rate = Rate::new(100, Span::from_secs(60)).expect("a rate");
        let limit =
            std::sync::Arc::new(fixture::limit(Quota::FixedWindow(FixedWindow::new(rate), rate), 10, 0));
        let tag = Tag::of(&KeyText::from_slice(b"k"));
        let key = StoreKey { limit, key: Fingerprint::from_hash(1), tag };
        let unreported = Unreported::default();
        let reports = |still: u64| unreported.reports(|_| true, |_| still);
        unreported.add(&key, 5);
        unreported.add(&key, 2);
        let first = reports(100).remove(0);
        unreported.add(&key, 3);
        let again = reports(100).remove(0);
        assert_eq!((first.id, first.amount), (again.id, 7));
        assert!(!unreported.heard(&again));
        let second = reports(2).remove(0);
        assert_eq!(second.amount, 2, "one of the three has come back by itself");
        assert!(!unreported.heard(&first) && unreported.has(&key.limit, key.key), "it was heard before");
        assert!(unreported.heard(&second) && !unreported.any());
        unreported.add(&key, 3);
        assert!(reports(0).is_empty() && !unreported.any());
    }
}
