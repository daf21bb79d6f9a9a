//! Redis goes away and comes back: only operators notice, limits are enforced meanwhile, and afterwards they are
//! exact again.

use std::time::Duration;

use crate::harness::fleet::{has_store, limit};
use crate::harness::load::{Sample, admitted, slowest};
use crate::harness::{
    Fleet, Gateway, Load, RedisServer, Setup, Stopwatch, deadline, in_parallel, patience, sleep, until,
    within,
};

/// A limit that no request reaches, and one of 1,000 on `/tight`.
const TEXT: &str = "limits: {wide: {key: api_key, rate: 1M/366d}, tight: {key: api_key, rate: 1000/366d}}\nroutes:\n  \
                    - {name: tight, match: {path: /tight}, respond: {status: 200}, limits: [tight]}\n  \
                    - {name: wide, match: {path: /*}, respond: {status: 200}, limits: [wide]}\n";

/// Sends 1,200 requests for a key of `/tight` to each gateway and counts how many each admits.
fn tight(fleet: &Fleet, key: &str) -> Vec<usize> {
    in_parallel(fleet.len(), |gateway| {
        admitted(&Load::on(&fleet[gateway..=gateway], 50).target("/tight").keys(&[key]).send(1_200))
    })
}

/// All requests were admitted, and none waited for the store much longer than its timeout, but for the few that are in
/// flight while a busy machine lets a process wait.
#[track_caller]
fn nobody_waits(samples: &[Sample]) {
    assert_eq!(admitted(samples), samples.len(), "nobody is refused");
    let slow = samples.iter().filter(|sample| sample.took > Duration::from_secs(1)).count();
    assert!(slow <= samples.len() / 10, "{slow} of {} took more than a second", samples.len());
    let slowest = slowest(samples);
    assert!(slowest < patience(5), "the slowest took {slowest:?}");
}

/// The number of calls to the store that requests have waited for, with any outcome.
fn calls(fleet: &Fleet) -> f64 {
    let outcomes = ["ok", "timeout", "error", "expired"];
    let calls = |outcome| fleet.sum("sluicegate_store_operations_total", &[("outcome", outcome)]);
    outcomes.into_iter().map(calls).sum()
}

/// Redis is killed under load and comes back empty.
#[test]
fn redis_is_killed_under_load() {
    let mut redis = RedisServer::start();
    let fleet = Fleet::start(4, &(redis.store_within("50ms") + TEXT));
    let spent: Vec<u16> =
        fleet.iter().flat_map(|gateway| gateway.statuses(251, "/tight", &[("x-api-key", "spent")])).collect();
    assert_eq!(spent.iter().filter(|&&status| status == 200).count(), 1_000);
    fleet.iter().for_each(|gateway| assert_eq!(gateway.remaining("tight", "spent"), 0));

    let load = Load::on(&fleet, 24).keys(&["steady"]).pause(Duration::from_millis(10)).start();
    until("the load runs", || (load.answered() > 500).then_some(()));
    redis.kill();
    fleet.down();
    let calls_of_500_answers = || {
        let (called, answered) = (calls(&fleet), load.answered());
        until("the load goes on", || (load.answered() > answered + 500).then_some(()));
        calls(&fleet) - called
    };
    until("every worker knows it", || (calls_of_500_answers() == 0.0).then_some(()));
    assert_eq!(calls_of_500_answers(), 0.0, "no request waits for a store that is known to be away");
    nobody_waits(&load.stop()); // while it is still away

    assert_eq!(tight(&fleet, "outage"), [250; 4], "each gateway has its share");
    assert_eq!(tight(&fleet, "spent"), [0; 4], "and what is known to be spent is spent");

    redis.restart();
    fleet.up_within(patience(5));
    fleet.exactly(1_000, "/tight", "after");
    until("what was spent meanwhile is written back", || {
        (fleet[0].remaining("tight", "outage") == 0).then_some(())
    });
    assert_eq!(tight(&fleet, "outage"), [0; 4]);
}

