//! Logs of thousands of places.

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
        let (now, admitted, mut reply) =
            decided(self.store.decide(&self.key, &[&self.quota], 0, requests, &arguments));
        let reply = &mut reply[0];
        prop_assert_eq!(reply.usage(now), self.local.usage(now));
        let mut expected = 0;
        for _ in 0..requests.max(1) {
            let answer = self.local.check(now, cost);
            prop_assert_eq!(reply.check(now, cost), answer);
            if requests == 0 {
                break;
            }
            if answer.is_ok() {
                expected += 1;
                reply.charge(now, cost);
                self.charged.push((cost, self.local.charge(now, cost)));
            } else {
                reply.refused(now, cost);
                self.local.refused(now, cost);
            }
            prop_assert_eq!(reply.usage(now), self.local.usage(now));
        }
        prop_assert_eq!(admitted, expected);
        Ok(())
    }

    fn refund(&mut self, which: usize) -> TestCaseResult {
        if self.charged.is_empty() {
            return Ok(());
        }
        let (cost, receipt) = self.charged.swap_remove(which % self.charged.len());
        let reply = self.store.refund(
            &self.key,
            &[&self.quota],
            &[refund_argument(&self.quota, self.quota.charged(cost, receipt))],
        );
        self.local.refund(reply.now, cost, receipt);
        prop_assert_eq!(reply.keys[0].usage(reply.now), self.local.usage(reply.now));
        Ok(())
    }
}

/// Microseconds later, requests, and the cost of each.
type Step = (u64, u32, u64);

/// Random histories of a log of so many places a second: at every step the server says what the core says. One in
/// `refunds` steps gives places back, or none.
fn agree(count: u64, cases: u32, length: usize, refunds: usize, steps: impl Strategy<Value = Step>) {
    let server = Server::start();
    let store = std::cell::RefCell::new((server.connect_timeless(), 0));
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    let config =
        ProptestConfig { cases, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() };
    let histories =
        (any::<bool>(), prop::collection::vec((steps, any::<prop::sample::Index>()), length), any::<bool>());
    let tried = TestRunner::new(config).run(&histories, |(counts, steps, gives_back)| {
        let (store, number) = &mut *store.borrow_mut();
        *number += 1;
        store.now = NOW;
        let quota = log(rate(count, 1_000_000), counts);
        let key = [format!("long:{number}")];
        let mut pair = Pair { store, quota, key, local: fresh(&quota), charged: Vec::new() };
        for ((later, requests, cost), which) in steps {
            pair.store.now += later;
            let at = which.index(1 << 16);
            if gives_back && at % refunds == 0 {
                pair.refund(at / refunds)?;
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

/// Thousands of places, taken one by one and in large costs, let go, given back, and over by and by.
#[test]
fn a_log_of_thousands_of_places_answers_as_the_core() {
    let steps = prop_oneof![
        20 => (0..400_u64, Just(1_u32), 1..=2_u64),
        2 => (0..400_u64, 1..=5_u32, 1..=2_u64),
        1 => (0..100_000_u64, 0..=2_u32, 1..=5_000_u64),
    ];
    agree(5_000, 4, 12_000, 8, steps);
}

/// Large costs, most of which are refused and let hundreds of places go, and many of which are given back.
#[test]
fn a_log_of_large_costs_answers_as_the_core() {
    let steps = prop_oneof![
        2 => (0..20_000_u64, 1..=3_u32, 1..=100_u64),
        1 => (0..100_000_u64, 0..=2_u32, 1..=2_000_u64),
    ];
    agree(2_000, 100, 150, 3, steps);
}

/// A log holds all places again that it let go, however many, when the places that let them go are given back.
#[test]
fn places_that_were_let_go_are_held_again_when_newer_ones_are_given_back() {
    let server = Server::start();
    let store = &mut server.connect_timeless();
    store.now = NOW;
    let quota = log(rate(600, 1_000_000), true);
    let key = ["let go".to_owned()];
    let mut pair = Pair { store, quota, key, local: fresh(&quota), charged: Vec::new() };
    for cost in [300, 100, 200, 300] {
        pair.store.now += 1;
        pair.ask(1, cost).unwrap();
    }
    assert_eq!(pair.charged.len(), 3, "the last is refused, and lets go of the first 300");
    pair.refund(1).unwrap();
    pair.refund(1).unwrap();
    pair.ask(1, 1).unwrap();
    assert_eq!(pair.charged.len(), 1, "the first 300 are held again, and the log is full");
}

/// A log as long as the configuration allows, taken in large costs and one by one, is full when it should be, and what
/// ends makes room.
#[test]
fn the_longest_log_is_full_when_it_should_be() {
    let server = Server::start();
    let mut store = server.connect_timeless();
    store.now = NOW;
    let quota = log(rate(10_000, 3_600_000_000), false);
    let admitted = |store: &mut Store, key: &str, cost: u64, later: u64, count: u32| {
        let arguments = [argument(&quota, true, cost)];
        let mut admitted = 0;
        for _ in 0..count {
            store.now += later;
            admitted += decided(store.decide(&[key.to_owned()], &[&quota], 0, 1, &arguments)).1;
        }
        admitted
    };
    assert_eq!(admitted(&mut store, "large", 100, 1_000, 200), 100);

    let (value, until) = packed(10_000);
    store.put("many", &value);
    store.now = until;
    assert_eq!((admitted(&mut store, "many", 1, 0, 50), admitted(&mut store, "many", 5_000, 0, 50)), (0, 0));
    store.now = NOW + 3_600_000_000 + 5_000 * 1_000;
    assert_eq!(
        (admitted(&mut store, "many", 1, 0, 1), admitted(&mut store, "many", 1, 1_000, 500)),
        (1, 500)
    );
}

/// A log of an hour with so many places, one every millisecond: its bytes, and the instant of the last.
fn packed(places: u64) -> (Vec<u8>, u64) {
    let until = NOW + places * 1_000;
    let mut value = 3_600_000_000_u64.to_be_bytes()[2..].to_vec();
    value.extend([255; 3]); // it has more than 1,024 words
    value.extend(u32::try_from(places).unwrap().to_be_bytes());
    value.extend(&NOW.to_be_bytes()[1..]);
    value.extend(&until.to_be_bytes()[1..]);
    value.push(0);
    (0..places).for_each(|_| value.extend(1_000_u32.to_be_bytes()));
    (value, until)
}

/// The places of a log that nobody asks for any more are over when they should be.
#[test]
fn a_long_log_is_forgotten_when_it_is_over() {
    let server = Server::start();
    let mut store = server.connect();
    let (quota, key) = (log(rate(10_000, 3_600_000_000), false), ["over".to_owned()]);
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
