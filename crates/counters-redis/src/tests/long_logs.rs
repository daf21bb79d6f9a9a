//! Logs that are too long to be read whole.

use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use sluicegate_counters::{KeyState, RemoteState};
use sluicegate_limiter::{Quota, Receipt, Time};

use super::quotas::{fresh, log, rate};
use super::server::{Server, Store, decided};
use crate::protocol::{argument, refund_argument};

const NOW: u64 = 1_795_219_200_000_000;

/// A key on the server and in the core.
struct Pair<'a> {
    store: &'a mut Store,
    quota: Quota,
    key: [String; 1],
    local: RemoteState,
    charged: Vec<(u64, Receipt)>,
}

impl Pair<'_> {
    fn ask(&mut self, requests: u32, cost: u64) -> TestCaseResult {
        let arguments = [argument(&self.quota, true, cost)];
        let (now, admitted, mut told) =
            decided(self.store.decide(&self.key, &[&self.quota], 0, requests, &arguments));
        let told = &mut told[0];
        prop_assert_eq!(told.usage(now), self.local.usage(now));
        let mut expected = 0;
        for _ in 0..requests.max(1) {
            let answer = self.local.check(now, cost);
            prop_assert_eq!(told.check(now, cost), answer);
            if requests == 0 {
                break;
            }
            if answer.is_ok() {
                expected += 1;
                told.charge(now, cost);
                self.charged.push((cost, self.local.charge(now, cost)));
            } else {
                told.refused(now, cost);
                self.local.refused(now, cost);
            }
            prop_assert_eq!(told.usage(now), self.local.usage(now));
        }
        prop_assert_eq!(admitted, expected);
        Ok(())
    }

    fn refund(&mut self, which: usize) -> TestCaseResult {
        if self.charged.is_empty() {
            return Ok(());
        }
        let (cost, receipt) = self.charged.swap_remove(which % self.charged.len());
        let told = self.store.refund(
            &self.key,
            &[&self.quota],
            &[refund_argument(&self.quota, self.quota.charged(cost, receipt))],
        );
        self.local.refund(told.now, cost, receipt);
        let (left, expected) = (told.keys[0].usage(told.now), self.local.usage(told.now));
        // The instant of a place that was given back stands in a long log until it is over.
        prop_assert_eq!(left.remaining, expected.remaining);
        Ok(())
    }
}

