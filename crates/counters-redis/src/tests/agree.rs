//! The scripts and the core say the same, request by request.

use std::cell::RefCell;

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use sluicegate_counters::{
    Ask, BanCheck, CountedLimit, Decision, Fingerprint, KeyState, RemoteState, evaluate,
};
use sluicegate_limiter::{Quota, Receipt, Refusal, Span, Time, Usage};

use super::quotas::{fresh, quotas, size};
use super::server::{Server, Store, decided};
use crate::fixture;
use crate::protocol::{argument, refund_argument, spend_argument};

/// 2026-11-21, in microseconds.
const NOW: u64 = 1_795_219_200_000_000;

#[derive(Clone, Copy, Debug)]
enum Step {
    Stay,
    Micros(u64),
    /// Thousandths of the period of one of the quotas.
    Share(usize, u64),
    /// To the instant that the last refusal named, less so many microseconds.
    Retry(u64),
    /// One period of one of the quotas after the last that was admitted, less so many microseconds.
    Expiry(usize, u64),
}

#[derive(Clone, Debug)]
enum What {
    /// So many requests, each with a cost for each key in eighths of what is possible, or if small, as it is.
    Ask { requests: u32, costs: Vec<(bool, u64)> },
    /// One of the requests that were admitted is taken back.
    Refund(usize),
    /// Each key is charged a late cost.
    Settle(Vec<(bool, u64)>),
}

#[derive(Clone, Debug)]
struct Case {
    quotas: Vec<(Quota, bool)>,
    steps: Vec<(Step, What)>,
}

fn cases(longest: u64, moves: impl Strategy<Value = Step> + 'static) -> impl Strategy<Value = Case> {
    let costs = (prop::bool::weighted(0.25), prop_oneof![8 => 1..=4_u64, 1 => 5..=9_u64]);
    let requests = prop_oneof![6 => Just(1_u32), 3 => 2..=6_u32, 1 => 0..=40_u32];
    let what = prop_oneof![
        5 => (requests, vec(costs.clone(), 3)).prop_map(|(requests, costs)| What::Ask { requests, costs }),
        1 => vec(costs, 3).prop_map(What::Settle),
        1 => any::<prop::sample::Index>().prop_map(|at| What::Refund(at.index(1 << 20))),
    ];
    (vec((quotas(longest), prop::bool::weighted(0.75)), 1..=3), vec((moves, what), 1..60))
        .prop_map(|(quotas, steps)| Case { quotas, steps })
}

fn moves() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Stay),
        2 => (1..=2_000_u64).prop_map(Step::Micros),
        3 => (0..3_usize, 0..=300_u64).prop_map(|(key, share)| Step::Share(key, share)),
        1 => (0..3_usize, 300..=3_000_u64).prop_map(|(key, share)| Step::Share(key, share)),
        4 => (0..=1_u64).prop_map(Step::Retry),
        2 => (0..3_usize, 0..=1_u64).prop_map(|(key, less)| Step::Expiry(key, less)),
    ]
}

/// One request that was admitted: what each key was charged, and when.
struct Charged {
    costs: Vec<u64>,
    receipts: Vec<Option<Receipt>>,
}

/// One case: the keys on the server, and the core's own states of them.
struct Run<'a> {
    store: &'a mut Store,
    limits: Vec<Arc<CountedLimit>>,
    quotas: Vec<Quota>,
    names: Vec<String>,
    local: Vec<RemoteState>,
    retry: u64,
    admitted_at: u64,
    charged: Vec<Charged>,
}

