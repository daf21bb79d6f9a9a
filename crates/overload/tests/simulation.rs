//! An upstream that is offered less and more than it can handle, that changes, stalls and recovers.

#![allow(missing_docs)]

mod world;

use world::{ALONE, FOUR, Gateways, Load, Service, run, run_with};

/// The seeds and the distributions of the time that a request takes; `SEEDS=20` makes more of them.
fn all() -> impl Iterator<Item = (Service, u64)> {
    let count = std::env::var("SEEDS").ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(3);
    let services = [Service::Exponential, Service::Lognormal, Service::Bimodal];
    services.into_iter().flat_map(move |service| (1..=count).map(move |seed| (service, seed)))
}

const OVER: Load = Load { rate: 1_000.0, critical: 0.15, sheddable: 0.25, greedy: 1.0, retries: 0 };

/// Five times the load that an upstream can handle: 200 requests a second, 15 % of it critical.
#[test]
fn critical_requests_are_answered_and_the_upstream_is_used() {
    for (service, seed) in all() {
        let found = run(seed, 60, service, |_| 10, |_| 1.0, |_| OVER);
        let limits: Vec<u32> = found.seconds.iter().step_by(4).map(|second| second.limit).collect();
        println!(
            "{service:?}, seed {seed}: {:.1} done a second, critical {:.4}, p99 {:.3} s, limits {limits:?}",
            found.done(5, 60),
            found.critical(5, 60),
            found.quantile(0.99),
        );
        assert!(found.used(5, 60) >= 0.9, "{service:?}");
        assert!(found.quantile(0.99) <= 2.0 * service.unloaded() + 1.0, "{service:?}");
        let least = if matches!(service, Service::Bimodal) { 0.985 } else { 0.99 };
        assert!(found.critical(5, 60) >= least, "{service:?}: {}", found.critical(5, 60));
    }
}

/// The upstream becomes four times as large, or as fast, and then a quarter of that; before it one gateway or four.
#[test]
fn the_limit_follows_the_upstream() {
    for ((service, seed), gateways) in all().flat_map(|one| [(one, ALONE), (one, FOUR)]) {
        for (name, servers, speed) in [
            ("servers x4", [10, 40, 10], [1.0, 1.0, 1.0]),
            ("servers /4", [40, 10, 40], [1.0, 1.0, 1.0]),
            ("speed x4", [10, 10, 10], [1.0, 4.0, 1.0]),
            ("speed /4", [40, 40, 40], [1.0, 0.25, 1.0]),
        ] {
            let stage = |now: f64| (now / 30.0) as usize % 3;
            let load = Load { rate: 2_000.0, ..OVER };
            let (servers_at, speed_at) = (|now| servers[stage(now)], |now| speed[stage(now)]);
            let found = run_with(gateways, seed, 90, service, servers_at, speed_at, |_| load);
            let parts: Vec<f64> = (0..3).map(|at| found.used(at * 30 + 2, at * 30 + 30)).collect();
            println!(
                "{service:?}, seed {seed}, {name}, {}: {parts:.3?} of the capacity, limits {:?}",
                gateways.count,
                found.seconds.iter().step_by(5).map(|second| second.limit).collect::<Vec<_>>()
            );
            assert!(parts.iter().all(|part| *part >= 0.9), "{service:?}, {name}: {parts:?}");
        }
    }
}

/// The upstream begins nothing for five seconds; clients try again and again; at last the load is half the capacity.
#[test]
fn the_upstream_recovers() {
    for (service, seed) in all() {
        let load = |now: f64| match now {
            60.0.. => Load { rate: 100.0, ..OVER },
            _ => Load { retries: 3, ..OVER },
        };
        let stall = |now: f64| if (30.0..35.0).contains(&now) { 0 } else { 10 };
        let found = run(seed, 80, service, stall, |_| 1.0, load);
        let came: u64 = found.seconds[63..78].iter().map(|second| second.came).sum();
        let after = found.done(63, 78) / (came as f64 / 15.0);
        println!(
            "{service:?}, seed {seed}: {:.1} before, {:.1} after the stall, then {after:.3} of those that come",
            found.done(5, 30),
            found.done(37, 60),
        );
        let least = if matches!(service, Service::Bimodal) { 0.97 } else { 0.99 };
        assert!(found.used(5, 30) >= 0.9 && found.used(37, 60) >= 0.9, "{service:?}");
        assert!(after >= least, "{service:?}: {after}");
    }
}

