//! Shared counters are one state: every gateway shows and changes it, it survives reloads, and the places of a dead
//! gateway become free.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::harness::fleet::limit;
use crate::harness::{
    Client, Fleet, Gateway, RedisServer, Setup, Stopwatch, Upstream, gated_upstream, in_parallel, patience,
    until, within,
};

const KEY: [(&str, &str); 1] = [("x-api-key", "k")];
/// Places that nobody gives back are free when their lease expires, not earlier than seven seconds after a renewal.
const BEFORE_LEASES_EXPIRE: Duration = Duration::from_secs(6);

/// All gateways see what one gateway has charged.
#[test]
fn every_gateway_shows_the_shared_state() {
    let redis = RedisServer::start();
    let fleet = Fleet::start(3, &(redis.store() + &limit("rate: 100/366d")));
    assert_eq!(fleet[0].statuses(30, "/", &KEY), [200; 30]);
    assert_eq!(fleet[1].ask("GET", "/", &KEY).number("x-ratelimit-remaining"), 69);
    fleet.iter().for_each(|gateway| assert_eq!(gateway.remaining("l", "k"), 69));
}

/// A pardon on one gateway applies to all, soon, and to this key only.
#[test]
fn a_pardon_holds_on_every_gateway() {
    let redis = RedisServer::start();
    let text = ["token_bucket", "sliding_log", "fixed_window"].map(|name| {
        (name, format!("{}{}", redis.store(), limit(&format!("rate: 4/366d, algorithm: {name}"))))
    });
    for (name, text) in text {
        redis.run::<()>(&["FLUSHALL"]);
        let fleet = Fleet::start(2, &text);
        for key in ["k", "other"] {
            assert_eq!(fleet.in_turn(8, key), [200, 200, 200, 200, 429, 429, 429, 429], "{name}");
        }
        assert_eq!(fleet[0].admin_change("DELETE", "/limits/l/keys/k").status, 200);
        fleet.iter().for_each(|gateway| assert_eq!(gateway.remaining("l", "k"), 4, "{name}"));
        assert_eq!(fleet[0].ask("GET", "/", &KEY).status, 200, "{name}");
        let passes = || (fleet[1].ask("GET", "/", &KEY).status == 200).then_some(());
        assert!(within(patience(10), passes).is_some(), "{name}: the other gateway goes on refusing");
        assert_eq!(fleet.in_turn(4, "k"), [200, 200, 429, 429], "{name}");
        assert_eq!(fleet.in_turn(2, "other"), [429; 2], "{name}");
    }
}

/// A changed burst applies to existing counters, also in Redis.
#[test]
fn a_bucket_at_half_stays_at_half() {
    let redis = RedisServer::start();
    let text = |burst: u64| redis.store() + &limit(&format!("rate: 100/366d, burst: {burst}"));
    let fleet = Fleet::start(2, &text(100));
    assert_eq!(fleet.in_turn(50, "k"), [200; 50]);
    for (burst, half) in [(200, 100), (40, 20), (100, 50)] {
        fleet.iter().for_each(|gateway| gateway.reload(&text(burst)));
        fleet.iter().for_each(|gateway| assert_eq!(gateway.remaining("l", "k"), half, "of {burst}"));
    }
    let passed = fleet.in_turn(60, "k").iter().filter(|&&status| status == 200).count();
    assert_eq!(passed, 50);
}

/// A reload that does not change a limit does not change its shared counters.
#[test]
fn a_reload_keeps_what_is_counted() {
    let redis = RedisServer::start();
    for name in ["token_bucket", "fixed_window", "sliding_log", "sliding_window"] {
        redis.run::<()>(&["FLUSHALL"]);
        let text = |rate: u64| redis.store() + &limit(&format!("rate: {rate}/366d, algorithm: {name}"));
        let fleet = Fleet::start(2, &text(10));
        assert_eq!(fleet.in_turn(5, "k"), [200; 5], "{name}");
        fleet.iter().for_each(|gateway| gateway.reload(&(text(10) + "headers: [x-ratelimit]\n")));
        fleet.iter().for_each(|gateway| assert_eq!(gateway.remaining("l", "k"), 5, "{name}"));
        assert_eq!(fleet.in_turn(7, "k"), [200, 200, 200, 200, 200, 429, 429], "{name}");
    }
}

