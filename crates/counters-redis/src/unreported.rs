//! Costs that were admitted without the store and are not reported to it yet.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_counters::{CountedLimit, Fingerprint};

use super::key_name::StoreKey;
use super::random::random;

/// The largest number of keys that are remembered; costs of further keys are not reported.
const MAX_KEYS: usize = 100_000;

/// The unreported costs of all keys, shared by the workers of a gateway.
#[derive(Default)]
pub(super) struct Unreported {
    keys: Mutex<HashMap<(u64, Fingerprint), Spent>>,
    /// The number of keys, which can be read without a lock.
    count: AtomicUsize,
}

/// The unreported costs of one key.
struct Spent {
    key: StoreKey,
    /// The sum of the costs that were admitted since the last report.
    fresh: u64,
    /// The report that was sent and is not acknowledged.
    report: Option<(ReportId, u64)>,
}

/// Identifies a report: the store charges it once, however often it arrives.
pub(super) type ReportId = [u8; 8];

/// The costs of a key in a report.
pub(super) struct Report {
    pub(super) key: StoreKey,
    pub(super) id: ReportId,
    pub(super) amount: u64,
}

impl Unreported {
    /// Adds a cost that was admitted without the store.
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

    /// Whether the key has unreported costs.
    pub(super) fn has(&self, limit: &CountedLimit, key: Fingerprint) -> bool {
        self.any() && self.locked().contains_key(&(limit.counters.id, key))
    }

    /// The reports of the keys that `wanted` selects. `still` returns how much of the costs of a key has not drained. A
    /// report that was not acknowledged is repeated unchanged.
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

    /// The store has acknowledged a report. Returns whether all costs of the key are reported now.
    pub(super) fn acknowledge(&self, report: &Report) -> bool {
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

    /// A report is repeated unchanged until it is acknowledged. Costs of the meantime are in the next one, and costs that
    /// have drained are in none.
    #[test]
    fn a_report_is_repeated_until_it_is_acknowledged() {
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
        assert!(!unreported.acknowledge(&again));
        let second = reports(2).remove(0);
        assert_eq!(second.amount, 2, "one of the three has come back by itself");
        assert!(
            !unreported.acknowledge(&first) && unreported.has(&key.limit, key.key),
            "it was heard before"
        );
        assert!(unreported.acknowledge(&second) && !unreported.any());
        unreported.add(&key, 3);
        assert!(reports(0).is_empty() && !unreported.any());
    }
}
