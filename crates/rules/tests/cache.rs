//! The cache against a slow model, and what its documentation promises.
#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use sluicegate_limiter::{Span, Time};
use sluicegate_rules::{Lookup, Token, VerdictCache};

/// 2026-01-01 00:00:00 UTC.
const START: u64 = 1_767_225_600_000_000_000;
const SECOND: u64 = 1_000_000_000;
/// How exactly the cache keeps times.
const UNIT: u64 = 1 << 26;
const TTL: Span = Span::from_secs(30);

fn at(seconds: u64) -> Time {
    Time::from_nanos(START + seconds * SECOND)
}

fn put(cache: &VerdictCache, key: u64, verdict: u32, now: Time) {
    cache.put(key, verdict, now, TTL, None, cache.begin(key));
}

#[derive(Clone, Debug)]
enum Step {
    Get(u64),
    Begin(u64),
    /// The verdict, the time to live, and until when it is valid from now on, in milliseconds.
    Put(u64, u64, Option<u64>),
    Invalidate(u64),
    InvalidateAll,
    /// In milliseconds.
    Wait(u64),
}

fn step(keys: u64) -> impl Strategy<Value = Step> {
    let key = move || 1..=keys;
    prop_oneof![
        12 => key().prop_map(Step::Get),
        3 => key().prop_map(Step::Begin),
        6 => (key(), 0_u64..40_000, prop::option::of(0_u64..40_000)).prop_map(|(k, t, u)| Step::Put(k, t, u)),
        1 => key().prop_map(Step::Invalidate),
        1 => Just(Step::InvalidateAll),
        6 => prop_oneof![0_u64..300, 0_u64..9_000].prop_map(Step::Wait),
    ]
}

/// An entry of the model. Times in nanoseconds; an entry is surely fresh before the first end, and ended at the second.
#[derive(Clone, Debug)]
struct Entry {
    key: u64,
    verdict: u32,
    put: u64,
    ends: (u64, u64),
    /// Invalidated, or stored with an outdated token.
    outdated: bool,
    refreshed: Option<u64>,
}

#[derive(Default)]
struct Model {
    now: u64,
    entries: Vec<Entry>,
    /// The tokens that were taken, each with its key, and whether that key was invalidated since.
    tokens: Vec<(u64, Token, bool)>,
}

impl Model {
    fn entry(&mut self, key: u64) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.key == key)
    }

    fn check(&mut self, key: u64, lookup: Lookup, may_be_evicted: bool) {
        let now = self.now;
        let Some(entry) = self.entry(key) else {
            assert_eq!(lookup, Lookup::Missing);
            return;
        };
        let (surely, ended) =
            (now + UNIT < entry.ends.0 && !entry.outdated, now >= entry.ends.1 || entry.outdated);
        match lookup {
            Lookup::Missing => assert!(may_be_evicted, "{entry:?}"),
            Lookup::Stale(verdict) => {
                assert_eq!(verdict, entry.verdict);
                assert!(!surely, "{now} {entry:?}");
            }
            Lookup::Fresh(verdict) => {
                assert_eq!(verdict, entry.verdict);
                assert!(!ended, "{now} {entry:?}");
                let due = entry.put + (entry.ends.1 - entry.put) * 4 / 5 + UNIT;
                let due = entry.refreshed.map_or(due, |last| due.max(last + SECOND + 2 * UNIT));
                assert!(now < due, "{now} {entry:?}: no refresh");
            }
            Lookup::Refresh(verdict) => {
                assert_eq!(verdict, entry.verdict);
                assert!(!ended, "{now} {entry:?}");
                assert!(now + 2 * UNIT >= entry.put + (entry.ends.0 - entry.put) * 4 / 5, "{now} {entry:?}");
                assert!(entry.refreshed.is_none_or(|last| now + UNIT >= last + SECOND), "{now} {entry:?}");
                entry.refreshed = Some(now);
            }
        }
    }

    fn put(&mut self, mut entry: Entry, cache: &VerdictCache, may_be_evicted: bool) {
        let now = self.now;
        // Whether an outdated value replaces one that may just have ended, the cache says.
        if entry.outdated
            && let Some(old) = self.entry(entry.key)
        {
            let (is, refreshed) = match cache.get(entry.key, Time::from_nanos(now)) {
                Lookup::Fresh(is) | Lookup::Stale(is) => (is, None),
                Lookup::Refresh(is) => (is, Some(now)),
                Lookup::Missing => panic!("just stored"),
            };
            if is != entry.verdict {
                assert!(!old.outdated && now < old.ends.1, "{old:?}");
                old.refreshed = refreshed.or(old.refreshed);
                return;
            }
            assert!(may_be_evicted || old.outdated || now + UNIT >= old.ends.0, "{old:?}");
            entry.refreshed = refreshed;
        }
        self.entries.retain(|old| old.key != entry.key);
        self.entries.push(entry);
    }
}

