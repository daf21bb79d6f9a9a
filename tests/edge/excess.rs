//! What a limit does with requests above it: `penalty`, a slower lane, and `burst_credit`, unused quota that is saved.

use crate::harness::{Client, Fleet, Gateway, RedisServer, Stopwatch, until};
use std::time::Duration;

const PENALTY: &str = "limits: {few: {key: api_key, rate: 2/d, penalty: {rate: 10/s, waiters: 3}}, \
                       other: {key: api_key, rate: 4/d}}\n\
                       routes: [{name: both, match: {path: /both}, respond: {status: 200}, limits: [few, other]}, \
                       {name: all, respond: {status: 200}, limits: [few]}]\n";

/// Sends requests of one key.
fn send(gateway: &Gateway, count: usize, target: &str, key: &str) -> Vec<Client> {
    let ask = |_| {
        let mut client = gateway.client();
        client.request("GET", target, &[("x-api-key", key)]);
        client
    };
    (0..count).map(ask).collect()
}

/// How many of them are admitted, and how many refused.
fn outcomes(clients: Vec<Client>) -> (usize, usize) {
    let statuses: Vec<u16> = clients.into_iter().map(|mut client| client.response().status).collect();
    let count = |status| statuses.iter().filter(|found| **found == status).count();
    assert_eq!(count(200) + count(429), statuses.len(), "{statuses:?}");
    (count(200), count(429))
}

/// Requests of one key, all sent before the first answer is read.
fn at_once(gateway: &Gateway, count: usize, target: &str, key: &str) -> (usize, usize) {
    outcomes(send(gateway, count, target, key))
}

/// Two at once, three in the slower lane, of which two wait; then no room.
fn waits(gateway: &Gateway) {
    let decided = || {
        let of = |outcome| {
            gateway.metric("sluicegate_limit_decisions_total", &[("limit", "few"), ("outcome", outcome)])
        };
        of("admitted") + of("refused")
    };
    let watch = Stopwatch::start();
    let clients = send(gateway, 8, "/", "a");
    until("all are decided", || (decided() == 8.0).then_some(()));
    let room = (watch.elapsed().as_millis() / 100) as usize; // that the lane had meanwhile
    let (admitted, refused) = outcomes(clients);
    assert!((5..=5 + room).contains(&admitted), "{admitted} admitted, {refused} refused, {room} more places");
    let least = Duration::from_millis(100) * (admitted as u32 - 3) - Duration::from_millis(10);
    assert!(watch.elapsed() >= least, "{admitted} after {:?}", watch.elapsed());
    // The lane has room again when they have left it, and the limit has not.
    let answer = gateway.ask("GET", "/", &[("x-api-key", "a")]);
    assert_eq!((answer.status, answer.number("x-ratelimit-remaining")), (200, 0));
    assert_eq!(at_once(gateway, 1, "/", "b"), (1, 0));
    let delayed = gateway.metric("sluicegate_limit_delay_seconds_count", &[("limit", "few")]);
    assert!(delayed >= 2.0 || refused == 0, "{delayed}");
}

#[test]
fn requests_above_a_limit_wait_in_a_slower_lane() {
    waits(&Gateway::start(PENALTY));
}

#[test]
fn shared_limits_have_slower_lanes() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&(redis.store() + PENALTY));
    Fleet::up_of(&gateway);
    waits(&gateway);
}

/// Another limit that has no lane refuses: nothing is taken, of the lane neither.
#[test]
fn a_limit_without_a_lane_refuses() {
    let gateway = Gateway::start(PENALTY);
    for _ in 0..4 {
        assert_eq!(gateway.ask("GET", "/both", &[("x-api-key", "a")]).status, 200);
    }
    assert_eq!(gateway.ask("GET", "/both", &[("x-api-key", "a")]).status, 429);
    let outcome = |limit, outcome| {
        gateway.metric("sluicegate_limit_decisions_total", &[("limit", limit), ("outcome", outcome)])
    };
    assert_eq!((outcome("few", "admitted"), outcome("other", "refused")), (4.0, 1.0));
}

/// A bucket of ten a day with the unused quota of two more days.
#[test]
fn unused_quota_is_saved() {
    let gateway = Gateway::start(
        "limits: {l: {key: api_key, rate: 10/d, burst_credit: {periods: 2}, \
         plans: {pro: {rate: 20/d}}}}\nauth: {jwt: {secret: 0123456789abcdef0123456789abcdef, audience: api, plan_claim: plan}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [l]}]\n",
    );
    let statuses: Vec<u16> = (0..32).map(|_| gateway.ask("GET", "/", &[("x-api-key", "a")]).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 30);
}

/// A preview says that a request waits.
#[test]
fn explain_knows_the_slower_lane() {
    let gateway = Gateway::start(PENALTY);
    assert_eq!(at_once(&gateway, 4, "/", "a"), (4, 0));
    let shown = gateway.admin_get("/explain?url=http://api.test/&header=x-api-key:%20a").json();
    assert_eq!(shown["outcome"], "admitted", "{shown}");
}

/// A request that waits in the slower lane is one request to a limit in shadow mode: its ban begins after as many as the file says.
#[test]
fn shadow_limits_count_a_request_in_the_lane_once() {
    let gateway = Gateway::start(
        "limits: {few: {key: api_key, rate: 1/d, penalty: {rate: 100/s, waiters: 3}}, \
         seen: {key: api_key, rate: 1/d, mode: shadow, ban: {after: 3, within: 1h, for: 1h}}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [few, seen]}]\n",
    );
    let bans = || gateway.metric("sluicegate_limit_bans_total", &[("limit", "seen")]);
    for (request, begun) in [(1, 0.0), (2, 0.0), (3, 0.0), (4, 1.0)] {
        assert_eq!(gateway.ask("GET", "/", &[("x-api-key", "a")]).status, 200, "request {request}");
        assert_eq!(bans(), begun, "request {request}");
    }
}
