//! What the scripts do beside deciding: giving back, catching up, leases, and living with what they find.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use sluicegate_counters::{KeyState, RemoteState};
use sluicegate_limiter::{Algorithm, InFlight, MAX_COUNT, Micros, Quota, Span, Time};

use super::quotas::{by_calendar, fixed, fresh, leaky, log, places, quotas, rate, size, sliding, token};
use super::server::{HOLDER, Server, Store, decided};
use crate::protocol::{self, Reply, argument, refund_argument, spend_argument};

const NOW: u64 = 1_795_219_200_000_000;

/// So many requests of `cost`: when, how many were admitted, and the state before.
fn ask(store: &mut Store, key: &str, quota: &Quota, requests: u32, cost: u64) -> (Time, u32, RemoteState) {
    let reply = store.decide(&[key.to_owned()], &[quota], 0, requests, &[argument(quota, true, cost)]);
    let (now, admitted, mut keys) = decided(reply);
    (now, admitted, keys.remove(0))
}

fn left(store: &mut Store, key: &str, quota: &Quota) -> u64 {
    let (now, _, state) = ask(store, key, quota, 0, 1);
    state.usage(now).remaining
}

/// One of each algorithm, five requests in ten seconds.
fn one_of_each() -> [Quota; 7] {
    let rate = rate(5, 10_000_000);
    [
        token(rate, 5),
        leaky(rate, 5, None),
        fixed(rate),
        log(rate, false),
        log(rate, true),
        sliding(rate, 4),
        places(5),
    ]
}

/// A call that comes too late changes nothing, and says so.
#[test]
fn a_call_past_its_deadline_changes_nothing() {
    let server = Server::start();
    let mut store = server.connect_timeless();
    store.now = NOW;
    for (i, quota) in one_of_each().iter().enumerate() {
        let keys = [format!("late:{i}")];
        let arguments = [argument(quota, true, 1)];
        let late = store.decide(&keys, &[quota], NOW - 1, 5, &arguments);
        assert_eq!(late, Reply { now: Time::from_nanos(NOW * 1_000), decided: None });
        assert_eq!(store.get(&keys[0]), None);
        let in_time = store.decide(&keys, &[quota], NOW, 5, &arguments);
        assert_eq!(decided(in_time).1, 5);
    }
}

/// Neither a look nor a refusal writes anything.
#[test]
fn only_what_changes_is_written() {
    let server = Server::start();
    let mut store = server.connect_timeless();
    store.now = NOW;
    for (i, quota) in one_of_each().iter().enumerate() {
        let key = format!("quiet:{i}");
        ask(&mut store, &key, quota, 0, 1);
        assert_eq!(store.get(&key), None, "{quota:?}");
        ask(&mut store, &key, quota, 1, 6);
        assert_eq!(store.get(&key), None, "{quota:?}: a cost that can never be admitted");
        ask(&mut store, &key, quota, 1, 5);
        let before = store.get(&key);
        store.now += 1;
        ask(&mut store, &key, quota, 3, 1);
        let counts_refused = matches!(quota, Quota::SlidingLog(log, _) if log.counts_rejected());
        assert_eq!(store.get(&key) == before, !counts_refused, "{quota:?}");
    }
}