/// Redis freezes under the load of four workers: requests that wait for an answer at that moment stop waiting before the
/// timeout, requests that come later do not wait, and the connections stay.
///
/// A thread that gets no processor for some ten milliseconds looks like one that waits for the store, and a server that
/// is thawed late loses its connections. Therefore some rounds may be spoiled.
#[test]
fn no_request_waits_for_the_whole_timeout_of_a_freeze() {
    const ROUNDS: usize = 4;
    const SPOILED: usize = 12;
    let redis = RedisServer::start();
    let text = redis.store_within("100ms") + TEXT;
    let fleet = Fleet::of(vec![Setup::default().workers(4)], &text);
    fleet.up();
    let keys: Vec<String> = (0..64).map(|key| format!("key-{key}")).collect();
    let connections = || number(redis.info("stats", "total_connections_received"));
    let (mut kept, mut spoiled) = (0, Vec::new());
    while kept < ROUNDS {
        let before = connections();
        let load = Load::on(&fleet, 48).keys(&keys).start();
        until("the load runs", || (load.answered() > 1_000).then_some(()));
        let frozen = load.now();
        redis.freeze();
        sleep(Duration::from_millis(400));
        redis.thaw();
        let thawed = load.now();
        sleep(Duration::from_millis(300));
        let samples = load.stop();
        admitted(&samples);
        let during = samples.iter().filter(|sample| (frozen..thawed).contains(&(sample.at + sample.took)));
        let slow = during.filter(|sample| sample.took >= Duration::from_millis(90)).count();
        let new = connections() - before;
        // One request of each worker at most waits for the whole timeout, and the harness's own connection is new.
        if slow <= 4 && new == 1 && has_store(&fleet[0]) {
            kept += 1;
        } else {
            spoiled.push((slow, new));
            assert!(spoiled.len() <= SPOILED, "slow requests and new connections: {spoiled:?}");
            fleet.up();
        }
    }
}

/// Three calls in a row that are late say that a server does not work; three within ten seconds do not.
#[test]
fn occasional_timeouts_do_not_open_the_breaker() {
    let redis = RedisServer::start();
    let fleet = Fleet::of(vec![Setup::default().workers(1)], &(redis.store_within("50ms") + TEXT));
    fleet.up();
    let connections = || number(redis.info("stats", "total_connections_received"));
    let (mut kept, mut spoiled) = (0, 0);
    while kept < 4 {
        let (before, watch) = (connections(), Stopwatch::start());
        redis.freeze();
        assert_eq!(fleet[0].statuses(1, "/", &[("x-api-key", "k")]), [200]);
        sleep(Duration::from_millis(50));
        redis.thaw();
        let frozen = watch.elapsed();
        sleep(Duration::from_millis(1_200));
        // A server that is frozen for a second loses its connections.
        if frozen > Duration::from_millis(500) {
            spoiled += 1;
            assert!(spoiled <= 8, "it was frozen for {frozen:?} and not for 50 ms");
            fleet.up();
        } else {
            assert_eq!(connections(), before + 1, "but for the one that asks");
            kept += 1;
        }
    }
    assert!(has_store(&fleet[0]));
}

fn number(text: Option<String>) -> u64 {
    text.unwrap().parse().unwrap()
}

/// Redis is frozen for some seconds: calls that no request waits for any more spend nothing when it goes on.
#[test]
fn redis_is_frozen_and_thawed() {
    let redis = RedisServer::start();
    let fleet = Fleet::start(2, &(redis.store_within("200ms") + TEXT));
    let before = fleet.in_turn(10, "steady").len();
    // No request is in flight at this moment, so that each is decided either by Redis or by the gateway alone.
    redis.freeze();
    let load = || Load::on(&fleet, 24).keys(&["steady"]).pause(Duration::from_millis(10)).start();
    let during = load();
    sleep(Duration::from_secs(3));
    let during = during.stop(); // while it is still frozen
    nobody_waits(&during);
    let after = load();
    until("the load runs", || (after.answered() > 100).then_some(()));
    redis.thaw();
    fleet.up_within(patience(5));
    let answered = after.answered();
    until("the load goes on", || (after.answered() > answered + 500).then_some(()));
    let after = after.stop();
    nobody_waits(&after);
    let spent = before + during.len() + after.len();
    let settled = within(deadline(), || {
        (fleet[0].remaining("wide", "steady") == 1_000_000 - spent as u64).then_some(())
    });
    assert!(settled.is_some(), "{spent} were admitted, {} are left", fleet[0].remaining("wide", "steady"));
}