fn run(cache: &VerdictCache, steps: &[Step], may_be_evicted: bool, max: usize) {
    let mut model = Model { now: START, ..Model::default() };
    for (verdict, step) in (0_u32..).zip(steps) {
        let now = Time::from_nanos(model.now);
        match *step {
            Step::Get(key) => {
                let lookup = cache.get(key, now);
                model.check(key, lookup, may_be_evicted);
            }
            Step::Begin(key) => model.tokens.push((key, cache.begin(key), false)),
            Step::Put(key, ttl, until) => {
                let taken = model.tokens.iter().position(|(of, ..)| *of == key);
                let (token, outdated) = match taken.map(|at| model.tokens.remove(at)) {
                    Some((_, token, outdated)) => (token, outdated),
                    None => (cache.begin(key), false),
                };
                let put = model.now;
                let until = until.map(|millis| put + millis * 1_000_000);
                cache.put(key, verdict, now, Span::from_millis(ttl), until.map(Time::from_nanos), token);
                let end = |tenths| until.unwrap_or(u64::MAX).min(put + ttl * 100_000 * tenths);
                let entry = Entry { key, verdict, put, ends: (end(9), end(11)), outdated, refreshed: None };
                model.put(entry, cache, may_be_evicted);
            }
            // All keys of these tests are in one shard, and invalidations are counted per shard.
            Step::Invalidate(key) => {
                cache.invalidate(key);
                model.tokens.iter_mut().for_each(|(.., outdated)| *outdated = true);
                model.entry(key).into_iter().for_each(|entry| entry.outdated = true);
            }
            Step::InvalidateAll => {
                cache.invalidate_all();
                model.tokens.iter_mut().for_each(|(.., outdated)| *outdated = true);
                model.entries.iter_mut().for_each(|entry| entry.outdated = true);
            }
            Step::Wait(millis) => model.now += millis * 1_000_000,
        }
        assert!(cache.len() <= max);
        assert!(may_be_evicted || cache.len() == model.entries.len());
    }
}

fn config() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 500;
    }
    config.failure_persistence = Some(Box::new(FileFailurePersistence::Direct("tests/regressions.txt")));
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn behaves_as_the_model_while_there_is_room(steps in prop::collection::vec(step(8), 0..300)) {
        run(&VerdictCache::new(8), &steps, false, 8);
    }

    #[test]
    fn is_never_wrong_when_it_evicts(steps in prop::collection::vec(step(20), 0..300)) {
        run(&VerdictCache::new(7), &steps, true, 7);
    }
}

#[test]
fn one_caller_refreshes_in_each_second() {
    let cache = VerdictCache::new(10_000);
    put(&cache, 7, 1, at(0));
    let refreshes = |from: u64, to: u64| {
        let count = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for millis in (from..to).step_by(20) {
                        let now = Time::from_nanos(START + millis * 1_000_000);
                        let refresh = cache.get(7, now) == Lookup::Refresh(1);
                        count.fetch_add(usize::from(refresh), Ordering::Relaxed);
                    }
                });
            }
        });
        count.into_inner()
    };
    assert_eq!(refreshes(0, 21_500), 0);
    assert_eq!(refreshes(26_500, 26_520), 1);
    assert_eq!(refreshes(26_500, 26_520), 0);
    put(&cache, 7, 1, at(26));
    assert_eq!(refreshes(26_500, 26_520), 0);
}

#[test]
fn a_refresh_that_fails_is_tried_again_after_a_second() {
    let cache = VerdictCache::new(1);
    let at_millis = |millis: u64| Time::from_nanos(START + millis * 1_000_000);
    cache.put(7, 1, at(0), Span::from_secs(3_600), None, cache.begin(7));
    let times: Vec<u64> = (3_200_000..3_230_000)
        .step_by(10)
        .filter(|millis| cache.get(7, at_millis(*millis)) == Lookup::Refresh(1))
        .collect();
    assert!(times.len() > 25, "{times:?}");
    for pair in times.windows(2) {
        assert!((930..=1_070).contains(&(pair[1] - pair[0])), "{times:?}");
    }
}

