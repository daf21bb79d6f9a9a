//! The busiest and the most refused keys of each limit, within the last hour.
//!
//! Each worker counts in [summaries](Summary) of its own. Every five minutes these are merged and put aside, and new ones
//! begin; what is asked for is merged from the last hour.

mod shared;
mod summary;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluicegate_limiter::{Span, Time};

pub use self::shared::{ShownCount, ShownTop, merged, published};
pub use self::summary::{AsItIs, Counted, Summary};
use sluicegate_base::named_enum::named_enum;
use sluicegate_route::keys::{Fingerprint, KeyText};

named_enum! {
    /// What keys are ranked by.
    Rank {
        /// The requests that the limit refused, or would have refused.
        Refused = "refused",
        /// All requests.
        Requests = "requests",
    }
}

/// The keys that a worker counts for a limit. A key that no limit knows is admitted, so floods of new keys hardly reach the
/// summary of refused ones, and it needs fewer places.
const PLACES: [usize; 2] = [256, 1_024];
/// Each summary may have so many; further ones are taken from what all summaries of the process share.
const OWN: usize = 16;
/// The places that all summaries share, some 100 bytes each.
const SHARED: usize = 1 << 18;
/// The keys that are kept of a period that is over, of a limit and of all limits.
const KEPT: usize = 256;
const KEPT_OF_ALL: usize = 1 << 14;
/// The least that is kept of a limit.
const KEPT_AT_LEAST: usize = 8;
/// The length of a period, and the number that are kept.
const PERIOD: Span = Span::from_secs(300);
const PERIODS: usize = 12;

/// The keys of one limit that one worker counts.
#[derive(Debug)]
pub struct WorkerTop {
    summaries: Mutex<[Summary; 2]>,
    /// The places that are taken of those that all summaries of the process share.
    taken: Arc<AtomicUsize>,
}

/// Keys with their counts, merged from several summaries.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    /// The keys, the busiest first.
    pub keys: Vec<Counted>,
    /// The most requests that a key that is not among them can have had.
    unseen: u64,
}

/// The keys of one limit.
#[derive(Debug, Default)]
struct LimitTop {
    workers: BTreeMap<usize, Arc<WorkerTop>>,
    /// Periods that are over, the oldest first.
    periods: VecDeque<[Ranking; 2]>,
}

/// The keys of all limits.
#[derive(Debug, Default)]
pub struct Tops(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    limits: HashMap<String, LimitTop>,
    taken: Arc<AtomicUsize>,
    /// When the current period began.
    begun: Option<Time>,
}

impl Drop for WorkerTop {
    fn drop(&mut self) {
        self.clear();
    }
}

impl WorkerTop {
    fn new(taken: &Arc<AtomicUsize>) -> Self {
        Self { summaries: Mutex::new(PLACES.map(Summary::new)), taken: Arc::clone(taken) }
    }

    /// Clears the summary and returns its places to the shared pool.
    fn clear(&self) {
        let mut summaries = self.summaries();
        let shared = summaries.iter().map(|summary| summary.places().len().saturating_sub(OWN)).sum();
        self.taken.fetch_sub(shared, Ordering::Relaxed);
        *summaries = PLACES.map(Summary::new);
    }

    /// Counts a request of a key.
    #[inline]
    pub fn count(&self, key: Fingerprint, text: &KeyText, refused: bool) {
        let [refusals, requests] = &mut *self.summaries();
        let may_grow = |has: usize| {
            let take = |taken: usize| (taken < SHARED).then_some(taken + 1);
            has < OWN || self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
        };
        requests.count(key, text, may_grow);
        if refused {
            refusals.count(key, text, may_grow);
        }
    }

    #[inline]
    fn summaries(&self) -> MutexGuard<'_, [Summary; 2]> {
        self.summaries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds up what several parts have counted. Where a key is not named, it may have had some requests all the same, which adds to
/// its error.
struct Merger<K, V> {
    /// What is known of a key, its count, its error, and what the parts that name it may have left out of other keys.
    all: HashMap<K, (V, u64, u64, u64)>,
    unseen: u64,
}

impl<K: Eq + std::hash::Hash, V> Merger<K, V> {
    fn new() -> Self {
        Self { all: HashMap::new(), unseen: 0 }
    }