impl<'a> Run<'a> {
    fn new(store: &'a mut Store, case: &Case, number: usize) -> Self {
        let quotas: Vec<Quota> = case.quotas.iter().map(|(quota, _)| *quota).collect();
        let limits = case.quotas.iter().enumerate().map(|(i, (quota, enforces))| {
            let mut limit = fixture::limit(*quota, 10, i as u64);
            limit.enforced = *enforces;
            Arc::new(limit)
        });
        Self {
            limits: limits.collect(),
            names: (0..quotas.len()).map(|i| format!("key:{number}:{i}")).collect(),
            local: quotas.iter().map(fresh).collect(),
            quotas,
            store,
            retry: 0,
            admitted_at: 0,
            charged: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        let period = |key: usize| size(&self.quotas[key % self.quotas.len()]).1;
        let now = self.store.now;
        let then = match step {
            Step::Stay => now,
            Step::Micros(micros) => now + micros,
            Step::Share(key, share) => now + (u128::from(period(key)) * u128::from(share) / 1_000) as u64,
            Step::Retry(less) => self.retry.saturating_sub(less),
            Step::Expiry(key, less) => self.admitted_at + period(key) - less,
        };
        // Below the year 2050.
        self.store.now = then.clamp(now, 2_500_000_000_000_000.max(now));
    }

    fn costs(&self, costs: &[(bool, u64)]) -> Vec<u64> {
        let cost = |(quota, (heavy, cost)): (&Quota, &(bool, u64))| {
            if *heavy { cost * (size(quota).0 / 8).max(1) } else { *cost }
        };
        self.quotas.iter().zip(costs).map(cost).collect()
    }

    fn asks<'b>(&'b self, costs: &'b [u64], now: Time) -> Vec<Ask<'b>> {
        let ask = |(limit, cost): (&'b Arc<CountedLimit>, &u64)| {
            Ask::new(limit, Fingerprint::from_hash(1), *cost, now)
        };
        self.limits.iter().zip(costs).map(ask).collect()
    }

    /// All riders over these states.
    fn submit(
        &self,
        keys: &mut Vec<RemoteState>,
        now: Time,
        requests: u32,
        costs: &[u64],
    ) -> (Vec<Decision>, Vec<Charged>) {
        let asks = self.asks(costs, now);
        let mut held: Vec<(usize, RemoteState)> = std::mem::take(keys).into_iter().enumerate().collect();
        let (mut decisions, mut charged) = (Vec::new(), Vec::new());
        for _ in 0..requests {
            let mut receipts = vec![None; asks.len()];
            let mut ban_checks: Vec<BanCheck<'_>> = asks.iter().map(|_| BanCheck::None).collect();
            let decision = evaluate(&asks, &mut held, &mut ban_checks, true, |i, _, _, receipt| {
                receipts[i] = Some(receipt)
            });
            if decision.admitted {
                charged.push(Charged { costs: costs.to_vec(), receipts });
            }
            decisions.push(decision);
        }
        *keys = held.into_iter().map(|(_, key)| key).collect();
        (decisions, charged)
    }

    fn ask(&mut self, requests: u32, costs: &[(bool, u64)]) -> TestCaseResult {
        let costs = self.costs(costs);
        let quotas: Vec<&Quota> = self.quotas.iter().collect();
        let arguments: Vec<Vec<u8>> = quotas
            .iter()
            .zip(&self.limits)
            .zip(&costs)
            .map(|((quota, limit), cost)| argument(quota, limit.enforced, *cost))
            .collect();
        let (now, admitted, mut reply) =
            decided(self.store.decide(&self.names, &quotas, 0, requests, &arguments));
        let mut local = self.local.clone();
        let (expected, charged) = self.submit(&mut local, now, requests, &costs);
        let (said, _) = self.submit(&mut reply, now, requests, &costs);
        for (request, (said, expected)) in said.iter().zip(&expected).enumerate() {
            prop_assert_eq!(&said.verdicts, &expected.verdicts, "request {} at {:?}", request, now);
            prop_assert_eq!(said.admitted, expected.admitted, "request {}", request);
        }
        let count = expected.iter().filter(|decision| decision.admitted).count();
        prop_assert_eq!(admitted as usize, count, "at {:?}", now);
        let micros = now.as_nanos() / 1_000;
        let waits = expected.iter().flat_map(|decision| &decision.verdicts);
        let longest = waits.filter_map(|verdict| verdict.answer.err().and_then(Refusal::retry_after)).max();
        self.retry = longest.map_or(self.retry, |wait| micros.saturating_add(wait.ceil_micros()));
        self.admitted_at = if count > 0 { micros } else { self.admitted_at };
        self.local = local;
        self.charged.extend(charged);
        self.look(&costs)
    }

    fn refund(&mut self, which: usize) -> TestCaseResult {
        if self.charged.is_empty() {
            return Ok(());
        }
        let charged = self.charged.swap_remove(which % self.charged.len());
        let all = 0..self.quotas.len();
        let taken: Vec<(usize, Receipt)> =
            all.filter_map(|i| charged.receipts[i].map(|receipt| (i, receipt))).collect();
        let names: Vec<String> = taken.iter().map(|(i, _)| self.names[*i].clone()).collect();
        let quotas: Vec<&Quota> = taken.iter().map(|(i, _)| &self.quotas[*i]).collect();
        let arguments: Vec<Vec<u8>> = taken
            .iter()
            .map(|(i, receipt)| {
                refund_argument(&self.quotas[*i], self.quotas[*i].charged(charged.costs[*i], *receipt))
            })
            .collect();
        let reply = self.store.refund(&names, &quotas, &arguments);
        for (i, receipt) in &taken {
            self.local[*i].refund(reply.now, charged.costs[*i], *receipt);
        }
        for ((i, _), key) in taken.iter().zip(&reply.keys) {
            prop_assert_eq!(key.usage(reply.now), self.local[*i].usage(reply.now), "{:?}", self.quotas[*i]);
        }
        self.look(&charged.costs)
    }

    fn settle(&mut self, costs: &[(bool, u64)]) -> TestCaseResult {
        let costs = self.costs(costs);
        let timed = |i: &usize| !self.quotas[*i].is_concurrency(); // places are not settled
        let keys: Vec<usize> = (0..self.quotas.len()).filter(timed).collect();
        let names: Vec<String> = keys.iter().map(|i| self.names[*i].clone()).collect();
        let quotas: Vec<&Quota> = keys.iter().map(|i| &self.quotas[*i]).collect();
        let arguments: Vec<Vec<u8>> =
            keys.iter().map(|i| spend_argument(&self.quotas[*i], costs[*i])).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let reply = self.store.spend(&names, &quotas, &arguments);
        for i in &keys {
            self.local[*i].settle(reply.now, costs[*i]);
        }
        for (i, key) in keys.iter().zip(&reply.keys) {
            let local = self.local[*i].usage(reply.now);
            prop_assert_eq!(key.usage(reply.now), local, "{:?}", self.quotas[*i]);
        }
        self.look(&costs)
    }

    /// What is kept on the server is what the core has.
    fn look(&mut self, costs: &[u64]) -> TestCaseResult {
        let quotas: Vec<&Quota> = self.quotas.iter().collect();
        let arguments: Vec<Vec<u8>> =
            quotas.iter().zip(costs).map(|(quota, cost)| argument(quota, true, *cost)).collect();
        let (now, admitted, reply) = decided(self.store.decide(&self.names, &quotas, 0, 0, &arguments));
        prop_assert_eq!(admitted, 0);
        for (i, (reply, local)) in reply.iter().zip(&self.local).enumerate() {
            let faces = |key| face(key, now, costs[i], size(&self.quotas[i]).1);
            prop_assert_eq!(faces(reply), faces(local), "{:?} at {:?}", self.quotas[i], now);
        }
        Ok(())
    }
}

/// What a key says of itself. Of a log only a view is told, which knows nothing of later.
fn face(key: &RemoteState, now: Time, cost: u64, period: u64) -> Vec<(Usage, bool, Result<Span, Refusal>)> {
    let later: &[u64] = match key {
        RemoteState::SlidingLog(..) => &[0],
        _ => &[0, 1, period / 7, period, 2 * period],
    };
    let at = |later: &u64| now.plus(Span::from_nanos(later * 1_000));
    later.iter().map(at).map(|at| (key.usage(at), key.is_idle(at), key.check(at, cost))).collect()
}

fn run(store: &mut Store, case: &Case, number: usize) -> TestCaseResult {
    store.now = NOW;
    let mut run = Run::new(store, case, number);
    for (step, what) in &case.steps {
        run.step(*step);
        match what {
            What::Ask { requests, costs } => run.ask(*requests, costs)?,
            What::Refund(which) => run.refund(*which)?,
            What::Settle(costs) => run.settle(costs)?,
        }
    }
    Ok(())
}

fn run_all(store: Store, count: u32, cases: impl Strategy<Value = Case>) {
    let (store, number) = (RefCell::new(store), RefCell::new(0));
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = count;
    }
    let tried = TestRunner::new(config).run(&cases, |case| {
        *number.borrow_mut() += 1;
        run(&mut store.borrow_mut(), &case, *number.borrow())
    });
    if let Err(failure) = tried {
        panic!("{}", failure.to_string().replace(char::is_whitespace, " "));
    }
}

/// Several limits at once, of all algorithms, with quotas up to the largest, some of them shadows, for several
/// requests in one call, at any time: admitted are as many as the core admits, and every request is told the same
/// by each limit. What is given back is gone.
#[test]
fn the_scripts_decide_as_the_core() {
    let server = Server::start();
    run_all(server.connect_timeless(), 300, cases(u64::MAX, moves()));
}

/// The same on the clock of the server, on which short periods pass while it runs and keys are forgotten.
#[test]
fn they_do_so_on_the_clock_of_the_server() {
    let server = Server::start();
    run_all(server.connect(), 60, cases(20_000, Just(Step::Stay)));
}
