//! Stores that are far away: a gateway connects, however long a round trip takes, as long as its timeout is longer.

use std::time::Duration;

use crate::harness::fleet::{has_store, limit};
use crate::harness::folder::Folder;
use crate::harness::relay::Relay;
use crate::harness::{Gateway, RedisServer, Setup, within};

const ROUND_TRIPS: [u64; 4] = [100, 130, 300, 500];

/// A server that has a relay of so many milliseconds before it.
struct Far {
    relay: Relay,
    _servers: Vec<RedisServer>,
    store: String,
}

fn delayed(server: &RedisServer, round_trip: u64) -> Relay {
    let relay = Relay::start(server.address, round_trip);
    relay.delay(round_trip / 2);
    relay
}

fn plain(round_trip: u64, setup: fn() -> RedisServer) -> Far {
    let server = setup();
    let relay = delayed(&server, round_trip);
    let store = server
        .store_within(&format!("{}ms", round_trip + 100))
        .replace(&server.address.to_string(), &relay.address.to_string());
    Far { relay, _servers: vec![server], store }
}

/// The sentinel and the master that it names are equally far away.
fn sentinel(round_trip: u64) -> Far {
    let master = RedisServer::start();
    let relay = delayed(&master, round_trip);
    let lines = format!("sentinel monitor main 127.0.0.1 {} 1\n", relay.address.port());
    let watcher = RedisServer::setup().sentinel(&lines).start();
    let before = delayed(&watcher, round_trip);
    let store = format!(
        "store: {{redis: {{sentinel: {{master: main, nodes: [\"redis://{}\"]}}, timeout: {}ms}}}}\n",
        before.address,
        round_trip + 100
    );
    // The relay of the sentinel lives as long as the process of the test.
    std::mem::forget(before);
    Far { relay, _servers: vec![master, watcher], store }
}

#[test]
fn gateways_connect_whatever_a_round_trip_takes() {
    type Kind = (&'static str, fn(u64) -> Far);
    let kinds: [Kind; 3] = [
        ("plain", |round_trip| plain(round_trip, RedisServer::start)),
        ("tls", |round_trip| plain(round_trip, || RedisServer::setup().tls().start())),
        ("sentinel", sentinel),
    ];
    let cases = kinds.iter().flat_map(|kind| ROUND_TRIPS.map(|round_trip| (kind, round_trip)));
    let gateways: Vec<_> = cases
        .map(|((name, make), round_trip)| {
            let far = make(round_trip);
            let gateway = Setup::default().workers(2).start(&(far.store.clone() + &limit("rate: 5/366d")));
            (format!("{name}, {round_trip} ms"), far, gateway)
        })
        .collect();
    for (what, _, gateway) in &gateways {
        let up = within(Duration::from_secs(20), || has_store(gateway).then_some(()));
        assert!(up.is_some(), "{what}: {}", gateway.admin_get("/status").text());
        let statuses = gateway.statuses(7, "/", &[("x-api-key", "k")]);
        assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429], "{what}");
    }
    // They are lost, and connected to again.
    gateways.iter().for_each(|(_, far, _)| far.relay.cut());
    for (what, _, gateway) in &gateways {
        within(Duration::from_secs(20), || (!has_store(gateway)).then_some(())).expect(what);
    }
    for (what, far, gateway) in &gateways {
        far.relay.delay(50);
        within(Duration::from_secs(30), || has_store(gateway).then_some(())).expect(what);
    }
}

#[test]
fn regions_use_a_home_store_that_is_far_away() {
    let (home, store) = (RedisServer::start(), RedisServer::start());
    let relay = delayed(&home, 500);
    let text = format!(
        "{}regions: {{name: a, floors: {{a: 30%, b: 30%}}, home: {{redis: {{url: \"redis://{}\"}}}}}}\n{}",
        store.store(),
        relay.address,
        limit("rate: 100/s")
    );
    let gateway = Gateway::start(&text);
    let up = || gateway.admin_get("/status").json()["regions"]["home_up"] == true;
    within(Duration::from_secs(20), || up().then_some(())).expect("the home store is used");
    relay.cut();
    within(Duration::from_secs(60), || (!up()).then_some(())).expect("it is missed");
    let log = gateway.log();
    assert!(
        log.contains("the home store is down") && !log.contains("limit follows its on_store_failure"),
        "{log}"
    );
}

#[test]
fn check_says_how_far_away_the_stores_are() {
    let (near, far) = (RedisServer::start(), RedisServer::start());
    let relay = delayed(&far, 300);
    let text = format!(
        "listen: [127.0.0.1:8080]\n{}regions: {{name: a, floors: {{a: 50%, b: 50%}}, home: {{redis: {{url: \"redis://{}\", \
         timeout: 400ms}}}}}}\n{}",
        near.store_within("250ms"),
        relay.address,
        limit("rate: 100/s")
    );
    let folder = Folder::with(&[("gateway.yaml", &text)]);
    let check = |more: &[&str]| folder.run(&[&["check", "--connect"], more, &["gateway.yaml"]].concat());
    let said = check(&[]);
    let errors = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success() && errors.contains("the store answers in"), "{errors}");
    let warned = errors.lines().find(|line| line.starts_with("warning: the home store answers in 3"));
    assert!(warned.is_some_and(|line| line.contains("`timeout` is 400.0 ms")), "{errors}");
    assert_eq!(check(&["--strict"]).status.code(), Some(1));
}
