//! A store that is away, refuses calls or is idle gets few calls, however many workers there are.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::harness::fleet::{has_store, limit};
use crate::harness::redis::RedisSetup;
use crate::harness::{Cluster, Fleet, RedisServer, Setup, Stopwatch, patience, sleep, until};

/// A user with all permissions except these commands.
fn without(commands: &[&str]) -> RedisSetup {
    RedisServer::setup().user("gate", "secret", &[&["~*", "+@all"], commands].concat())
}

/// A counter of INFO.
fn stat(redis: &RedisServer, name: &str) -> u64 {
    redis.info("stats", name).unwrap().parse().unwrap()
}

/// How much a count grows per second, over a time of at least two.
fn per_second(count: impl Fn() -> u64) -> f64 {
    let (watch, before) = (Stopwatch::start(), count());
    sleep(Duration::from_secs(2));
    (count() - before) as f64 / watch.elapsed().as_secs_f64()
}

/// Asserts that a count grows by so many per second, in one of three windows: on a busy machine a call that takes too long
/// is followed by others, and a gateway without a processor makes none.
#[track_caller]
fn grows_by(range: RangeInclusive<f64>, what: &str, count: impl Fn() -> u64) {
    let mut windows = Vec::new();
    let grows = (0..3).any(|_| {
        windows.push(per_second(&count));
        range.contains(&windows[windows.len() - 1])
    });
    assert!(grows, "{what} a second: {windows:?}, not {range:?}");
}

/// A server that denies scripts gets few calls, and the log says once why it cannot be used.
#[test]
fn a_server_that_refuses_scripts() {
    let redis = without(&["-evalsha", "-eval"]).start();
    let store = redis.store_within("50ms");
    let start = || {
        let fleet = Fleet::of(vec![Setup::default().workers(4)], &(store.clone() + &limit("rate: 10/366d")));
        until("the log says it", || fleet[0].log().contains("the store is down").then_some(()));
        fleet
    };
    let mut fleet = start();
    if fleet[0].log().contains("does not answer in time") {
        fleet = start(); // no other reason is logged for ten seconds
    }
    // A worker sends all scripts once, when it first connects; on a busy machine some do so late.
    let mut windows = Vec::new();
    let is_quiet = (0..3).any(|_| {
        let before = stat(&redis, "total_connections_received");
        let bytes = per_second(|| stat(&redis, "total_net_input_bytes"));
        let made = stat(&redis, "total_connections_received") - before;
        windows.push((bytes, made));
        bytes < 130_000.0 && made <= 20
    });
    assert!(is_quiet, "bytes a second, and connections in two seconds: {windows:?}");
    let log = fleet[0].log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("the store")).collect();
    assert!(lines.len() == 1 && lines[0].contains("evalsha"), "{lines:#?}");
    redis.run::<()>(&["ACL", "SETUSER", "gate", "+evalsha"]);
    fleet.up();
    fleet.exactly(10, "/", "k");
}

/// Scripts are called in the way that the server permits.
#[test]
fn scripts_are_called_as_the_server_permits() {
    for denied in ["-evalsha", "-script", "-script|exists", "-script|load"] {
        let redis = without(&[denied]).start();
        let fleet = Fleet::start(2, &(redis.store() + &limit("rate: 10/366d")));
        fleet.exactly(10, "/", "k");
        redis.run::<()>(&["SCRIPT", "FLUSH"]);
        fleet.exactly(10, "/", "after");
        assert_eq!(fleet.fallbacks(), 0.0, "{denied}");
    }
}

/// Scripts that a server knows are not sent again.
#[test]
fn scripts_are_sent_once() {
    let redis = RedisServer::start();
    let text = redis.store() + &limit("rate: 10/366d");
    let _first = Fleet::start(1, &text);
    let loaded = redis.calls(&["script|load"]);
    let second = Fleet::cold(1, &text);
    Fleet::up_of(&second[0]);
    assert_eq!(redis.calls(&["script|load"]), loaded);
}

/// Of many idle workers only one checks the server.
#[test]
fn idle_workers_make_few_calls() {
    let redis = RedisServer::start();
    let text = redis.store_within("2s") + &limit("rate: 10/366d");
    let fleet = Fleet::of(vec![Setup::default().workers(12)], &text);
    fleet.up();
    grows_by(0.1..=2.0, "writes", || redis.calls(&["set"]));
    grows_by(1.0..=6.0, "reads", || redis.calls(&["time"]));
    // And yet all workers notice.
    redis.freeze();
    until("the gateway finds out", || (!has_store(&fleet[0])).then_some(()));
    redis.thaw();
    fleet.up_within(patience(5));
}

/// A dead node of a cluster causes no further connections to the others.
#[test]
fn a_dead_node_costs_the_others_nothing() {
    let mut cluster = Cluster::start();
    let text = cluster.store() + &limit("rate: 10/366d");
    let fleet = Fleet::of(vec![Setup::default().workers(4)], &text);
    fleet.up();
    cluster.nodes[1].kill();
    fleet.down();
    let survivor = &cluster.nodes[0];
    let mut windows = Vec::new();
    let is_quiet = (0..3).any(|_| {
        let before = stat(survivor, "total_connections_received");
        let asked = per_second(|| survivor.calls(&["cluster|slots"]));
        // Each of the three counts makes a connection.
        let made = stat(survivor, "total_connections_received") - before - 3;
        windows.push((asked, made));
        asked <= 5.0 && made <= 4
    });
    assert!(is_quiet, "questions a second, and connections in two seconds: {windows:?}");
}
