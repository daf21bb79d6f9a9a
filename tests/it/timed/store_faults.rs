//! Redis is there and refuses, or has forgotten: no request fails for it, and what is counted stays exact.

use std::time::Duration;

use crate::harness::load::admitted;
use crate::harness::{Fleet, Load, RedisServer, Reserved, patience, until, within};

/// A limit that nobody reaches, and one of 100 on `/tight`.
const TEXT: &str = "limits: {wide: {key: api_key, rate: 1M/366d}, tight: {key: api_key, rate: 100/366d}}\nroutes:\n  \
                    - {name: tight, match: {path: /tight}, respond: {status: 200}, limits: [tight]}\n  \
                    - {name: wide, match: {path: /*}, respond: {status: 200}, limits: [wide]}\n";

/// Two gateways under load go through a fault: no request fails or is lost, within two seconds after the end they
/// have the store again, and then they are exact. How many the limit counted of those that were admitted.
fn survive(
    redis: &mut RedisServer,
    begin: impl FnOnce(&mut RedisServer),
    end: impl FnOnce(&mut RedisServer),
) -> (u64, u64) {
    let fleet = Fleet::start(2, &(redis.store_within("200ms") + TEXT));
    let load = Load::on(&fleet, 16).keys(&["steady"]).pause(Duration::from_millis(5)).start();
    let some_more = || {
        let now = load.answered();
        until("more requests are answered", || (load.answered() > now + 300).then_some(()));
    };
    some_more();
    begin(redis);
    some_more();
    end(redis);
    fleet.up_within(patience(2));
    some_more();
    let shots = load.stop();
    let passed = admitted(&shots) as u64;
    assert_eq!(passed, shots.len() as u64, "nobody is refused");
    fleet.exactly(100, "/tight", "fresh");
    let counted = || 1_000_000 - fleet[0].remaining("wide", "steady");
    within(patience(2), || (counted() == passed).then_some(())); // until all is written back
    (counted(), passed)
}

/// The scripts are gone: they are loaded again, and nobody sees it.
#[test]
fn scripts_are_flushed() {
    let mut redis = RedisServer::start();
    let (counted, passed) =
        survive(&mut redis, |redis| redis.run(&["SCRIPT", "FLUSH"]), |redis| redis.run(&["SCRIPT", "FLUSH"]));
    assert_eq!(counted, passed);
}

/// The server becomes a replica, which takes no writes.
#[test]
fn the_server_becomes_read_only() {
    let (mut redis, nobody) = (RedisServer::start(), Reserved::new());
    let port = nobody.address.port().to_string();
    let (counted, passed) = survive(
        &mut redis,
        |redis| redis.run(&["REPLICAOF", "127.0.0.1", &port]),
        |redis| redis.run(&["REPLICAOF", "NO", "ONE"]),
    );
    assert_eq!(counted, passed);
}

/// The server has no memory left.
#[test]
fn the_server_is_out_of_memory() {
    let mut redis = RedisServer::start();
    let (counted, passed) = survive(
        &mut redis,
        |redis| redis.run(&["CONFIG", "SET", "maxmemory", "1"]),
        |redis| redis.run(&["CONFIG", "SET", "maxmemory", "0"]),
    );
    assert_eq!(counted, passed);
}

/// The server is still loading, or a script of somebody else blocks it.
#[test]
fn the_server_is_busy() {
    let mut redis = RedisServer::setup().config("busy-reply-threshold", &["1"]).start();
    let (counted, passed) = survive(
        &mut redis,
        |redis| {
            let mut connection =
                redis.client().get_connection_with_timeout(crate::harness::deadline()).unwrap();
            let endless = "while true do end";
            connection
                .send_packed_command(&redis::cmd("EVAL").arg(endless).arg(0).get_packed_command())
                .unwrap();
            until("the server is busy", || redis.try_run::<()>(&["GET", "k"]).is_err().then_some(()));
        },
        |redis| redis.run(&["SCRIPT", "KILL"]),
    );
    // Calls that were under way as it began may have been counted by both.
    assert!(counted.abs_diff(passed) <= 16, "{counted} counted, {passed} admitted");
}

/// A password is set while it runs, and everybody has to connect anew.
#[test]
fn a_password_is_set_while_it_runs() {
    let mut redis = RedisServer::start();
    let (counted, passed) = survive(
        &mut redis,
        |redis| {
            redis.run::<()>(&["CONFIG", "SET", "requirepass", "secret"]);
            redis.disconnect();
        },
        |redis| redis.run(&["CONFIG", "SET", "requirepass", ""]),
    );
    // Of each connection the answer under way may be lost: it may have been counted and was not heard.
    assert!(counted.abs_diff(passed) <= 16, "{counted} counted, {passed} admitted");
}

/// It comes back with a password that nobody knows, and with nothing in it.
#[test]
fn a_password_is_set_over_a_restart() {
    let mut redis = RedisServer::start();
    survive(
        &mut redis,
        |redis| {
            redis.kill();
            redis.configure("requirepass", &["secret"]);
            redis.restart();
        },
        |redis| redis.run(&["CONFIG", "SET", "requirepass", ""]),
    );
}
