//! A store that answers incorrectly, denies permissions that are needed, or has another clock: limits hold
//! nevertheless.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::harness::fleet::{has_store, limit};
use crate::harness::{Fleet, Gateway, RedisServer, patience, program, until, within};

const KEY: [(&str, &str); 1] = [("x-api-key", "k")];

/// How many of `count` requests of one key are admitted.
fn admitted(gateway: &Gateway, count: usize) -> usize {
    gateway.statuses(count, "/", &KEY).iter().filter(|status| **status == 200).count()
}

/// A store that denies reads is not an empty store: limits follow their policy for failures.
#[test]
fn a_store_that_denies_reads() {
    for denied in ["-get", "-getrange", "-setrange", "-strlen", "-del", "-pexpire"] {
        let redis = RedisServer::setup().user("gate", "secret", &["~*", "+@all", denied]).start();
        let text = limit("rate: 20/day, algorithm: fixed_window");
        let gateway = Gateway::start(&(redis.store() + &text));
        let command = denied[1..].to_uppercase();
        until("the log says why", || gateway.log().contains(&command).then_some(()));
        assert_eq!(admitted(&gateway, 60), 20, "{denied}");
        assert!(!has_store(&gateway), "{denied}");
        let closed = limit("rate: 20/day, on_store_failure: closed");
        let closed = Gateway::start(&(redis.store() + &closed));
        assert_eq!(closed.statuses(30, "/", &KEY), [503; 30], "{denied}");
    }
}

/// The same when permissions are revoked: requests that were admitted before still count.
#[test]
fn a_store_that_revokes_reads() {
    for (algorithm, denied) in
        [("token_bucket", "-get"), ("sliding_log", "-getrange"), ("fixed_window", "-evalsha")]
    {
        let redis = RedisServer::setup().user("gate", "secret", &["~*", "+@all", "-eval"]).start();
        let text = limit(&format!("rate: 20/day, algorithm: {algorithm}"));
        let fleet = Fleet::start(1, &(redis.store() + &text));
        assert_eq!(admitted(&fleet[0], 5), 5);
        redis.run::<()>(&["ACL", "SETUSER", "gate", denied]);
        assert_eq!(admitted(&fleet[0], 60), 15, "{algorithm}");
        for _ in 0..3 {
            let allowed = denied.replacen('-', "+", 1);
            redis.run::<()>(&["ACL", "SETUSER", "gate", &allowed]);
            fleet.up_within(patience(18));
            assert_eq!(admitted(&fleet[0], 20), 0, "{algorithm}: back, and still used up");
            redis.run::<()>(&["ACL", "SETUSER", "gate", denied]);
            assert_eq!(admitted(&fleet[0], 20), 0, "{algorithm}: away again");
        }
    }
}

/// `check --connect` reports what `run` would encounter.
#[test]
fn check_connect_tests_the_store() {
    let check = |redis: &str| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.yaml");
        std::fs::write(&file, format!("listen: [127.0.0.1:0]\n{redis}{}", limit("rate: 20/day"))).unwrap();
        let output = program().arg("check").arg("--connect").arg(&file).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let redis = RedisServer::start();
    assert_eq!(check(&redis.store()).0, Some(0));
    let denied = RedisServer::setup().user("gate", "secret", &["~*", "+@all", "-getrange"]).start();
    let (code, said) = check(&denied.store());
    assert!(code == Some(1) && said.contains("GETRANGE"), "{said}");
    let foreign = foreign_server();
    let (code, said) = check(&format!("store: {{redis: {{url: redis://{foreign}}}}}\n"));
    assert!(code == Some(1) && said.contains("the store cannot be used"), "{said}");
}

/// A server that answers OK to all commands.
fn foreign_server() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut bytes = [0; 65_536];
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    let commands = bytes[..read].iter().filter(|byte| **byte == b'*').count();
                    if stream.write_all(&b"+OK\r\n".repeat(commands.max(1))).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// A server whose clock is set back refuses requests for no longer than a whole bucket takes to fill.
#[test]
fn a_clock_is_set_back() {
    let redis = RedisServer::setup().clock().start();
    let text = limit("rate: 10/3s");
    let fleet = Fleet::start(2, &(redis.store() + &text));
    fleet.up();
    for gateway in &*fleet {
        admitted(gateway, 12);
    }
    redis.set_clock_back(600);
    let passed = within(patience(16), || {
        // The answer for another key tells the gateway what the clock shows now.
        fleet[0].ask("GET", "/", &[("x-api-key", "other")]);
        let answer = fleet[0].ask("GET", "/", &KEY);
        let wait: u64 = answer.header("retry-after").map_or(0, |seconds| seconds.parse().unwrap());
        assert!(wait <= 3, "sent away for {wait} s");
        (answer.status == 200).then_some(())
    });
    assert!(passed.is_some(), "nobody is admitted after a whole bucket's time");
}

/// Gateways that start while the store is away do not assume that each is alone: the configuration gives their number,
/// or the last known number is used.
#[test]
fn gateways_that_start_without_the_store() {
    let mut redis = RedisServer::start();
    let text = limit("rate: 20/day");
    let floor = redis.store().replacen("timeout:", "gateways: 4, timeout:", 1);
    assert!(floor.contains("gateways: 4"), "{floor}");
    let mut fleet = Fleet::start(4, &(redis.store() + &text));
    fleet.up();
    redis.kill();
    fleet.down();
    let mut known = Vec::new();
    for gateway in fleet.iter_mut() {
        gateway.signal("TERM");
        gateway.ended(crate::harness::deadline());
        known.push(gateway.again());
    }
    assert_eq!(known.iter().map(|gateway| admitted(gateway, 20)).sum::<usize>(), 20, "as many as before");
    let cold = Fleet::cold(4, &(floor + &text));
    assert_eq!(
        cold.iter().map(|gateway| admitted(gateway, 20)).sum::<usize>(),
        20,
        "as many as the file says"
    );
}