/// What was spent before the store heard of it is charged in full: a bucket pays for it by waiting.
#[test]
fn what_was_spent_unheard_is_charged_in_full() {
    let server = Server::start();
    let mut store = server.connect_timeless();
    store.now = NOW;
    for (i, quota) in one_of_each()[..6].iter().enumerate() {
        let keys = [format!("spent:{i}")];
        let reported = store.spend(&keys, &[quota], &[spend_argument(quota, 2)]);
        assert_eq!(reported.keys[0].usage(reported.now).remaining, 3, "{quota:?}");
        assert_eq!(left(&mut store, &keys[0], quota), 3, "{quota:?}");
        for amount in [4, u64::MAX] {
            let reported = store.spend(&keys, &[quota], &[spend_argument(quota, amount)]);
            let usage = reported.keys[0].usage(reported.now);
            assert_eq!(usage.remaining, 0, "{quota:?}");
            match (quota, amount) {
                // Six of five, at one in two seconds; and all that can ever be owed.
                (Quota::TokenBucket(..), 4) => {
                    assert!(usage.reset > Span::from_secs(11) && usage.reset <= Span::from_secs(12));
                }
                (Quota::TokenBucket(..), _) => {
                    assert!(usage.reset > Span::from_secs(6_299_999_998), "{}", usage.reset);
                }
                _ => assert!(usage.reset <= Span::from_secs(20), "{quota:?}: {}", usage.reset),
            }
        }
        assert_eq!(ask(&mut store, &keys[0], quota, 1, 1).1, 0, "{quota:?}");
    }
    let reported = store.spend(&["spent:places".into()], &[&places(5)], &[spend_argument(&places(5), 2)]);
    assert_eq!(reported.keys[0], fresh(&places(5)), "places are held, not spent");
}

/// A sub-window counts as much as the core counts, also what 4 bytes do not hold, and values of 4 bytes a count can be read.
#[test]
fn a_sliding_window_counts_costs_above_32_bits_in_full() {
    let server = Server::start();
    let mut store = server.connect_timeless();
    let hour = 3_600_000_000;
    for (i, slices) in [1, 3].into_iter().enumerate() {
        store.now = NOW;
        let (quota, keys) = (sliding(rate(MAX_COUNT, hour), slices), [format!("wide:{i}")]);
        let mut local = fresh(&quota);
        let mut receipts = Vec::new();
        for amount in [7, 20_000_000_000, 5, 900_000_000_000, 5_000_000_000_000] {
            let reported = store.spend(&keys, &[&quota], &[spend_argument(&quota, amount)]);
            receipts.push((amount, local.charge(reported.now, amount)));
            assert_eq!(reported.keys[0], local, "{amount}");
            assert_eq!(ask(&mut store, &keys[0], &quota, 1, MAX_COUNT).1, 0);
            store.now += hour / u64::from(slices) * 2 / 5;
        }
        let (amount, receipt) = receipts[1];
        let reported =
            store.refund(&keys, &[&quota], &[refund_argument(&quota, quota.charged(amount, receipt))]);
        local.refund(reported.now, amount, receipt);
        assert_eq!(reported.keys[0].usage(reported.now), local.usage(reported.now));
        for _ in 0..50 {
            store.now += hour / 20;
            let (now, _, state) = ask(&mut store, &keys[0], &quota, 0, 1);
            assert_eq!(state.usage(now), local.usage(now), "{slices} at {now:?}");
        }
    }
    store.now = NOW;
    let quota = sliding(rate(10, hour), 1);
    let index = NOW / hour;
    let narrow = [&hour.to_be_bytes()[2..], &[0, 1], &index.to_be_bytes()[1..], &[0, 0, 0, 4], &[0, 0, 0, 6]];
    store.put("narrow", &narrow.concat());
    let (now, _, state) = ask(&mut store, "narrow", &quota, 0, 1);
    assert_eq!(state, state_of(&quota, index, [4, 6]), "{now:?}");
}

fn state_of(quota: &Quota, index: u64, counts: [u64; 2]) -> RemoteState {
    match quota {
        Quota::SlidingWindow(window, _) => {
            RemoteState::SlidingWindow(*window, window.state(index, counts.into_iter()))
        }
        other => panic!("{other:?}"),
    }
}