/// Without a store gateways start and limit locally, and limits are exact once the store comes.
#[test]
fn the_store_is_away_at_the_start() {
    let mut redis = RedisServer::start();
    redis.kill();
    let fleet = Fleet::cold(2, &(redis.store_within("50ms") + TEXT));
    assert!(!has_store(&fleet[0]));
    for passed in tight(&fleet, "early") {
        assert!((1..=1_000).contains(&passed), "{passed} passed");
    }
    redis.restart();
    fleet.up();
    fleet.exactly(1_000, "/tight", "after");
}

/// Each limit has its own policy for an outage of the store.
#[test]
fn every_limit_has_its_own_policy() {
    let mut redis = RedisServer::start();
    let mut text = redis.store() + "limits:\n";
    let policies = ["local", "open", "closed"];
    for name in policies {
        text += &format!("  {name}: {{key: api_key, rate: 10/366d, on_store_failure: {name}}}\n");
    }
    text += "routes:\n";
    for name in policies {
        text += &format!(
            "  - {{name: {name}, match: {{path: /{name}}}, respond: {{status: 200}}, limits: [{name}]}}\n"
        );
    }
    let fleet = Fleet::start(1, &text);
    let gateway = &fleet[0];
    let key = [("x-api-key", "k")];
    for name in policies {
        assert_eq!(gateway.statuses(2, &format!("/{name}"), &key), [200; 2], "{name}");
    }
    redis.kill();
    assert_eq!(gateway.statuses(20, "/open", &key), [200; 20]);
    assert_eq!(gateway.statuses(20, "/closed", &key), [503; 20]);
    let local = gateway.statuses(20, "/local", &key).into_iter().filter(|&status| status == 200).count();
    assert_eq!(local, 8, "two were spent before");
    let closed = gateway.ask("GET", "/closed", &key);
    let problem = closed.problem();
    let kind = problem["type"].as_str().unwrap();
    assert!(kind.ends_with("http-problem-types#temporary-reduced-capacity"), "{problem}");
    assert!((1..=60).contains(&closed.number("retry-after")));
    assert_eq!(closed.header("cache-control"), Some("no-store"));
    for name in policies {
        let labels = [("limit", name), ("policy", name)];
        assert!(gateway.metric("sluicegate_store_fallback_total", &labels) >= 20.0, "{name}");
    }
    redis.restart();
    fleet.up();
    for name in ["open", "closed"] {
        let statuses = gateway.statuses(11, &format!("/{name}"), &[("x-api-key", "after")]);
        assert_eq!(statuses, [[200; 10].as_slice(), &[429]].concat(), "{name}");
    }
}

/// Metrics and /status show whether the store is up, and the log has one line for each change.
#[test]
fn operators_see_the_store_come_and_go() {
    let mut redis = RedisServer::start();
    let fleet = Fleet::start(1, &(redis.store() + &limit("rate: 1000/366d")));
    let gateway = &fleet[0];
    let operations = |outcome| gateway.metric("sluicegate_store_operations_total", &[("outcome", outcome)]);
    let up = |gateway: &Gateway| gateway.admin_get("/status").json()["store"]["up"].as_bool().unwrap();
    let key = [("x-api-key", "k")];
    gateway.statuses(10, "/", &key);
    assert!(operations("ok") >= 1.0 && up(gateway));
    assert!(gateway.metric("sluicegate_store_duration_seconds_count", &[]) >= 1.0);
    until("the log says that it is up", || gateway.log().contains("the store is up").then_some(()));
    let logged = gateway.log().len();
    // One call waits for its answer when the server dies.
    redis.run::<()>(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let mut client = gateway.client();
    client.request("GET", "/", &[("x-api-key", "other")]);
    until("the server has the call", || {
        let clients: String = redis.run(&["CLIENT", "LIST"]);
        clients.lines().any(|line| line.contains("flags=b ") && line.contains("cmd=evalsha ")).then_some(())
    });
    redis.kill();
    assert_eq!(client.response().status, 200);
    gateway.statuses(50, "/", &key);
    fleet.down();
    assert!(!up(gateway));
    assert!(operations("error") + operations("timeout") >= 1.0);
    gateway.statuses(50, "/", &key);
    redis.restart();
    fleet.up();
    gateway.statuses(50, "/", &key);
    assert!(up(gateway));
    let lines = until("the log says both", || {
        let log = gateway.log()[logged..].to_lowercase();
        let lines = log.lines().filter(|line| line.contains("store") || line.contains("redis"));
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        (lines.len() >= 2).then_some(lines)
    });
    assert_eq!(lines.len(), 2, "one line when it went and one when it came: {lines:#?}");
}
