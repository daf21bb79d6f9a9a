//! Several gateways with one Redis enforce one limit: exactly as many requests pass as configured, with every
//! algorithm, and refused requests are not charged.

use std::time::Duration;

use crate::harness::fleet::{limit, route};
use crate::harness::load::admitted;
use crate::harness::{
    Client, Fleet, Gateway, Load, RedisServer, Setup, Stopwatch, faketime, gated_upstream, measure, sleep,
    until,
};

/// Occupies places of a queue or in flight: sends one request on each of `count` connections and waits until all are
/// decided.
fn held(fleet: &Fleet, count: usize, target: &str, limit: &str) -> Vec<Client> {
    let send = |at: usize| {
        let mut client = fleet[at % fleet.len()].client();
        client.request("GET", target, &[("x-api-key", "k")]);
        client
    };
    let clients = (0..count).map(send).collect();
    until("all are decided on", || {
        let decided = fleet.decisions(limit, "admitted") + fleet.decisions(limit, "refused");
        (decided == count as f64).then_some(())
    });
    clients
}

/// Of 3,000 requests over 200 connections to four gateways exactly 1,000 pass.
#[test]
fn exactly_the_limit_passes_on_all_gateways_together() {
    let redis = RedisServer::start();
    let algorithms = ["token_bucket", "fixed_window", "sliding_log", "sliding_window"];
    let mut text = redis.store() + "limits:\n";
    for name in algorithms {
        text += &format!("  {name}: {{key: api_key, rate: 1000/366d, algorithm: {name}}}\n");
    }
    text += "routes:\n";
    for name in algorithms {
        text += &format!(
            "  - {{name: {name}, match: {{path: /{name}}}, respond: {{status: 200}}, limits: [{name}]}}\n"
        );
    }
    let fleet = Fleet::start(4, &text);
    for name in algorithms {
        let samples = Load::on(&fleet, 200).target(&format!("/{name}")).keys(&["k"]).send(3_000);
        assert_eq!((samples.len(), admitted(&samples)), (3_000, 1_000), "{name}");
        for gateway in fleet.iter() {
            assert_eq!(gateway.remaining(name, "k"), 0, "{name}");
            assert_eq!(gateway.remaining(name, "other"), 1_000, "{name}: others are not concerned");
        }
    }
    assert_eq!(fleet.fallbacks(), 0.0, "all of it was decided in the store");
}

/// Exactly as many requests wait as the queue has places, on all gateways together.
#[test]
fn a_shared_queue_has_as_many_places_as_it_says() {
    let redis = RedisServer::start();
    let text = limit("algorithm: leaky_bucket, rate: 1000/366d, burst: 500");
    let fleet = Fleet::start(4, &(redis.store() + &text));
    let _waiting = held(&fleet, 600, "/", "l");
    assert_eq!((fleet.decisions("l", "admitted"), fleet.decisions("l", "refused")), (500.0, 100.0));
    assert_eq!(fleet.fallbacks(), 0.0, "all of it was decided in the store");
}