    /// Adds the keys of a part with their counts and errors. A key that it does not name had at most `unseen` requests there.
    fn add(&mut self, keys: impl Iterator<Item = (K, V, u64, u64)>, unseen: u64) {
        self.unseen = self.unseen.saturating_add(unseen);
        for (key, known, more, more_error) in keys {
            let (_, count, error, seen) = self.all.entry(key).or_insert((known, 0, 0, 0));
            *count = count.saturating_add(more);
            *error = error.saturating_add(more_error);
            *seen = seen.saturating_add(unseen);
        }
    }

    /// All keys with their counts and errors, and what a key that no part names can have had.
    fn finish(self) -> (impl Iterator<Item = (V, u64, u64)>, u64) {
        let Self { all, unseen } = self;
        let of_key = move |(known, count, error, seen): (V, u64, u64, u64)| {
            (known, count, error.saturating_add(unseen.saturating_sub(seen)))
        };
        (all.into_values().map(of_key), unseen)
    }
}

impl Ranking {
    /// The keys of summaries and rankings together.
    fn merged<'a>(parts: impl Iterator<Item = (&'a [Counted], u64)>) -> Self {
        let mut merger = Merger::new();
        for (keys, unseen) in parts {
            let keys = keys.iter().map(|one| (one.key.get(), one, one.count, one.error));
            merger.add(keys, unseen);
        }
        let (counts, unseen) = merger.finish();
        let mut keys: Vec<Counted> = counts
            .map(|(one, count, error)| Counted { key: one.key, text: one.text.clone(), count, error })
            .collect();
        keys.sort_unstable_by(|one, other| (other.count, &one.text).cmp(&(one.count, &other.text)));
        Self { keys, unseen }
    }

    /// Keeps the first keys only.
    fn cut(mut self, most: usize) -> Self {
        if let Some(first) = self.keys.get(most) {
            self.unseen = self.unseen.max(first.count);
            self.keys.truncate(most);
        }
        self
    }
}

impl LimitTop {
    fn current(&self, rank: Rank) -> Ranking {
        let summaries: Vec<Summary> =
            self.workers.values().map(|worker| worker.summaries()[rank as usize].clone()).collect();
        Ranking::merged(summaries.iter().map(|summary| (summary.places(), summary.unseen())))
    }
}

impl Tops {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a worker counts the keys of a limit.
    pub fn of_worker(&self, limit: &str, worker: usize) -> Arc<WorkerTop> {
        let State { limits, taken, .. } = &mut *self.state();
        let limit = limits.entry(limit.to_owned()).or_default();
        Arc::clone(limit.workers.entry(worker).or_insert_with(|| Arc::new(WorkerTop::new(taken))))
    }

    /// Forgets all limits but these.
    pub fn retain(&self, limits: &HashSet<&str>) {
        self.state().limits.retain(|name, _| limits.contains(name.as_str()));
    }

    /// Begins a new period if it is time.
    pub fn advance(&self, now: Time) {
        let mut state = self.state();
        let begun = *state.begun.get_or_insert(now);
        if now.since(begun) < PERIOD {
            return;
        }
        state.begun = Some(now);
        let kept = (KEPT_OF_ALL / state.limits.len().max(1)).clamp(KEPT_AT_LEAST, KEPT);
        for limit in state.limits.values_mut() {
            let period = [Rank::Refused, Rank::Requests].map(|rank| limit.current(rank).cut(kept));
            limit.workers.values().for_each(|worker| worker.clear());
            limit.periods.push_back(period);
            if limit.periods.len() > PERIODS {
                limit.periods.pop_front();
            }
        }
    }

