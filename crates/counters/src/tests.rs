//! What users rely on when threads meet and tables fill up.
#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_limiter::{
    Algorithm, Ban, Concurrency, FixedWindow, LeakyBucket, Quota, Rate, SlidingLog, Span, Time, TokenBucket,
};

use super::fixture::limit;
use super::{Ask, Bans, CostKind, CountedLimit, Decision, LateCost, decide, decide_for_now, decide_send};
use crate::Fingerprint;
use crate::RemoteState;

fn rate(count: u64, seconds: u64) -> Rate {
    Rate::new(count, Span::from_secs(seconds)).unwrap()
}

fn token(count: u64, seconds: u64, burst: u64) -> Quota {
    let rate = rate(count, seconds);
    Quota::TokenBucket(TokenBucket::new(rate, burst).unwrap(), rate, burst)
}

fn fixed(count: u64, seconds: u64) -> Quota {
    let rate = rate(count, seconds);
    Quota::FixedWindow(FixedWindow::new(rate), rate)
}

fn now() -> Time {
    Time::from_nanos(1_795_000_000_000_000_000)
}

/// A well-spread key, as the hash of a real one would be.
fn key(n: u64) -> Fingerprint {
    let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Fingerprint::from_hash((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9))
}

fn ask(limit: &Arc<CountedLimit>, n: u64) -> Ask<'_> {
    Ask::new(limit, key(n), 1, now())
}

fn one(limit: &Arc<CountedLimit>, n: u64, now: Time) -> Decision {
    decide(&[Ask::new(limit, key(n), 1, now)], false)
}

/// A decision about limits of this process may go to another thread with all that it holds.
#[test]
fn a_decision_can_be_sent_to_another_thread() {
    let places = limit(Quota::Concurrency(Concurrency::new(1).unwrap(), 1), 100, 0);
    let ask = || decide_send(&[ask(&places, 1)], false);
    let held = ask();
    assert!(held.admitted && !ask().admitted);
    std::thread::spawn(move || drop(held)).join().unwrap();
    assert!(ask().admitted, "the other thread has freed the place");
}

/// A request may ask one limit twice, about one key or two: it takes from both or from neither, and blocks nobody.
#[test]
fn a_limit_that_is_asked_twice_takes_both_or_neither() {
    let leaky = LeakyBucket::new(rate(1, 3_600), 6, None).unwrap();
    let places = Concurrency::new(6).unwrap();
    let log = SlidingLog::new(rate(6, 3_600), false).unwrap();
    let quotas = [
        token(1, 3_600, 6),
        fixed(6, 3_600),
        Quota::LeakyBucket(leaky, rate(1, 3_600), 6),
        Quota::SlidingLog(log, rate(6, 3_600)),
        Quota::Concurrency(places, 6),
    ];
    for quota in quotas {
        let (twice, other) = (limit(quota, 100, 0), limit(fixed(100, 3_600), 100, 1));
        let asks = |n: u64| [ask(&twice, 1), ask(&other, 1), ask(&twice, n)];
        let taken = |decision: &Decision| decision.admitted.then_some(()).is_some();
        let held: Vec<Decision> = (0..3).map(|_| decide(&asks(1), false)).collect();
        assert!(held.iter().all(taken), "{quota:?}: three requests that cost two each");
        assert!(!decide(&asks(1), false).admitted, "{quota:?}");
        assert!(!decide(&asks(2), false).admitted, "{quota:?}: the first key has nothing left");
        assert_eq!(twice.usage(key(2), now()).map_or(6, |usage| usage.remaining), 6, "{quota:?}");
        assert_eq!(other.usage(key(1), now()).unwrap().remaining, 97, "{quota:?}: refusals took nothing");
        assert_eq!(super::refuse(&asks(1)).verdicts.len(), 3);
    }
}