/// What is given back is there again, also when more is given back than was taken, and a key that owes nothing is gone.
#[test]
fn what_is_given_back_leaves_nothing_behind() {
    let server = Server::start();
    let mut store = server.connect_timeless();
    store.now = NOW;
    for (i, quota) in one_of_each().iter().enumerate() {
        let keys = [format!("back:{i}")];
        let (now, _, mut state) = ask(&mut store, &keys[0], quota, 1, 3);
        let receipt = state.charge(now, 3);
        store.now += 1_000;
        ask(&mut store, &keys[0], quota, 1, 1);
        let give_back = [refund_argument(quota, quota.charged(3, receipt))];
        let reported = store.refund(&keys, &[quota], &give_back);
        assert_eq!(reported.keys[0].usage(reported.now).remaining, 4, "{quota:?}");
        store.now += 100_000_000;
        store.refund(&keys, &[quota], &give_back);
        ask(&mut store, &keys[0], quota, 1, 1);
        let (now, _, mut state) = ask(&mut store, &keys[0], quota, 1, 1);
        let again = state.charge(now, 1);
        store.refund(&keys, &[quota], &[refund_argument(quota, quota.charged(5, again))]);
        assert_eq!(store.get(&keys[0]), None, "{quota:?}");
    }
}

/// Places are held by those who renew them, move to a new name once, and are free when nobody does.
#[test]
fn places_are_leases() {
    let server = Server::start();
    let mut store = server.connect_timeless();
    store.now = NOW;
    let (quota, keys) = (places(5), ["lease".to_owned()]);
    let reported = |state: &RemoteState| match state {
        RemoteState::Concurrency(_, state, own) => (*state, *own),
        other => panic!("{other:?}"),
    };
    let taken = InFlight::new;
    assert_eq!(ask(&mut store, &keys[0], &quota, 2, 1).1, 2);
    let renew = |store: &mut Store, holder: &[u8], before: &[u8], places| {
        let reply_now = store.renew(&keys, &[&quota], [holder, before], 1_000, &[places]);
        reported(&reply_now.keys[0])
    };
    assert_eq!(
        renew(&mut store, b"gateway2", b"", 2),
        (taken(4), 2),
        "one that was not known holds what it says"
    );
    assert_eq!(renew(&mut store, b"gateway2", b"", 1), (taken(4), 2), "one that is known is given time");
    assert_eq!(
        renew(&mut store, b"gateway3", b"gateway2", 1),
        (taken(3), 1),
        "the new name takes the old one's place"
    );
    assert_eq!(renew(&mut store, b"gateway3", b"gateway2", 3), (taken(5), 3));
    assert_eq!(ask(&mut store, &keys[0], &quota, 1, 1).1, 0);
    store.now += 999;
    assert_eq!(ask(&mut store, &keys[0], &quota, 1, 1).1, 0);
    store.now += 1;
    assert_eq!(
        reported(&ask(&mut store, &keys[0], &quota, 3, 1).2),
        (taken(2), 2),
        "a lease that ended is free"
    );
    assert_eq!(reported(&ask(&mut store, &keys[0], &quota, 1, 1).2), (taken(5), 5));
    assert_eq!(renew(&mut store, b"gateway9", &HOLDER, 0), (taken(0), 0));
    assert_eq!(store.get(&keys[0]), None);
}

/// The same key under another quota of its algorithm.
fn rescaled(state: &RemoteState, quota: &Quota, now: Time) -> RemoteState {
    macro_rules! rescale {
        ($kind:ident, $old:expr, $state:expr, $new:expr) => {{
            let mut state = $state.clone();
            $new.rescale($old, &mut state, now);
            RemoteState::$kind(*$new, state)
        }};
    }
    match (state, quota) {
        (RemoteState::TokenBucket(old, state), Quota::TokenBucket(new, ..)) => {
            rescale!(TokenBucket, old, state, new)
        }
        (RemoteState::LeakyBucket(old, state), Quota::LeakyBucket(new, ..)) => {
            rescale!(LeakyBucket, old, state, new)
        }
        (RemoteState::FixedWindow(old, state), Quota::FixedWindow(new, _)) => {
            rescale!(FixedWindow, old, state, new)
        }
        (RemoteState::SlidingLog(old, state), Quota::SlidingLog(new, _)) => {
            rescale!(SlidingLog, old, state, new)
        }
        (RemoteState::SlidingWindow(old, state), Quota::SlidingWindow(new, _)) => {
            rescale!(SlidingWindow, old, state, new)
        }
        (RemoteState::Concurrency(_, state, own), Quota::Concurrency(new, _)) => {
            RemoteState::Concurrency(*new, *state, *own)
        }
        other => panic!("{other:?}"),
    }
}