    /// The keys of a limit within the last hour, those with the most requests of a kind first.
    pub fn ranking(&self, limit: &str, rank: Rank) -> Ranking {
        let state = self.state();
        let Some(limit) = state.limits.get(limit) else { return Ranking::default() };
        let current = limit.current(rank);
        let periods = limit.periods.iter().map(|period| &period[rank as usize]).chain([&current]);
        Ranking::merged(periods.map(|part| (&part.keys[..], part.unseen)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Fingerprint {
        Fingerprint::from_hash((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn text(number: u64) -> KeyText {
        KeyText::from_slice(&number.to_be_bytes())
    }

    fn counts(tops: &Tops, rank: Rank) -> Vec<(KeyText, u64, u64)> {
        let all = tops.ranking("l", rank).keys.into_iter().filter(|one| one.count > one.error);
        all.map(|one| (one.text, one.count, one.error)).take(3).collect()
    }

    #[test]
    fn all_workers_count_together_for_an_hour() {
        let tops = Tops::default();
        let at = Time::from_nanos(1_795_000_000_000_000_000);
        tops.advance(at);
        let workers = [tops.of_worker("l", 0), tops.of_worker("l", 1)];
        for (number, times) in [(7, 5), (8, 3)] {
            (0..times).for_each(|_| workers[0].count(key(number), &text(number), number == 8));
        }
        (0..4).for_each(|_| workers[1].count(key(8), &text(8), true));
        assert_eq!(counts(&tops, Rank::Requests), [(text(8), 7, 0), (text(7), 5, 0)]);
        assert_eq!(counts(&tops, Rank::Refused), [(text(8), 7, 0)]);
        for period in 1..=12 {
            tops.advance(at.plus(Span::from_secs(300 * period)));
            assert_eq!(counts(&tops, Rank::Refused), [(text(8), 7, 0)], "{period}");
        }
        workers[1].count(key(9), &text(9), false);
        tops.advance(at.plus(Span::from_secs(3_900)));
        assert_eq!(counts(&tops, Rank::Requests), [(text(9), 1, 0)]);
        tops.retain(&HashSet::new());
        assert!(counts(&tops, Rank::Requests).is_empty());
    }

    /// Many limits on many workers share a bounded number of places, and each has some of its own.
    #[test]
    fn all_limits_together_have_a_bounded_number_of_places() {
        let tops = Tops::default();
        tops.advance(Time::from_nanos(0));
        let workers: Vec<_> = (0..400).flat_map(|limit| (0..2).map(move |worker| (limit, worker))).collect();
        let workers: Vec<_> =
            workers.iter().map(|(limit, worker)| tops.of_worker(&format!("l{limit}"), *worker)).collect();
        let places = || {
            let sum = |worker: &Arc<WorkerTop>| {
                worker.summaries().iter().map(|one| one.places().len()).sum::<usize>()
            };
            workers.iter().map(sum).sum::<usize>()
        };
        for worker in &workers {
            (0..600).for_each(|number| worker.count(key(number), &text(number), true));
        }
        assert!((SHARED..=SHARED + workers.len() * 2 * OWN).contains(&places()), "{}", places());
        let last = workers.last().map(|worker| worker.summaries()[1].places().len());
        assert_eq!(last, Some(OWN));
        tops.advance(Time::EPOCH.plus(PERIOD));
        assert_eq!((places(), tops.state().taken.load(Ordering::Relaxed)), (0, 0));
        drop(workers);
        tops.retain(&HashSet::new());
        assert_eq!(tops.state().taken.load(Ordering::Relaxed), 0);
    }

    /// A flood of keys that come once hides nobody who is frequent, and memory stays bounded.
    #[test]
    fn a_flood_of_keys_hides_nobody() {
        let tops = Tops::default();
        let worker = tops.of_worker("l", 0);
        for number in 0..100_000 {
            worker.count(key(number + 10), &text(number + 10), false);
            if number % 50 == 0 {
                worker.count(key(1), &text(1), false);
            }
        }
        let mut all = tops.ranking("l", Rank::Requests).keys;
        all.retain(|one| one.count > one.error);
        assert_eq!(all[0].text, text(1));
        assert!(all[0].count >= 2_000 && all[0].count - all[0].error <= 2_000, "{:?}", all[0]);
        assert!(all.len() <= 1_024);
    }
}