/// Two processes that count a limit independently stay within it together, however short the queue of a leaky bucket is.
#[test]
fn a_share_is_a_part_of_the_limit() {
    let leaky = |max_delay| {
        let rate = rate(1, 1);
        Quota::LeakyBucket(LeakyBucket::new(rate, 12, max_delay).unwrap(), rate, 12)
    };
    for quota in [leaky(None), leaky(Some(Span::ZERO)), token(1, 1, 12), fixed(10, 10)] {
        let limit = limit(quota, 100, 0);
        let passes = |second: u64| {
            let now = now().plus(Span::from_secs(second));
            decide(&[Ask { share: 2, ..Ask::new(&limit, key(1), 1, now) }], false).admitted
        };
        let passed = (0..400).filter(|second| passes(*second)).count();
        assert!(
            (200..=212).contains(&passed),
            "{passed} of 400 in half of a limit of one a second: {quota:?}"
        );
    }
}

/// Of M requests at once exactly N pass, also when two limits are asked in opposite orders.
#[test]
fn exactly_n_of_m_pass_on_eight_threads() {
    for round in 0..1_000 {
        let (a, b) = (limit(token(20, 1_000_000, 20), 1_000, 0), limit(fixed(30, 1_000), 1_000, 1));
        let passed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (a, b, passed) = (&a, &b, &passed);
                scope.spawn(move || {
                    for _ in 0..8 {
                        let forward = [ask(a, 1), ask(b, 1)];
                        let backward = [ask(b, 1), ask(a, 1)];
                        let asks = if thread % 2 == 0 { &forward } else { &backward };
                        passed.fetch_add(u64::from(decide(asks, false).admitted), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(passed.into_inner(), 20, "round {round}");
        assert_eq!(
            b.counters.usage(key(1), now()).unwrap().remaining,
            10,
            "b paid for those that passed only"
        );
    }
}

/// A refusal by one limit takes nothing from any other.
#[test]
fn a_refusal_takes_nothing_from_the_others() {
    let (empty, full) = (limit(fixed(1, 60), 100, 0), limit(token(100, 60, 100), 100, 1));
    assert!(decide(&[ask(&full, 1), ask(&empty, 1)], false).admitted);
    for _ in 0..10_000 {
        let decision = decide(&[ask(&full, 1), ask(&empty, 1)], false);
        assert!(
            !decision.admitted && decision.verdicts[0].answer.is_ok() && decision.verdicts[1].answer.is_err()
        );
    }
    assert_eq!(full.counters.usage(key(1), now()).unwrap().remaining, 99);
}

/// A million keys in a table of ten thousand: memory stays bounded, a limited client stays limited, and whoever
/// finds no room shares one bucket.
#[test]
fn a_flood_of_keys_frees_nobody() {
    let limit = limit(token(5, 3_600, 5), 10_000, 0);
    for _ in 0..5 {
        assert!(one(&limit, 0, now()).admitted);
    }
    let mut passed = 0;
    for n in 1..1_000_000 {
        passed += u64::from(one(&limit, n, now()).admitted);
        if n % 100_000 == 0 {
            assert!(!one(&limit, 0, now()).admitted, "the limited client came free after {n} keys");
        }
    }
    assert_eq!((limit.counters.entries(), limit.counters.keys(now())), (10_000, 10_000));
    // One each for those that found room (the limited client has one place), five for all others together.
    assert_eq!(passed, 9_999 + 5);
    assert!(limit.counters.overflowed() > 980_000);
}

/// A key leaves when it owes nothing, and only then.
#[test]
fn idle_keys_make_room_and_indebted_ones_do_not() {
    let limit = limit(token(1, 100, 1), 1_000, 0);
    for n in 0..1_000 {
        assert!(one(&limit, n, now()).admitted);
    }
    let later = now().plus(Span::from_secs(99));
    for n in 0..1_000 {
        assert!(!one(&limit, n, later).admitted, "key {n} was forgotten with its debt");
    }
    let free = now().plus(Span::from_secs(100));
    for n in 1_000..40_000 {
        one(&limit, n, free.plus(Span::from_secs((n - 1_000) * 100)));
    }
    assert!(
        limit.counters.entries() < 1_000,
        "{} keys stay though they owe nothing",
        limit.counters.entries()
    );
    assert_eq!(limit.counters.overflowed(), 0);
}

/// Places are free again however a request ends, and a key without any is not kept.
#[test]
fn a_place_is_free_when_its_hold_is_dropped() {
    let limit = limit(Quota::Concurrency(Concurrency::new(2).unwrap(), 2), 10, 0);
    let first = one(&limit, 1, now());
    let second = one(&limit, 1, now());
    assert!(first.admitted && second.admitted && !one(&limit, 1, now()).admitted);
    drop(first);
    let third = one(&limit, 1, now());
    assert!(third.admitted);
    drop((second, third));
    assert_eq!(limit.counters.entries(), 0);
}

/// Whoever leaves the queue frees a place, and those behind move up.
#[test]
fn a_queue_closes_its_gaps() {
    let rate = rate(2, 1);
    let limit = limit(Quota::LeakyBucket(LeakyBucket::new(rate, 4, None).unwrap(), rate, 4), 10, 0);
    let mut waiting: Vec<Decision> = (0..4).map(|_| decide(&[ask(&limit, 1)], true)).collect();
    assert!(!one(&limit, 1, now()).admitted);
    let due = |decision: &mut Decision| decision.holds.due(now(), std::task::Waker::noop());
    let at = |millis| Some(now().plus(Span::from_millis(millis)));
    assert_eq!([0, 1, 2, 3].map(|i| due(&mut waiting[i])), [None, at(500), at(1_000), at(1_500)]);
    waiting[1].holds.give_up(now());
    assert_eq!([2, 3].map(|i| due(&mut waiting[i])), [at(500), at(1_000)]);
    let mut next = decide(&[ask(&limit, 1)], true);
    assert!(next.admitted && due(&mut next) == at(1_500), "the place that became free is the last one");
}

/// Those who wait when the rate changes leave at the new rate, before those who come later.
#[test]
fn a_queue_follows_a_reload() {
    let quota = |count, seconds| {
        let rate = rate(count, seconds);
        Quota::LeakyBucket(LeakyBucket::new(rate, 5, None).unwrap(), rate, 5)
    };
    let limit = limit(quota(1, 2), 10, 0);
    let mut waiting: Vec<Decision> = (0..4).map(|_| decide(&[ask(&limit, 1)], true)).collect();
    let due = |decision: &mut Decision| decision.holds.due(now(), std::task::Waker::noop());
    let at = |millis| Some(now().plus(Span::from_millis(millis)));
    assert_eq!([1, 2, 3].map(|i| due(&mut waiting[i])), [at(2_000), at(4_000), at(6_000)]);
    assert!(limit.counters.reconfigure(&quota(10, 1), 10, now()));
    assert_eq!([1, 2, 3].map(|i| due(&mut waiting[i])), [at(100), at(200), at(300)]);
    let mut last = decide(&[ask(&limit, 1)], true);
    assert_eq!(due(&mut last), at(400));
    waiting[1].holds.give_up(now());
    assert_eq!(due(&mut last), at(300), "a turn of before the reload is worth one of after it");
    last.holds.give_up(now());
    assert_eq!(due(&mut decide(&[ask(&limit, 1)], true)), at(300));
}

/// A changed quota applies to the debt that stands.
#[test]
fn a_bucket_at_half_stays_at_half() {
    let limit = limit(token(10, 60, 10), 10, 0);
    for _ in 0..5 {
        one(&limit, 1, now());
    }
    assert!(limit.counters.reconfigure(&token(1_000, 60, 100), 10, now()));
    assert_eq!(limit.counters.usage(key(1), now()).unwrap().remaining, 50);
    assert!(limit.counters.reconfigure(&token(7, 90, 4), 10, now()));
    assert_eq!(limit.counters.usage(key(1), now()).unwrap().remaining, 2);
    assert!(!limit.counters.reconfigure(&fixed(7, 90), 10, now()), "another algorithm cannot take it over");
}

/// What a key has left is told under the quota that its next request meets: its own one, or again that of the limit.
#[test]
fn usage_is_that_of_the_quota_in_force() {
    let limit = limit(token(10, 60, 10), 10, 0);
    let own = Arc::new(CountedLimit {
        of_single_keys: true,
        ..CountedLimit::new("l", token(1_000, 60, 100), Arc::clone(&limit.counters))
    });
    let left = |limit: &CountedLimit| limit.usage(key(1), now()).map(|usage| usage.remaining);
    assert_eq!(left(&own), None);
    for _ in 0..5 {
        one(&limit, 1, now());
    }
    assert_eq!((left(&limit), left(&own)), (Some(5), Some(50)));
    one(&own, 1, now());
    assert_eq!((left(&limit), left(&own)), (Some(4), Some(49)));
}

/// What a store has told stands in the table, under the quota in force, and never takes the place of another key.
#[test]
fn a_table_goes_on_from_what_a_store_told() {
    let remote = |spent| {
        let bucket = TokenBucket::new(rate(10, 60), 10).unwrap();
        let mut state = Default::default();
        bucket.charge(&mut state, now(), spent);
        RemoteState::TokenBucket(bucket, state)
    };
    let limit = limit(token(10, 60, 20), 1, 0);
    let left = |n| limit.counters.usage(key(n), now()).map(|usage| usage.remaining);
    limit.learn(key(1), &remote(5), now());
    assert_eq!(left(1), Some(10), "half of the bucket that is in force");
    limit.learn(key(1), &remote(9), now());
    assert_eq!(left(1), Some(2));
    limit.learn(key(2), &remote(9), now());
    assert_eq!((left(2), limit.counters.entries()), (None, 1), "there is no room for a second key");
    limit.learn(key(1), &remote(0), now());
    assert_eq!((left(1), limit.counters.entries()), (None, 0), "who owes nothing needs no place");
}

/// Pardon forgets one key and no other.
#[test]
fn pardon_is_for_one_key() {
    let limit = limit(fixed(1, 60), 10, 0);
    one(&limit, 1, now());
    one(&limit, 2, now());
    assert!(limit.counters.pardon(key(1)) && !limit.counters.pardon(key(1)));
    assert!(one(&limit, 1, now()).admitted && !one(&limit, 2, now()).admitted);
}

/// What a request was charged before its key was pardoned is forgotten: it gives back nothing of what was charged since.
#[test]
fn a_pardon_forgets_open_charges() {
    for quota in [token(5, 3_600, 5), fixed(5, 3_600)] {
        let limit = limit(quota, 10, 0);
        let spend = || decide_for_now(&[Ask::new(&limit, key(1), 5, now())]);
        let forget: [&dyn Fn(); 2] = [&|| _ = limit.pardon(key(1)), &|| limit.forget()];
        let mut before = spend();
        for forget in forget {
            forget();
            let after = spend();
            assert!(after.admitted);
            before.holds.undo(now());
            assert!(!one(&limit, 1, now()).admitted, "{quota:?}");
            before = after;
        }
        before.holds.undo(now());
        assert!(one(&limit, 1, now()).admitted, "{quota:?}");
    }
}

/// Reloads while others decide never let more pass than the larger of the two quotas.
#[test]
fn reloads_under_load_lose_no_debt() {
    let limit = limit(fixed(100, 3_600), 1_000, 0);
    let passed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    passed.fetch_add(u64::from(one(&limit, 1, now()).admitted), Ordering::Relaxed);
                }
            });
        }
        for round in 0..200 {
            limit.counters.reconfigure(&fixed(if round % 2 == 0 { 50 } else { 100 }, 3_600), 1_000, now());
        }
    });
    // All may have been asked under the smaller quota. The larger one is the last.
    let rest = (0..1_000).take_while(|_| one(&limit, 1, now()).admitted).count() as u64;
    assert_eq!(passed.into_inner() + rest, 100);
}

