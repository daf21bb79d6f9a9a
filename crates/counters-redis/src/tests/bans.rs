//! Bans in the store are those of the core, request by request.

use std::cell::RefCell;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use sluicegate_counters::{Ask, BanCheck, CountedLimit, Fingerprint, RemoteBan, RemoteState, evaluate};
use sluicegate_limiter::{Ban, Quota, Span, Strikes, Time};

use super::quotas::{fixed, fresh, log, places, rate, token};
use super::server::{Server, Store};
use crate::fixture;
use crate::protocol::{Decided, Reply, limit_argument};

const NOW: u64 = 1_795_219_200_000_000;
const MILLI: u64 = 1_000;

/// A limit, whether it enforces, and its ban.
type Of = (Quota, bool, Option<Ban>);

fn bans() -> impl Strategy<Value = Ban> {
    let millis = |n: u64| Span::from_millis(n);
    (prop_oneof![Just(1_u64), 2..6_u64], 1..40_u64, 1..80_u64)
        .prop_map(move |(after, within, span)| Ban::new(after, millis(within), millis(span)).unwrap())
}

fn limits() -> impl Strategy<Value = Of> {
    let quotas = prop_oneof![
        (1..4_u64, 1..30_u64).prop_map(|(n, millis)| token(rate(n, millis * MILLI), n)),
        (1..4_u64, 1..30_u64).prop_map(|(n, millis)| fixed(rate(n, millis * MILLI))),
        (1..4_u64, 1..30_u64).prop_map(|(n, millis)| log(rate(n, millis * MILLI), true)),
        (1..4_u64).prop_map(places),
    ];
    (quotas, prop::bool::weighted(0.75), prop::option::weighted(0.75, bans()))
}

struct Run {
    limits: Vec<Arc<CountedLimit>>,
    names: Vec<String>,
    keys: Vec<(usize, RemoteState)>,
    strikes: Vec<Strikes>,
}

impl Run {
    fn new(of: &[Of], number: usize) -> Self {
        let limit = |(order, (quota, enforces, ban)): (usize, &Of)| {
            let mut limit = fixture::limit(*quota, 1, order as u64);
            limit.enforced = *enforces;
            limit.ban = *ban;
            Arc::new(limit)
        };
        let bans = of.iter().enumerate().filter(|(_, (.., ban))| ban.is_some());
        Self {
            limits: of.iter().enumerate().map(limit).collect(),
            names: (0..of.len())
                .map(|i| format!("ban:{number}:{i}"))
                .chain(bans.map(|(i, _)| format!("ban:{number}:of:{i}")))
                .collect(),
            keys: of.iter().map(|(quota, ..)| fresh(quota)).enumerate().collect(),
            strikes: vec![Strikes::default(); of.len()],
        }
    }

    /// What the bars of these limits are at `now`.
    fn ban_checks(&self) -> Vec<BanCheck<'static>> {
        let bar = |(limit, strikes): (&Arc<CountedLimit>, &Strikes)| {
            let ban = limit.ban;
            BanCheck::there(ban.map(|ban| RemoteBan { ban, strikes: strikes.clone(), begun: false }))
        };
        self.limits.iter().zip(&self.strikes).map(bar).collect()
    }

    fn ask(&mut self, store: &mut Store, requests: u32) -> TestCaseResult {
        let quotas: Vec<&Quota> = self.limits.iter().map(|limit| &limit.quota).collect();
        let bans: Vec<Ban> = self.limits.iter().filter_map(|limit| limit.ban).collect();
        let arguments: Vec<Vec<u8>> = self.limits.iter().map(|limit| limit_argument(limit, 1)).collect();
        let reply = store.decide_with_bans(&self.names, &quotas, &bans, 0, requests, &arguments);
        let Reply { now, decided: Some(Decided { admitted, keys, bans }) } = reply else { panic!("expired") };
        let ask = |limit| Ask::new(limit, Fingerprint::from_hash(1), 1, now);
        let asks: Vec<Ask<'_>> = self.limits.iter().map(ask).collect();

        let mut answered: Vec<(usize, RemoteState)> = keys.into_iter().enumerate().collect();
        let mut bans = bans.into_iter();
        let of = |limit: &Arc<CountedLimit>| BanCheck::there(limit.ban.and_then(|_| bans.next()));
        let mut remote_bans: Vec<BanCheck<'_>> = self.limits.iter().map(of).collect();
        let mut ban_checks = self.ban_checks();
        let mut count = 0;
        for request in 0..requests {
            let said = evaluate(&asks, &mut answered, &mut remote_bans, true, |_, _, _, _| {});
            let expected = evaluate(&asks, &mut self.keys, &mut ban_checks, true, |_, _, _, _| {});
            prop_assert_eq!(&said.verdicts, &expected.verdicts, "request {} at {:?}", request, now);
            count += u32::from(expected.admitted);
        }
        prop_assert_eq!(admitted, count, "at {:?}", now);
        for (strikes, bar) in self.strikes.iter_mut().zip(ban_checks) {
            if let BanCheck::There(left) = bar {
                *strikes = left.strikes;
            }
        }
        Ok(())
    }
}

/// Several limits of which some ban, for several requests in one call, at any time.
#[test]
fn the_script_bans_as_the_core() {
    let server = Server::start();
    let store = RefCell::new(server.connect_timeless());
    let number = RefCell::new(0);
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 400;
    }
    let steps = vec((0..20_000_u64, 0..6_u32), 1..60);
    TestRunner::new(config)
        .run(&(vec(limits(), 1..=3), steps), |(of, steps)| {
            *number.borrow_mut() += 1;
            let store = &mut *store.borrow_mut();
            store.now = NOW;
            let mut run = Run::new(&of, *number.borrow());
            for (micros, requests) in steps {
                store.now += micros;
                run.ask(store, requests)?;
            }
            Ok(())
        })
        .unwrap();
}

/// What is kept of a ban ends with it, and what counts towards one when it is out of sight.
#[test]
fn what_is_kept_of_a_ban_ends_by_itself() {
    let server = Server::start();
    let mut store = server.connect();
    let ban = Ban::new(2, Span::from_secs(100), Span::from_secs(1_000)).unwrap();
    let mut limit = fixture::limit(places(1), 1, 0);
    limit.ban = Some(ban);
    let names = ["kept".to_owned(), "kept:ban".to_owned()];
    let arguments = [limit_argument(&limit, 1)];
    let mut ask = |requests| {
        let quotas = [&limit.quota];
        store.decide_with_bans(&names, &quotas, &[ban], 0, requests, &arguments);
        let life: i64 = store.command(&["PTTL", "kept:ban"]);
        (life, store.get("kept:ban").unwrap_or_default().len())
    };
    assert_eq!(ask(1), (-2, 0), "who is admitted is nobody's concern");
    let (life, bytes) = ask(1);
    assert!((90_000..=100_001).contains(&life) && bytes == 14, "{life} {bytes}");
    let (life, bytes) = ask(3);
    assert!((990_000..=1_000_001).contains(&life) && bytes == 7, "{life} {bytes}");
    assert_eq!(ask(5).1, 7, "what a ban refuses is not counted");
    let now = Time::EPOCH.plus(Span::DAY);
    let answered = Strikes::from_store(now.plus(Span::SECOND), 0, now);
    assert_eq!(ban.left(&answered, now), Some(Span::SECOND));
}