/// What is owed, the whole bucket, what the debt is measured by when the quota changes, and a request.
fn owed(key: &RemoteState, quota: &Quota, now: Time) -> Option<[f64; 4]> {
    let (emission_rate, debt, numbers, requests) = match (key, quota) {
        (RemoteState::TokenBucket(bucket, debt), _) => {
            (bucket.emission_rate(), *debt, bucket.in_micros(1)?, 1)
        }
        (RemoteState::LeakyBucket(bucket, debt), Quota::LeakyBucket(_, _, burst)) => {
            (bucket.emission_rate(), *debt, bucket.in_micros(1)?, *burst)
        }
        _ => return None,
    };
    let micros = |micros: Micros| micros.whole as f64 + micros.part as f64 / emission_rate.parts() as f64;
    let whole = micros(numbers.whole);
    Some([micros(emission_rate.owed(debt, now)), whole, whole / requests as f64, numbers.per_request])
}

/// Spends under one quota and looks under another.
fn reload(
    store: &mut Store,
    key: &str,
    [old, new]: [&Quota; 2],
    (asks, late): &(Vec<(u64, u32, u64)>, u64),
) -> TestCaseResult {
    store.now = NOW;
    let mut local = fresh(old);
    for (later, requests, cost) in asks {
        store.now += later * size(old).1 / 1_000;
        let (now, admitted, _) = ask(store, key, old, *requests, *cost);
        for _ in 0..admitted {
            local.charge(now, *cost);
        }
    }
    if *late > 0 && !old.is_concurrency() {
        let reported = store.spend(&[key.to_owned()], &[old], &[spend_argument(old, *late)]);
        local.settle(reported.now, *late);
    }
    let (now, _, reported) = ask(store, key, new, 0, 1);
    let expected = rescaled(&local, new, now);
    let numbers = [owed(&reported, new, now), owed(&expected, new, now), owed(&local, old, now)];
    if let [
        Some([reported, ..]),
        Some([expected, whole, scale, request]),
        Some([_, old_whole, old_scale, old_request]),
    ] = numbers
    {
        // A queue is never longer than its places.
        let expected = if matches!(new, Quota::LeakyBucket(..)) { expected.min(whole) } else { expected };
        // At most a microsecond is added to the old debt, and another to the new one. Where it reaches below empty, what
        // is cut off the scale of the old bucket counts there.
        let added = (scale / old_scale).max(request / old_request) * (1.0 + old_whole * 1e-8);
        let most = (expected + added) * (1.0 + 1e-8) + 1.0;
        prop_assert!(reported >= expected && reported <= most, "{} instead of {}", reported, expected);
    } else {
        prop_assert_eq!(reported.usage(now), expected.usage(now));
    }
    let (_, _, again) = ask(store, key, new, 1, 1);
    // Of a log each tells as much as decides about what it was asked.
    prop_assert_eq!(again.usage(now), reported.usage(now), "a look has changed something");
    let before = ask(store, key, new, 0, 1).2;
    prop_assert_eq!(ask(store, key, old, 0, 1).0, now);
    prop_assert_eq!(ask(store, key, new, 0, 1).2, before);
    Ok(())
}