/// A limit whose costs are known late.
fn late(quota: Quota) -> Arc<CountedLimit> {
    let made = limit(quota, 100, 0);
    let cost = CostKind::Late(LateCost { limit: 0, request_bytes: false, response_bytes: false });
    Arc::new(CountedLimit { cost, ..CountedLimit::new("late", made.quota, Arc::clone(&made.counters)) })
}

/// What one of several processes charges counts for each of them, also when it is settled or given back.
#[test]
fn a_share_is_settled_and_given_back_as_it_was_charged() {
    let left = |limit: &Arc<CountedLimit>| limit.usage(key(1), now()).unwrap().remaining;
    let limit = late(token(1, 1_000_000, 100));
    let ask = || Ask { share: 2, ..Ask::new(&limit, key(1), 3, now()) };
    let mut settled = decide(&[ask()], false);
    assert_eq!(left(&limit), 94);
    settled.holds.answered(|_, _| Some((5, 2)));
    settled.holds.settle(now(), 0, 0);
    assert_eq!(left(&limit), 86, "twice seven");
    let mut undone = decide(&[ask()], false);
    assert_eq!(left(&limit), 80);
    undone.holds.undo(now());
    assert_eq!(left(&limit), 86);
}

/// A request that a ban refuses counts for no other ban.
#[test]
fn a_banned_client_earns_no_other_ban() {
    let ban = Ban::new(2, Span::from_secs(100), Span::from_secs(1_000)).unwrap();
    let banning = |order: u64| {
        let made = limit(token(1, 1_000_000, 1), 100, order);
        let bans = Some(Arc::new(Bans::new(ban, 100)));
        let counted = CountedLimit::new("banning", made.quota, Arc::clone(&made.counters));
        Arc::new(CountedLimit { ban: Some(ban), bans, ..counted })
    };
    let (first, second) = (banning(0), banning(1));
    // The first limit bans after two refusals.
    (0..3).for_each(|_| _ = one(&first, 1, now()));
    assert!(first.banned_for(key(1), now()).is_some());
    assert!(one(&second, 1, now()).admitted);
    for _ in 0..5 {
        assert!(!decide(&[ask(&first, 1), ask(&second, 1)], false).admitted);
    }
    assert!(second.banned_for(key(1), now()).is_none());
}

