//! What a store that is away, refuses or is idle is asked: little, whatever the number of workers.

use std::time::Duration;

use crate::harness::fleet::{has_store, limit};
use crate::harness::redis::RedisSetup;
use crate::harness::{Cluster, Fleet, RedisServer, Setup, let_pass, patience, until};

/// A user who may do all but these commands.
fn without(commands: &[&str]) -> RedisSetup {
    RedisServer::setup().user("gate", "secret", &[&["~*", "+@all"], commands].concat())
}

/// What a server has counted in INFO.
fn stat(redis: &RedisServer, name: &str) -> u64 {
    redis.info("stats", name).unwrap().parse().unwrap()
}

/// How much a count grows in this time.
fn grows(time: Duration, count: impl Fn() -> u64) -> u64 {
    let before = count();
    let_pass(time);
    count() - before
}

/// A server that lets nobody run scripts is asked now and then, and the log says once why it is of no use.
#[test]
fn a_server_that_refuses_scripts() {
    let redis = without(&["-evalsha", "-eval"]).start();
    let store = redis.store_within("50ms");
    let fleet = Fleet::of(vec![Setup::default().workers(4)], &(store + &limit("rate: 10/366d")));
    until("the log says it", || fleet[0].log().contains("the store is down").then_some(()));
    let bytes = stat(&redis, "total_net_input_bytes");
    let made = grows(Duration::from_secs(3), || stat(&redis, "total_connections_received"));
    assert!(made <= 20, "{made} connections in three seconds");
    let bytes = stat(&redis, "total_net_input_bytes") - bytes;
    assert!(bytes < 400_000, "{bytes} bytes in three seconds");
    let log = fleet[0].log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("the store")).collect();
    assert!(lines.len() == 1 && lines[0].contains("evalsha"), "{lines:#?}");
    redis.run::<()>(&["ACL", "SETUSER", "gate", "+evalsha"]);
    fleet.up();
    fleet.exactly(10, "/", "k");
}

/// A server that takes scripts in one way only is called in that way.
#[test]
fn a_server_that_takes_scripts_in_another_way() {
    for denied in ["-evalsha", "-script", "-script|exists", "-script|load"] {
        let redis = without(&[denied]).start();
        let fleet = Fleet::start(2, &(redis.store() + &limit("rate: 10/366d")));
        fleet.exactly(10, "/", "k");
        redis.run::<()>(&["SCRIPT", "FLUSH"]);
        fleet.exactly(10, "/", "after");
        assert_eq!(fleet.fallbacks(), 0.0, "{denied}");
    }
}

/// Scripts that a server has are not sent again.
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

/// However many workers are idle, one of them looks after the server.
#[test]
fn idle_workers_ask_little() {
    let redis = RedisServer::start();
    let fleet = Fleet::of(vec![Setup::default().workers(12)], &(redis.store() + &limit("rate: 10/366d")));
    fleet.up();
    let writes = grows(Duration::from_secs(2), || redis.calls(&["set"]));
    assert!((1..=4).contains(&writes), "{writes} writes in two seconds");
    let reads = grows(Duration::from_secs(2), || redis.calls(&["time"]));
    assert!((4..=12).contains(&reads), "{reads} reads in two seconds");
    // And yet all of them find out.
    redis.freeze();
    until("the gateway finds out", || (!has_store(&fleet[0])).then_some(()));
    redis.thaw();
    fleet.up_within(patience(2));
}

/// A node of a cluster that is dead costs the others no connections.
#[test]
fn a_dead_node_costs_the_others_nothing() {
    let mut cluster = Cluster::start();
    let text = cluster.store() + &limit("rate: 10/366d");
    let fleet = Fleet::of(vec![Setup::default().workers(4)], &text);
    fleet.up();
    cluster.nodes[1].kill();
    fleet.down();
    let survivor = &cluster.nodes[0];
    let asked = survivor.calls(&["cluster|slots"]);
    // The count itself makes a connection.
    let made = grows(Duration::from_secs(3), || stat(survivor, "total_connections_received"));
    assert!(made <= 5, "{made} connections in three seconds");
    let asked = survivor.calls(&["cluster|slots"]) - asked;
    assert!(asked <= 15, "asked {asked} times in three seconds");
}