#[test]
fn what_is_asked_for_outlives_what_was_only_stored() {
    let cache = VerdictCache::new(100);
    for key in 1..=50 {
        put(&cache, key, 1, at(0));
        assert_eq!(cache.get(key, at(0)), Lookup::Fresh(1));
    }
    (51..=120).for_each(|key| put(&cache, key, 2, at(0)));
    assert_eq!(cache.len(), 100);
    assert!((1..=50).all(|key| cache.get(key, at(0)) == Lookup::Fresh(1)));
}

#[test]
fn an_entry_ends_where_its_rule_does() {
    let cache = VerdictCache::new(100);
    cache.put(1, 5, at(0), TTL, Some(at(10)), cache.begin(1));
    assert_eq!(cache.get(1, at(7)), Lookup::Fresh(5));
    assert_eq!(cache.get(1, at(10)), Lookup::Stale(5));
    // A rule that ended long ago.
    for years in 1..=56 {
        let until = Time::from_nanos(START - years * 365 * 86_400 * SECOND);
        cache.put(1, 6, at(0), TTL, Some(until), cache.begin(1));
        assert_eq!(cache.get(1, at(0)), Lookup::Stale(6), "{years}");
    }
    // A time to live of more than a year.
    cache.put(1, 7, at(0), Span::MAX, None, cache.begin(1));
    assert_eq!(cache.get(1, at(250 * 86_400)), Lookup::Fresh(7));
    assert_eq!(cache.get(1, at(500 * 86_400)), Lookup::Stale(7));
}

#[test]
fn an_invalidation_between_asking_and_storing_is_not_lost() {
    let invalidations: [fn(&VerdictCache); 2] =
        [|cache| _ = cache.invalidate(3), VerdictCache::invalidate_all];
    for invalidate in invalidations {
        let cache = VerdictCache::new(100);
        let token = cache.begin(3);
        invalidate(&cache);
        cache.put(3, 1, at(0), TTL, None, token);
        assert_eq!(cache.get(3, at(0)), Lookup::Stale(1));
        // What was asked for later is newer and stays.
        put(&cache, 3, 2, at(0));
        cache.put(3, 1, at(0), TTL, None, token);
        assert_eq!(cache.get(3, at(0)), Lookup::Fresh(2));
    }
}

#[test]
fn what_is_invalidated_is_served_as_stale() {
    let cache = VerdictCache::new(100);
    (1..=3).for_each(|key| put(&cache, key, key as u32, at(0)));
    cache.invalidate(2);
    cache.invalidate(99);
    assert_eq!(
        [1, 2, 3].map(|key| cache.get(key, at(1))),
        [Lookup::Fresh(1), Lookup::Stale(2), Lookup::Fresh(3)]
    );
    cache.invalidate_all();
    assert_eq!([1, 2, 3].map(|key| cache.get(key, at(1))), [1, 2, 3].map(Lookup::Stale));
    assert_eq!((cache.len(), cache.get(99, at(1))), (3, Lookup::Missing));
    put(&cache, 2, 4, at(1));
    assert_eq!(cache.get(2, at(1)), Lookup::Fresh(4));
}

#[test]
fn entries_that_were_stored_together_do_not_end_together() {
    let cache = VerdictCache::new(10_000);
    let keys = 1..=1_000_u64;
    keys.clone().for_each(|key| put(&cache, key.wrapping_mul(0xd134_2543_de82_ef95), 1, at(0)));
    let fresh = |second| {
        let lookup = |key: &u64| cache.get(key.wrapping_mul(0xd134_2543_de82_ef95), at(second));
        keys.clone().filter(|key| !matches!(lookup(key), Lookup::Stale(1))).count()
    };
    assert_eq!(fresh(26), 1_000);
    assert!((400..600).contains(&fresh(30)), "{}", fresh(30));
    assert_eq!(fresh(34), 0);
}

#[test]
fn a_full_cache_takes_at_most_40_bytes_per_entry() {
    for max in [1_000, 10_000, 300_000] {
        let cache = VerdictCache::new(max);
        // Numbers that look like those of a hash.
        let keys =
            |count: usize| (1..=count as u64).map(|n| n.wrapping_mul(0xd134_2543_de82_ef95).rotate_left(31));
        keys(2 * max).for_each(|key| put(&cache, key, 1, at(0)));
        assert!(cache.len() <= max && cache.len() > max * 99 / 100, "{} of {max}", cache.len());
        let each = cache.bytes() as f64 / cache.len() as f64;
        assert!(each <= 40.0, "{each} bytes with {max}");
    }
}