/// A changed quota applies to the debt that stands, though no gateway carries it over: a bucket at half stays at
/// half, as many wait in a queue, what was used stays used.
#[test]
fn a_changed_quota_applies_to_the_debt_that_stands() {
    let server = Server::start();
    let store = std::cell::RefCell::new((server.connect_timeless(), 0));
    let pairs = (quotas(u64::MAX), quotas(u64::MAX)).prop_filter("another algorithm", |(old, new)| {
        let counts = |quota: &Quota| matches!(quota, Quota::SlidingLog(log, _) if log.counts_rejected());
        std::mem::discriminant(old) == std::mem::discriminant(new) && !counts(old) && !counts(new)
    });
    let asks = (vec((0..1_200_u64, 1..=3_u32, 1..=4_u64), 1..8), prop_oneof![Just(0), 1..=200_u64]);
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 500;
    }
    let tried = TestRunner::new(config).run(&(pairs, asks), |((old, new), asks)| {
        let (store, number) = &mut *store.borrow_mut();
        *number += 1;
        reload(store, &format!("reload:{number}"), [&old, &new], &asks)
    });
    if let Err(failure) = tried {
        panic!("{failure}");
    }
}

/// What is owed below empty is worth as many requests of another bucket, also where that one takes as long to fill.
#[test]
fn buckets_that_fill_in_the_same_time_are_others() {
    let server = Server::start();
    let mut store = server.connect_timeless();
    let [old, new] = [(10, 8), (5, 4)].map(|(count, burst)| token(rate(count, 7_000), burst));
    for (key, quotas) in [("fewer", [&old, &new]), ("more", [&new, &old])] {
        reload(&mut store, key, quotas, &(vec![(0, 1, 1)], 8)).unwrap();
    }
}

/// A clock that is set back gives nothing away, and keeps nobody out for longer than if all had been spent at the
/// time it was set to.
#[test]
fn a_clock_that_is_set_back_gives_nothing_away_and_locks_nobody_out() {
    let server = Server::start();
    let mut store = server.connect_timeless();
    for (i, quota) in one_of_each()[..6].iter().enumerate() {
        for (j, back) in [1, 1_000, 9_999_999, 25_000_000, 3_600_000_000].into_iter().enumerate() {
            let key = format!("back:{i}:{j}");
            store.now = NOW;
            assert_eq!(ask(&mut store, &key, quota, 9, 1).1, 5);
            store.now -= back;
            assert_eq!(ask(&mut store, &key, quota, 9, 1).1, 0, "{quota:?}: {back} µs back");
            store.now += 25_000_000;
            assert_eq!(ask(&mut store, &key, quota, 1, 5).1, 1, "{quota:?}: {back} µs back, and locked out");
        }
    }
}

/// Whatever stands under a key, no call fails for it for ever, and what cannot be read counts as nothing.
#[test]
fn foreign_values_are_overwritten() {
    let server = Server::start();
    let mut store = server.connect_timeless();
    store.now = NOW;
    let key = "foreign";
    for quota in &one_of_each() {
        let makers: [&[&str]; 8] = [
            &["RPUSH", key, "a", "b"],
            &["HSET", key, "a", "b"],
            &["ZADD", key, "1", "a"],
            &["SADD", key, "a"],
            &["SET", key, ""],
            &["SET", key, "12"],
            &["SET", key, "hello, world"],
            &["SET", key, "another sixteen."],
        ];
        for words in makers {
            let _: () = store.command(&["DEL", key]);
            let _: redis::Value = store.command(words);
            assert_eq!(ask(&mut store, key, quota, 9, 1).1, 5, "{quota:?} after {words:?}");
            assert_eq!(ask(&mut store, key, quota, 1, 1).1, 0, "{quota:?} after {words:?}");
        }
    }
}

