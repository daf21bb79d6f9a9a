//! Many gateways and one store in virtual time: calls are delayed, lost and reordered, the network is cut, gateways crash, start
//! again and have clocks that differ. The leases are those of the gateway; everything else is as simple as can be.
//!
//! Each run has a seed, which is printed if it fails: `SEED=n cargo test -p sluicegate-leases --test simulation` repeats it,
//! `SEEDS=10000` runs more of them.

mod world;

use sluicegate_leases::{ErrorBudget, Terms};
use sluicegate_limiter::{FixedWindow, LeakyBucket, Quota, Rate, SlidingWindow, Span, TokenBucket};
use world::{Faults, Run, World};

const BUDGET: ErrorBudget = ErrorBudget::USUAL;

fn rate(count: u64, millis: u64) -> Rate {
    Rate::new(count, Span::from_millis(millis)).expect("a rate")
}

fn token_bucket(count: u64, burst: u64) -> Quota {
    let rate = rate(count, 1_000);
    Quota::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"), rate, burst)
}

fn sliding(rate: Rate, slices: u32) -> Quota {
    Quota::SlidingWindow(SlidingWindow::new(rate, slices).expect("slices"), rate)
}

/// The quotas that a seed chooses from, and whether they are strict.
fn quota(seed: u64) -> (Quota, bool) {
    let window = rate(2_000, 500);
    match seed % 6 {
        0 => (token_bucket(4_000, 4_000), false),
        1 => (token_bucket(4_000, 1_000), false),
        2 => (token_bucket(4_000, 4_000), true),
        3 => (Quota::FixedWindow(FixedWindow::new(window), window), false),
        4 => (sliding(rate(20_000, 500), 5), false),
        _ => {
            let rate = rate(4_000, 1_000);
            (Quota::LeakyBucket(LeakyBucket::new(rate, 2_000, None).expect("a bucket"), rate, 2_000), false)
        }
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("SEED"), number("SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(200),
    }
}

/// Whatever happens, never more is admitted above the limit than the bound says, and nothing in strict mode and of windows.
#[test]
fn the_bound_holds() {
    let mut most_over = 0;
    for seed in seeds() {
        let (quota, strict) = quota(seed);
        let terms = Terms::new(&quota, BUDGET, strict).at_least(2);
        let gateways = [2, 4, 10][seed as usize / 6 % 3];
        let run = Run {
            quota,
            budget: BUDGET,
            strict,
            gateways,
            millis: 8_000,
            step: Span::MILLISECOND,
            load: 2.5,
            faults: Faults::ALL,
        };
        let end = World::new(seed, run).run();
        let bound = (1..=2 * gateways).map(|count| terms.over_admission(count)).max().unwrap_or(0);
        assert!(
            end.most_held <= terms.over_admission(1).max(terms.share(1)),
            "SEED={seed}: {} tokens were held, {quota:?}",
            end.most_held
        );
        most_over = most_over.max(end.over);
        assert!(end.over <= bound, "SEED={seed}: {} above {quota:?}, the bound is {bound}", end.over);
        assert!(end.admitted > 0 && end.leased > 0, "SEED={seed}: nothing was leased: {end:?}");
    }
    println!("at most {most_over} requests above a limit");
}

/// The same seed gives the same run.
#[test]
fn a_run_can_be_repeated() {
    let run = Run {
        quota: token_bucket(4_000, 4_000),
        budget: BUDGET,
        strict: false,
        gateways: 4,
        millis: 4_000,
        step: Span::MILLISECOND,
        load: 2.0,
        faults: Faults::ALL,
    };
    let [one, other] = [(); 2].map(|()| World::new(7, run).run());
    assert_eq!(one, other);
    assert_ne!(one, World::new(8, run).run());
}

/// With leases, nearly all of the limit is used, also if one gateway has most of the requests, with few calls.
#[test]
fn the_limit_is_used_with_few_calls() {
    let window = rate(100_000, 1_000);
    let fixed = Quota::FixedWindow(FixedWindow::new(window), window);
    for (quota, gateways, load) in [
        (token_bucket(100_000, 100_000), 4, 1.5),
        (token_bucket(100_000, 100_000), 10, 1.1),
        (token_bucket(100_000, 20_000), 10, 3.0),
        (fixed, 4, 1.0),
        (fixed, 10, 1.5),
        (sliding(window, 60), 4, 0.9),
    ] {
        let run = Run {
            quota,
            budget: BUDGET,
            strict: false,
            gateways,
            millis: 33_000,
            step: Span::from_nanos(100_000),
            load,
            faults: Faults::NONE,
        };
        let end = World::new(1, run).run();
        let possible = end.allowed_settled.min(end.asked_settled);
        let used = end.admitted_settled as f64 / possible as f64;
        let calls = end.calls_settled as f64 / end.asked_settled as f64;
        let name = quota.algorithm();
        println!(
            "{gateways} gateways, {name}, {load} times the rate: {used:.5} used, {calls:.5} calls a request"
        );
        assert!(used >= 0.999, "{gateways} gateways use {used} of {quota:?}");
        assert!(calls <= 0.12, "{gateways} gateways need {calls} calls a request for {quota:?}");
    }
}