/// Queued requests are released at the rate on all gateways together.
#[test]
fn a_shared_queue_releases_requests_at_the_rate() {
    const SLACK: Duration = Duration::from_millis(20);
    let redis = RedisServer::start();
    let arrivals = Arc::new((Stopwatch::start(), Mutex::new(Vec::new())));
    let seen = Arc::clone(&arrivals);
    let upstream = Upstream::scripted(move |exchange| {
        seen.1.lock().unwrap().push(seen.0.elapsed());
        exchange.answer(200, &[], b"done");
    });
    let text = redis.store()
        + "limits: {l: {key: api_key, rate: 10/s, burst: 10, algorithm: leaky_bucket}}\n\
           upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
           routes: [{name: api, match: {path: /*}, upstream: api, limits: [l]}]\n";
    let fleet = Fleet::of((0..2).map(|_| Setup::default().upstream(&upstream)).collect(), &text);
    fleet.up();
    let (watch, arrivals) = &*arrivals;
    let times = |key: &str| {
        let begun = watch.elapsed();
        let ask = |index: usize| fleet[index % 2].ask("GET", "/", &[("x-api-key", key)]).status;
        assert_eq!(in_parallel(10, ask), [200; 10]);
        let mut times = std::mem::take(&mut *arrivals.lock().unwrap());
        times.sort_unstable();
        times.into_iter().map(|at| at - begun).collect::<Vec<_>>()
    };
    // A busy machine delays requests but makes none early. It may delay the first, which the queue does not.
    let is_spread = (0..3).any(|turn| {
        let times = times(&format!("k{turn}"));
        let is_due = |(place, at): (u64, &Duration)| *at + SLACK >= Duration::from_millis(100 * place);
        assert!((0..).zip(&times).all(is_due), "{times:?}");
        assert!(times[9] <= patience(5), "{times:?}");
        times[0] <= Duration::from_millis(380)
    });
    assert!(is_spread, "the first one waits too");
}

/// A place is free for all gateways when its client leaves or its request ends.
#[test]
fn places_are_free_as_soon_as_requests_end() {
    let redis = RedisServer::start();
    let (upstream, gate) = gated_upstream();
    let text = redis.store()
        + "limits: {l: {key: api_key, algorithm: concurrency, max: 2}}\n\
           upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
           routes: [{name: api, match: {path: /*}, upstream: api, limits: [l]}]\n";
    let fleet = Fleet::of((0..2).map(|_| Setup::default().upstream(&upstream)).collect(), &text);
    fleet.up();
    let hold = |index: usize| -> Client {
        let (mut client, seen) = (fleet[index].client(), upstream.seen().len());
        client.request("GET", "/slow", &KEY);
        upstream.wait_for(seen + 1);
        client
    };
    let (leaves, mut stays) = (hold(0), hold(0));
    assert_eq!(fleet[1].ask("GET", "/", &KEY).status, 429);
    assert_eq!(fleet[1].remaining("l", "k"), 0);
    drop(leaves);
    let free = |index: usize, places: u64| {
        let free =
            within(BEFORE_LEASES_EXPIRE, || (fleet[index].remaining("l", "k") == places).then_some(()));
        assert!(free.is_some(), "{} instead of {places}", fleet[index].remaining("l", "k"));
    };
    free(1, 1);
    assert_eq!(fleet[1].ask("GET", "/", &KEY).status, 200, "the place of who has left");
    free(1, 1);
    gate.open();
    assert_eq!(stays.response().status, 200);
    free(1, 2);
}

/// The places of a killed gateway are free when their leases expire; requests that last longer than a lease keep theirs.
#[test]
fn places_of_a_dead_gateway_are_free_again() {
    let redis = RedisServer::start();
    let (upstream, gate) = gated_upstream();
    let text = redis.store()
        + "limits: {l: {key: api_key, algorithm: concurrency, max: 4}}\n\
           upstreams: {api: {servers: [\"http://{upstream}\"], timeouts: {response: 60s}}}\n\
           routes: [{name: api, match: {path: /*}, upstream: api, limits: [l]}]\n";
    let mut fleet = Fleet::of((0..2).map(|_| Setup::default().upstream(&upstream)).collect(), &text);
    fleet.up();
    let mut clients: Vec<Client> = (0..4).map(|index| fleet[index % 2].client()).collect();
    clients.iter_mut().for_each(|client| {
        client.request("GET", "/slow", &KEY);
    });
    upstream.wait_for(4);
    assert_eq!(fleet[1].remaining("l", "k"), 0);
    let watch = Stopwatch::start();
    fleet[0].signal("KILL");
    fleet[0].ended(patience(5));
    let free = within(patience(14), || (fleet[1].remaining("l", "k") > 0).then_some(()));
    assert!(free.is_some(), "after {:?} no place is free", watch.elapsed());
    // A lease that was not renewed would have expired by now.
    until("both places of the dead are free", || (fleet[1].remaining("l", "k") == 2).then_some(()));
    assert!(within(patience(2), || (fleet[1].remaining("l", "k") > 2).then_some(())).is_none());
    gate.open();
    assert_eq!([clients[1].response().status, clients[3].response().status], [200; 2]);
}

/// A client that leaves while the store is asked gets back what its request had reserved in this process: of a local limit, and of
/// fair shares.
#[test]
fn a_client_that_leaves_pays_nothing() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&format!(
        "{}limits:\n  here: {{key: api_key, rate: 1000/d, scope: local}}\n  there: {{key: api_key, rate: 1000/d}}\n\
         routes: [{{name: api, respond: {{status: 200}}, limits: [here, there]}}]\n",
        redis.store_within("10s")
    ));
    Fleet::up_of(&gateway);
    let key = [("x-api-key", "k")];
    assert_eq!(gateway.ask("GET", "/", &key).status, 200);
    redis.freeze();
    let clients: Vec<Client> = (0..50)
        .map(|_| {
            let mut client = gateway.client();
            client.request("GET", "/", &key);
            client
        })
        .collect();
    until("all of them wait for the store", || (gateway.remaining("here", "k") == 949).then_some(()));
    drop(clients);
    until("what they reserved is back", || (gateway.remaining("here", "k") == 999).then_some(()));
    redis.thaw();
    until("the store answers", || (gateway.ask("GET", "/", &key).status == 200).then_some(()));
    assert!(gateway.remaining("here", "k") >= 990, "{}", gateway.remaining("here", "k"));
}

/// Two gateways that count a limit by different algorithms, as in a rolling update, have one allowance each: neither takes the
/// other's value for nothing.
#[test]
fn algorithms_do_not_overwrite_each_other() {
    let redis = RedisServer::start();
    let one = |algorithm: &str| {
        let text = format!(
            "limits: {{l: {{key: api_key, algorithm: {algorithm}, rate: 20/366d}}}}\n\
             routes: [{{name: api, respond: {{status: 200}}, limits: [l]}}]\n"
        );
        let gateway = Gateway::start(&(redis.store() + &text));
        Fleet::up_of(&gateway);
        gateway
    };
    for [first, second] in [
        ["token_bucket", "fixed_window"],
        ["token_bucket", "sliding_log"],
        ["sliding_window", "fixed_window"],
        ["sliding_log", "sliding_window"],
    ] {
        redis.run::<()>(&["FLUSHALL"]);
        let gateways = [first, second].map(one);
        let mut admitted = [0, 0];
        for _ in 0..30 {
            for (gateway, admitted) in gateways.iter().zip(&mut admitted) {
                *admitted += usize::from(gateway.ask("GET", "/", &KEY).status == 200);
            }
        }
        assert_eq!(admitted, [20, 20], "{first}, {second}");
    }
}

/// Places that Redis has lost are taken again when their gateway renews them, also beside places that were taken since.
#[test]
fn lost_places_are_restored() {
    let redis = RedisServer::start();
    let (upstream, gate) = gated_upstream();
    let text = redis.store()
        + "limits: {l: {key: api_key, algorithm: concurrency, max: 5}}\n\
           upstreams: {api: {servers: [\"http://{upstream}\"], timeouts: {response: 1h}}}\n\
           routes: [{name: api, upstream: api, limits: [l]}]\n";
    let fleet = Fleet::of((0..2).map(|_| Setup::default().upstream(&upstream)).collect(), &text);
    fleet.up();
    let mut held: Vec<Client> = Vec::new();
    let slow = |gateway: &Gateway| {
        let mut client = gateway.client();
        client.request("GET", "/slow", &KEY);
        client
    };
    held.extend((0..5).map(|_| slow(&fleet[0])));
    upstream.wait_for(5);
    assert_eq!(fleet[1].ask("GET", "/", &KEY).status, 429);
    redis.run::<()>(&["FLUSHALL"]);
    held.push(slow(&fleet[1])); // one is taken since
    upstream.wait_for(6);
    until("the lost places are taken again", || (fleet[1].ask("GET", "/", &KEY).status == 429).then_some(()));
    gate.open();
    held.into_iter().for_each(|mut client| assert_eq!(client.response().status, 200));
    until("all are free", || (fleet[1].ask("GET", "/", &KEY).status == 200).then_some(()));
}