/// Thousands of places, taken one by one and in large costs, let go, given back, and over by and by: at every step
/// the server says what the core says.
#[test]
fn a_log_of_many_blocks_answers_as_the_core() {
    let server = Server::start();
    let store = std::cell::RefCell::new((server.connect_timeless(), 0));
    let step = prop_oneof![
        20 => (0..400_u64, Just(1_u32), 1..=2_u64),
        2 => (0..400_u64, 1..=5_u32, 1..=2_u64),
        1 => (0..100_000_u64, 0..=2_u32, 1..=5_000_u64),
    ];
    let cases =
        (any::<bool>(), prop::collection::vec((step, any::<prop::sample::Index>()), 12_000), any::<bool>());
    let config = ProptestConfig {
        cases: 4,
        max_shrink_iters: 0,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let tried = TestRunner::new(config).run(&cases, |(counts, steps, refunds)| {
        let (store, number) = &mut *store.borrow_mut();
        *number += 1;
        store.now = NOW;
        let quota = log(rate(5_000, 1_000_000), counts);
        let key = [format!("long:{number}")];
        let mut pair = Pair { store, quota, key, local: fresh(&quota), charged: Vec::new() };
        for ((later, requests, cost), which) in steps {
            pair.store.now += later;
            let at = which.index(1 << 16);
            if refunds && at % 8 == 0 {
                pair.refund(at)?;
                continue;
            }
            pair.ask(requests, cost)?;
            if pair.charged.len() > 4_000 {
                pair.charged.drain(..1_000); // most of these are over
            }
        }
        Ok(())
    });
    if let Err(failure) = tried {
        panic!("{}", failure.to_string().chars().take(400).collect::<String>());
    }
}

/// Microseconds that the calls since the last time took, on the server and on average.
fn micros_per_call(store: &mut Store) -> f64 {
    let told: String = store.command(&["INFO", "commandstats"]);
    let _: () = store.command(&["CONFIG", "RESETSTAT"]);
    let line = told.lines().find(|line| line.starts_with("cmdstat_evalsha")).unwrap();
    let (_, rest) = line.split_once("usec_per_call=").unwrap();
    rest.split(',').next().unwrap().parse().unwrap()
}

fn times(
    store: &mut Store,
    key: &[String; 1],
    quota: &Quota,
    cost: u64,
    later: u64,
    count: u32,
) -> (u32, f64) {
    let arguments = [argument(quota, true, cost)];
    let _: () = store.command(&["CONFIG", "RESETSTAT"]);
    let mut admitted = 0;
    for _ in 0..count {
        store.now += later;
        admitted += decided(store.decide(key, &[quota], 0, 1, &arguments)).1;
    }
    (admitted, micros_per_call(store))
}

/// A million places, in large costs and one by one: no call has to look at all of them.
#[test]
fn a_million_places_are_no_burden() {
    let server = Server::start();
    let mut store = server.connect_timeless();
    store.now = NOW;
    let quota = log(rate(1_000_000, 3_600_000_000), false);
    let key = ["large".to_owned()];
    let (admitted, filling) = times(&mut store, &key, &quota, 1_000, 1_000, 1_000);
    let (refused, deciding) = times(&mut store, &key, &quota, 1_000, 1_000, 1_000);
    assert_eq!((admitted, refused), (1_000, 0));
    println!("in large costs: {filling} µs a call to fill, {deciding} µs a call when full");
    assert!(filling < 200.0 && deciding < 200.0);

    let key = ["many".to_owned()];
    let (value, until) = packed(1_000_000);
    store.put(&key[0], &value);
    store.now = until;
    let (none, one) = times(&mut store, &key, &quota, 1, 0, 500);
    let (never, half) = times(&mut store, &key, &quota, 500_000, 0, 50);
    store.now = NOW + 3_600_000_000 + 500_000 * 1_000;
    let (over, first) = times(&mut store, &key, &quota, 1, 0, 1);
    let (more, next) = times(&mut store, &key, &quota, 1, 1_000, 500);
    println!(
        "one by one: {one} µs a call when full, {half} µs for half of it, {first} µs for the first call after"
    );
    println!("half of it was over, {next} µs a call then");
    assert_eq!((none, never, over, more), (0, 0, 1, 500));
    assert!(one < 200.0 && half < 20_000.0 && first < 20_000.0 && next < 200.0);
}

/// A log of an hour with so many places, one every millisecond: its bytes, and the instant of the last.
fn packed(places: u64) -> (Vec<u8>, u64) {
    let until = NOW + places * 1_000;
    let mut words: Vec<[u8; 4]> = Vec::new();
    let mut heads = Vec::new();
    for place in 0..places {
        if words.len().is_multiple_of(1_024) && !words.is_empty() {
            heads.push(words.len());
            let [a, b, c, d, e, f, g] = (NOW + place * 1_000).to_be_bytes()[1..] else { unreachable!() };
            words.extend([1_021_u32.to_be_bytes(), [a, b, c, d], [e, f, g, 0]]);
        }
        words.push(1_000_u32.to_be_bytes());
    }
    let last = heads.last().copied().unwrap_or_default();
    words[last] = u32::try_from(words.len() - last - 3).unwrap().to_be_bytes();
    let mut value = 3_600_000_000_u64.to_be_bytes()[2..].to_vec();
    value.extend([0, 0, 0]);
    value.extend(u32::try_from(places).unwrap().to_be_bytes());
    value.extend(&NOW.to_be_bytes()[1..]);
    value.extend(&until.to_be_bytes()[1..]);
    value.push(0);
    value.extend(words.concat());
    (value, until)
}

/// The places of a log that nobody asks for any more are over when they should be.
#[test]
fn a_long_log_is_forgotten_when_it_is_over() {
    let server = Server::start();
    let mut store = server.connect();
    let (quota, key) = (log(rate(1_000_000, 3_600_000_000), false), ["over".to_owned()]);
    let (mut value, until) = packed(5_000);
    let now: Vec<String> = store.command(&["TIME"]);
    let now = now[0].parse::<u64>().unwrap() * 1_000_000;
    value[13..20].copy_from_slice(&(now - 5_000_000).to_be_bytes()[1..]);
    value[20..27].copy_from_slice(&(now - 5_000_000 + until - NOW).to_be_bytes()[1..]);
    store.put(&key[0], &value);
    let (at, admitted, _) = decided(store.decide(&key, &[&quota], 0, 1, &[argument(&quota, true, 1)]));
    let left: u64 = store.command(&["PTTL", &key[0]]);
    assert!(admitted == 1 && left <= 3_600_010 && left > 3_590_000, "{left} ms at {at:?}");
    assert!(at > Time::from_nanos(now * 1_000));
}