/// Several gateways find the same limit together, also while the one that runs it is killed.
#[test]
fn gateways_share_what_they_measure() {
    for (service, seed) in all() {
        for (count, dies) in [(1, None), (2, None), (4, None), (4, Some(30.0))] {
            let gateways = Gateways { count, pooled: true, dies };
            let found = run_with(gateways, seed, 60, service, |_| 10, |_| 1.0, |_| OVER);
            println!(
                "{service:?}, seed {seed}, {count} gateways, {dies:?}: {:.1} done a second, critical {:.4}, p99 {:.3} s, limits {:?}",
                found.done(5, 60),
                found.critical(5, 60),
                found.quantile(0.99),
                found.seconds.iter().step_by(4).map(|second| second.limit).collect::<Vec<_>>(),
            );
            // What was in flight at the one that is killed is lost, and with 10 or 410 ms the best fixed limit may answer 99.6 %.
            let critical = if matches!(service, Service::Bimodal) { 0.985 } else { 0.99 };
            assert!(found.used(5, 60) >= 0.9, "{service:?}, {count}: {}", found.used(5, 60));
            assert!(found.quantile(0.99) <= 2.0 * service.unloaded() + 1.0, "{service:?}, {count}");
            assert!(found.critical(5, 60) >= critical, "{service:?}, {count}: {}", found.critical(5, 60));
        }
    }
}

/// Nine consumers with 15 requests a second each, and one with a hundred times as many: the nine lose 0.5 % at most on average. They
/// lose more where the limit of one run has drifted upwards, or where a few long requests at once leave the upstream no room
/// for longer than a default request waits.
#[test]
fn a_greedy_consumer_waits_behind_the_others() {
    let load = Load { rate: 1_635.0, critical: 0.0, sheddable: 0.0, greedy: 1_500.0 / 1_635.0, retries: 0 };
    let mut usual = Vec::new();
    for (service, seed) in all() {
        for gateways in [ALONE, FOUR] {
            let found = run_with(gateways, seed, 60, service, |_| 10, |_| 1.0, |_| load);
            let others = found.others(5, 60);
            let count = gateways.count;
            println!("{service:?}, seed {seed}, {count}: others {others:.4}, {:.1}", found.done(5, 60));
            let bimodal = matches!(service, Service::Bimodal);
            assert!(others >= if bimodal { 0.95 } else { 0.985 }, "{service:?}, {count}: {others}");
            assert!(found.done(5, 60) >= 175.0, "{service:?}, {count}");
            usual.extend((!bimodal).then_some(others));
        }
    }
    let mean = usual.iter().sum::<f64>() / usual.len() as f64;
    assert!(mean >= 0.995, "{mean}");
}

/// Few requests change nothing, and none is refused.
#[test]
fn a_quiet_upstream_refuses_nobody() {
    // None come in the last seconds, so that at the end all have been answered.
    let load = |now: f64| Load { rate: if now < 115.0 { 3.0 } else { 1e-9 }, ..OVER };
    let found = run(3, 120, Service::Bimodal, |_| 10, |_| 1.0, load);
    let came: u64 = found.seconds.iter().map(|second| second.came).sum();
    assert!(came > 250 && found.took.len() as u64 == came, "{} of {came}", found.took.len());
}

/// Below the capacity nearly all requests are answered: at 0.9 of it some wait, because they come and are handled at random.
#[test]
fn below_the_capacity_hardly_any_request_is_refused() {
    let load = Load { rate: 180.0, critical: 0.15, sheddable: 0.0, greedy: 1.0, retries: 0 };
    for ((service, seed), gateways) in all().flat_map(|one| [(one, ALONE), (one, FOUR)]) {
        let found = run_with(gateways, seed, 120, service, |_| 10, |_| 1.0, |_| load);
        let came: u64 = found.seconds[5..120].iter().map(|second| second.came).sum();
        let refused = 1.0 - found.done(5, 120) * 115.0 / came as f64;
        println!(
            "{service:?}, seed {seed}, {}: refused {refused:.4}, p99 {:.3} s, limits {:?}",
            gateways.count,
            found.quantile(0.99),
            found.seconds.iter().step_by(4).map(|second| second.limit).collect::<Vec<_>>(),
        );
        let most = match service {
            Service::Bimodal => 0.05,
            Service::Exponential => 0.015,
            Service::Lognormal => 0.01,
        };
        assert!(refused <= most, "{service:?}, {}: {refused}", gateways.count);
    }
}