/// Exactly as many requests are in flight as the limit says, on all gateways together.
#[test]
fn shared_places_are_as_many_as_they_say() {
    let redis = RedisServer::start();
    let (upstream, gate) = gated_upstream();
    let text = redis.store()
        + "limits: {l: {key: api_key, algorithm: concurrency, max: 100}}\n\
           upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
           routes: [{name: api, match: {path: /*}, upstream: api, limits: [l]}]\n";
    let fleet = Fleet::of((0..4).map(|_| Setup::default().upstream(&upstream)).collect(), &text);
    fleet.up();
    let clients = held(&fleet, 200, "/slow", "l");
    assert_eq!((fleet.decisions("l", "admitted"), fleet.decisions("l", "refused")), (100.0, 100.0));
    assert_eq!(fleet.fallbacks(), 0.0, "all of it was decided in the store");
    assert_eq!(upstream.wait_for(100).len(), 100);
    gate.open();
    let statuses = clients.into_iter().map(|mut client| client.response().status);
    assert_eq!(statuses.filter(|&status| status == 200).count(), 100);
    until("all places are free at once", || (fleet[3].remaining("l", "k") == 100).then_some(()));
}

/// 10,000 requests that one limit refuses cost exactly nothing in the other, in either order.
#[test]
fn a_refusal_by_one_limit_costs_nothing_elsewhere() {
    let redis = RedisServer::start();
    let limits = "  narrow: {key: api_key, rate: 5/366d}\n  \
                  wide: {key: global, rate: 100000/366d, algorithm: sliding_window}";
    for order in ["narrow, wide", "wide, narrow"] {
        redis.run::<()>(&["FLUSHALL"]);
        let fleet = Fleet::start(2, &(redis.store() + &route(order, limits)));
        let samples = Load::on(&fleet, 64).keys(&["k"]).send(10_005);
        assert_eq!(admitted(&samples), 5, "{order}");
        assert_eq!(fleet[0].remaining("wide", "any"), 99_995, "{order}");
        // Many keys reach their limits at the same time, so that Redis refuses and not the memory of the gateways.
        let keys: Vec<String> = (0..50).map(|key| format!("many-{key}")).collect();
        let samples = Load::on(&fleet, 64).keys(&keys).send(1_000);
        assert_eq!(admitted(&samples), 250, "{order}");
        assert_eq!(fleet[1].remaining("wide", "any"), 99_745, "{order}");
    }
}

/// A rate and a concurrency limit are one decision: neither is charged if the other refuses.
#[test]
fn a_rate_and_places_are_one_decision() {
    let redis = RedisServer::start();
    let (upstream, gate) = gated_upstream();
    let text = redis.store()
        + "limits:\n  places: {key: api_key, algorithm: concurrency, max: 3}\n  tokens: {key: api_key, rate: 10/366d}\n\
           upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
           routes: [{name: api, match: {path: /*}, upstream: api, limits: [tokens, places]}]\n";
    let fleet = Fleet::of((0..2).map(|_| Setup::default().upstream(&upstream)).collect(), &text);
    fleet.up();
    let mut clients = held(&fleet, 3, "/slow", "places");
    assert_eq!(fleet.in_turn(100, "k"), [429; 100], "all places are taken");
    assert_eq!(fleet[0].remaining("tokens", "k"), 7, "and the hundred refused took no token");
    gate.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    until("the places are free", || (fleet[0].remaining("places", "k") == 3).then_some(()));
    let statuses = fleet[0].statuses(8, "/", &[("x-api-key", "k")]);
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 200, 429], "the tokens are spent");
    assert_eq!(fleet.in_turn(50, "k"), [429; 50]);
    until("and the refused took no place", || (fleet[1].remaining("places", "k") == 3).then_some(()));
}

/// A local and a shared limit on the same route: neither is charged if the other refuses.
#[test]
fn a_local_and_a_shared_limit_are_one_decision() {
    let redis = RedisServer::start();
    let limits = "  mine: {key: api_key, rate: 4/366d, scope: local}\n  ours: {key: api_key, rate: 5/366d}";
    for order in ["mine, ours", "ours, mine"] {
        redis.run::<()>(&["FLUSHALL"]);
        let fleet = Fleet::start(2, &(redis.store() + &route(order, limits)));
        let passed = |gateway: &Gateway| {
            let statuses = gateway.statuses(50, "/", &[("x-api-key", "k")]);
            statuses.iter().filter(|&&status| status == 200).count()
        };
        let left = |gateway: &Gateway| (gateway.remaining("mine", "k"), gateway.remaining("ours", "k"));
        assert_eq!((passed(&fleet[0]), left(&fleet[0])), (4, (0, 1)), "{order}");
        assert_eq!((passed(&fleet[1]), left(&fleet[1])), (1, (3, 0)), "{order}");
    }
}

/// An admitted request costs at most one call of the store, and a hundred refused requests at most one.
#[test]
fn refused_requests_cost_no_round_trip() {
    let redis = RedisServer::start();
    let fleet = Fleet::start(2, &(redis.store() + &limit("rate: 1000/366d")));
    let keys: Vec<String> = (0..50).map(|key| format!("many-{key}")).collect();
    // Heartbeats cost calls too: those are counted while there are no requests.
    let before = redis.scripts();
    sleep(Duration::from_secs(1));
    let idle = redis.scripts() - before;
    let before = redis.scripts();
    let (samples, took) = measure(|| Load::on(&fleet, 50).keys(&keys).send(5_000));
    assert_eq!(admitted(&samples), 5_000);
    let calls = redis.scripts() - before;
    let others = (idle + 1) * (took.as_secs() + 1);
    assert!(calls <= 5_000 + others, "{calls} calls for 5,000 admitted requests");
    assert_eq!(admitted(&Load::on(&fleet, 50).keys(&["k"]).send(1_500)), 1_000);
    let before = redis.scripts();
    assert_eq!(admitted(&Load::on(&fleet, 50).keys(&["k"]).send(10_000)), 0);
    let calls = redis.scripts() - before;
    assert!(calls <= 100, "{calls} calls for 10,000 refused requests");
}

/// Gateways whose clocks are a minute apart give the same answers: only the clock of the store counts.
#[test]
fn wrong_clocks_change_nothing() {
    let redis = RedisServer::start();
    let setup = |offset: &str| {
        let setup = Setup::default().env("LD_PRELOAD", &faketime()).env("FAKETIME", offset);
        setup.env("DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    };
    // A minute away from now is another window of two minutes, before or after.
    let windows = ["token_bucket", "fixed_window", "sliding_log", "sliding_window"];
    let mut limits = String::new();
    for name in windows {
        limits += &format!("  {name}: {{key: api_key, rate: 12/2min, algorithm: {name}}}\n");
    }
    let mut text = redis.store() + "limits:\n" + &limits + "routes:\n";
    for name in windows {
        text += &format!(
            "  - {{name: {name}, match: {{path: /{name}}}, respond: {{status: 200}}, limits: [{name}]}}\n"
        );
    }
    let fleet = Fleet::of(vec![setup("-60s"), Setup::default(), setup("+60s")], &text);
    fleet.up();
    let minutes: std::collections::BTreeSet<_> = fleet
        .iter()
        .map(|gateway| gateway.admin_get("/status").json()["loaded_at"].as_str().unwrap()[..16].to_owned())
        .collect();
    assert!(minutes.len() >= 2, "the clocks are as wrong as they should be: {minutes:?}");
    until("no window ends soon", || {
        let now: (u64, u64) = redis.run(&["TIME"]);
        (now.0 % 120 < 112).then_some(())
    });
    for name in windows {
        let (mut resets, mut watch) = (Vec::new(), Stopwatch::start());
        for at in 0..15 {
            if at == 12 {
                watch = Stopwatch::start();
            }
            let gateway = &fleet[at % 3];
            let answer = gateway.ask("GET", &format!("/{name}"), &[("x-api-key", "k")]);
            assert_eq!(answer.status, if at < 12 { 200 } else { 429 }, "{name}, request {at}");
            assert_eq!(answer.number("x-ratelimit-remaining"), 11_u64.saturating_sub(at as u64), "{name}");
            resets.push(answer.number("x-ratelimit-reset"));
        }
        let (last, took) = (&resets[12..], watch.elapsed().as_secs());
        assert!(last.iter().max().unwrap() - last.iter().min().unwrap() <= 1 + took, "{name}: {resets:?}");
    }
}