/// The first of a queue is woken when the one before it leaves.
#[test]
fn leaving_wakes_the_next_of_a_queue() {
    struct Counting(AtomicU64);
    impl std::task::Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let rate = rate(1, 1);
    let limit = limit(Quota::LeakyBucket(LeakyBucket::new(rate, 10, None).unwrap(), rate, 10), 100, 0);
    let mut queued: Vec<_> = (0..3).map(|_| decide(&[ask(&limit, 1)], true).holds).collect();
    let woken = Arc::new(Counting(AtomicU64::new(0)));
    let waker = Arc::clone(&woken).into();
    let due = |holds: &mut crate::Holds| holds.due(now(), &waker);
    assert_eq!(due(&mut queued[0]), None);
    assert_eq!(due(&mut queued[2]), Some(now().plus(Span::from_secs(2))));
    queued[1].give_up(now());
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert_eq!(due(&mut queued[2]), Some(now().plus(Span::SECOND)));
}

/// A log that counts refusals counts them also where many keys share a counter.
#[test]
fn refusals_count_where_keys_share_a_counter() {
    let log = |counts: bool| {
        let rate = rate(1, 10);
        let quota = Quota::SlidingLog(SlidingLog::new(rate, counts).unwrap(), rate);
        let limit = limit(quota, 1, 0);
        assert!(one(&limit, 1, now()).admitted);
        let at = |seconds| now().plus(Span::from_secs(seconds));
        assert!(one(&limit, 2, at(0)).admitted, "the shared counter has a place, too");
        assert!(!one(&limit, 3, at(5)).admitted);
        assert!(one(&limit, 1, at(10)).admitted, "it keeps its counter");
        one(&limit, 4, at(11)).admitted
    };
    assert!(log(false), "ten seconds after the admitted one");
    assert!(!log(true), "the refused one counts");
}
