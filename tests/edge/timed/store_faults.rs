//! Redis runs but refuses calls, or has lost its scripts: no request fails, and counts stay exact.

use std::time::Duration;

use crate::harness::load::admitted;
use crate::harness::{Fleet, Load, RedisServer, ReservedPort, deadline, patience, until, within};

/// A limit that no request reaches, and one of 100 on `/tight`.
const TEXT: &str = "limits: {wide: {key: api_key, rate: 1M/366d}, tight: {key: api_key, rate: 100/366d}}\nroutes:\n  \
                    - {name: tight, match: {path: /tight}, respond: {status: 200}, limits: [tight]}\n  \
                    - {name: wide, match: {path: /*}, respond: {status: 200}, limits: [wide]}\n";

/// What the limit may count of the requests that were admitted.
enum Counted {
    /// All of them.
    Exactly,
    /// One more or one less for each connection of the load: an answer that is lost was counted or was not.
    Nearly,
    /// Anything: the server has lost its counters.
    Lost,
}

/// Two gateways under load go through a fault: no request fails, soon after its end the gateways have the store again, and
/// then limits are exact.
#[track_caller]
fn survive(
    redis: &mut RedisServer,
    counted: Counted,
    begin: impl FnOnce(&mut RedisServer),
    end: impl FnOnce(&mut RedisServer),
) {
    const CONNECTIONS: usize = 16;
    let fleet = Fleet::start(2, &(redis.store_within("200ms") + TEXT));
    let load = Load::on(&fleet, CONNECTIONS).keys(&["steady"]).pause(Duration::from_millis(5)).start();
    let some_more = || {
        let now = load.answered();
        until("more requests are answered", || (load.answered() > now + 300).then_some(()));
    };
    some_more();
    begin(redis);
    some_more();
    end(redis);
    fleet.up_within(patience(15));
    some_more();
    let samples = load.stop();
    let passed = admitted(&samples);
    assert_eq!(passed, samples.len(), "no request is refused");
    fleet.exactly(100, "/tight", "fresh");
    let most = match counted {
        Counted::Exactly => 0,
        Counted::Nearly => CONNECTIONS,
        Counted::Lost => return,
    };
    let counted = || 1_000_000 - fleet[0].remaining("wide", "steady") as usize;
    let settled = within(deadline(), || (counted().abs_diff(passed) <= most).then_some(()));
    assert!(settled.is_some(), "{} counted, {passed} admitted", counted());
}

/// The scripts are gone: they are loaded again, and no client notices.
#[test]
fn scripts_are_flushed() {
    let flush = |redis: &mut RedisServer| redis.run::<()>(&["SCRIPT", "FLUSH"]);
    survive(&mut RedisServer::start(), Counted::Exactly, flush, flush);
}

/// The server becomes a replica, which takes no writes.
#[test]
fn the_server_becomes_read_only() {
    let nobody = ReservedPort::new();
    let port = nobody.address.port().to_string();
    survive(
        &mut RedisServer::start(),
        Counted::Exactly,
        |redis| redis.run(&["REPLICAOF", "127.0.0.1", &port]),
        |redis| redis.run(&["REPLICAOF", "NO", "ONE"]),
    );
}

/// The server has no memory left.
#[test]
fn the_server_is_out_of_memory() {
    survive(
        &mut RedisServer::start(),
        Counted::Exactly,
        |redis| redis.run(&["CONFIG", "SET", "maxmemory", "1"]),
        |redis| redis.run(&["CONFIG", "SET", "maxmemory", "0"]),
    );
}

/// The server is blocked by a script of another client. Calls in flight when it began may be counted twice.
#[test]
fn the_server_is_busy() {
    survive(
        &mut RedisServer::setup().config("busy-reply-threshold", &["1"]).start(),
        Counted::Nearly,
        |redis| {
            let mut connection = redis.client().get_connection_with_timeout(deadline()).unwrap();
            let endless = redis::cmd("EVAL").arg("while true do end").arg(0).get_packed_command();
            connection.send_packed_command(&endless).unwrap();
            until("the server is busy", || redis.try_run::<()>(&["GET", "k"]).is_err().then_some(()));
        },
        |redis| redis.run(&["SCRIPT", "KILL"]),
    );
}

/// A password is set while the server runs, and every client has to connect again.
#[test]
fn a_password_is_set_while_it_runs() {
    survive(
        &mut RedisServer::start(),
        Counted::Nearly,
        |redis| {
            redis.run::<()>(&["CONFIG", "SET", "requirepass", "secret"]);
            redis.disconnect();
        },
        |redis| redis.run(&["CONFIG", "SET", "requirepass", ""]),
    );
}

/// The server comes back empty, with a password that the gateways do not have.
#[test]
fn a_password_is_set_over_a_restart() {
    survive(
        &mut RedisServer::start(),
        Counted::Lost,
        |redis| {
            redis.kill();
            redis.configure("requirepass", &["secret"]);
            redis.restart();
        },
        |redis| redis.run(&["CONFIG", "SET", "requirepass", ""]),
    );
}