/// Random bytes, and states that were cut or changed: every call is answered, and in the end the key can be used.
#[test]
fn junk_never_makes_a_call_fail() {
    let server = Server::start();
    let store = std::cell::RefCell::new(server.connect_timeless());
    let junk =
        (vec(any::<u8>(), 0..80), any::<prop::sample::Index>(), any::<u8>(), 0..7_usize, any::<bool>());
    let config = ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() };
    let tried = TestRunner::new(config).run(&junk, |(bytes, at, byte, kind, whole)| {
        let store = &mut *store.borrow_mut();
        let (quota, keys) = (one_of_each()[kind], ["junk".to_owned()]);
        store.now = NOW;
        let _: () = store.command(&["DEL", "junk"]);
        let (now, _, mut state) = ask(store, "junk", &quota, 2, 1);
        let receipt = state.charge(now, 1);
        let mut value = if whole { bytes } else { store.get("junk").unwrap() };
        if !value.is_empty() {
            let at = at.index(value.len());
            value[at] = byte;
            value.truncate(if byte % 4 == 0 { at } else { value.len() });
        }
        store.put("junk", &value);
        store.refund(&keys, &[&quota], &[refund_argument(&quota, quota.charged(1, receipt))]);
        store.put("junk", &value);
        store.renew(&keys, &[&places(5)], [b"gateway2", &HOLDER], 1, &[1]);
        store.put("junk", &value);
        store.spend(&keys, &[&quota], &[spend_argument(&quota, 1)]);
        store.put("junk", &value);
        ask(store, "junk", &quota, 9, 1);
        store.now += 1_000_000_000_000_000;
        ask(store, "junk", &quota, 9, 1);
        Ok(())
    });
    if let Err(failure) = tried {
        panic!("{failure}");
    }
}

/// Late costs that come with the periods of another time are added to what is kept, and nothing of it is forgotten.
#[test]
fn periods_of_another_time_forget_nothing() {
    let server = Server::start();
    let (quota, plain, keys) = (by_calendar(50), fixed(rate(50, 1_000_000)), ["k".to_owned()]);
    let mut store = server.connect_timeless();
    store.now = NOW;
    let ask = |store: &mut Store, requests: u32| {
        decided(store.decide(&keys, &[&quota], 0, requests, &[argument(&quota, true, 1)])).1
    };
    assert_eq!(ask(&mut store, 40), 40);
    for days in [5, 30] {
        for micros in [NOW - days * 86_400_000_000, NOW + days * 86_400_000_000] {
            let reported = || Time::from_nanos(micros * 1_000);
            // Read as if it were plain, so that the argument is sent as it is.
            store.spend(
                &keys,
                &[&plain],
                &[protocol::at(spend_argument(&quota, 1), &quota, reported).into_owned()],
            );
        }
    }
    assert_eq!(ask(&mut store, 20), 6, "40 and 4 of 50 are spent");
}

/// A server whose clock is weeks away from what the gateway takes it for knows none of the periods that it is told: it
/// counts in the nearest, and says its time, by which the next call is right.
#[test]
fn periods_of_another_time_make_no_call_fail() {
    let server = Server::start();
    let (quota, plain) = (by_calendar(2), fixed(rate(2, 1_000_000)));
    let reply_at = |micros: u64| {
        let now = Time::from_nanos(micros * 1_000);
        vec![protocol::at(argument(&quota, true, 1), &quota, || now).into_owned()]
    };
    const WEEKS: u64 = 30 * 86_400_000_000;
    for mut store in [server.connect_timeless(), server.connect()] {
        store.command::<()>(&["FLUSHALL"]);
        for (name, arguments) in [("behind", reply_at(NOW - WEEKS)), ("ahead", reply_at(NOW + WEEKS))] {
            store.now = NOW;
            // Read as if it were plain, so that the arguments are sent as they are.
            let (_, admitted, _) = decided(store.decide(&[name.to_owned()], &[&plain], 0, 5, &arguments));
            assert_eq!(admitted, 2, "{name}");
            store.refund(
                &[name.to_owned()],
                &[&plain],
                &[[&arguments[0][..16], &[0; 6], &arguments[0][16..]].concat()],
            );
        }
    }
}
