//! Leased limits on real gateways: what is admitted stays within the bound, with few calls of the store, and with a network
//! that delays and loses.

use std::time::Duration;

use crate::harness::faults::{Admitted, Bucket};
use crate::harness::load::{Sample, admitted};
use crate::harness::relay::Relay;
use crate::harness::{
    Fleet, Gateway, Load, RedisServer, Setup, Stopwatch, Upstream, gated_upstream, sleep, until, within,
};

const GATEWAYS: usize = 4;
const TEXT: &str = "limits:\n  \
    bucket: {key: api_key, rate: 2000/s, sync: leased}\n  \
    strict: {key: api_key, rate: 2000/s, sync: leased, strict: true}\n  \
    window: {key: api_key, rate: 10000/366d, algorithm: fixed_window, sync: leased}\n  \
    short: {key: api_key, rate: 1000/s, algorithm: sliding_window, slices: 60, sync: leased}\n  \
    tight: {key: api_key, rate: 500/366d}\n  \
    here: {key: api_key, rate: 300/366d, scope: local}\nroutes:\n  \
    - {name: bucket, match: {path: /bucket}, respond: {status: 200}, limits: [bucket]}\n  \
    - {name: strict, match: {path: /strict}, respond: {status: 200}, limits: [strict]}\n  \
    - {name: window, match: {path: /window}, respond: {status: 200}, limits: [window]}\n  \
    - {name: short, match: {path: /short}, respond: {status: 200}, limits: [short]}\n  \
    - {name: exact, match: {path: /exact}, respond: {status: 200}, limits: [bucket, tight]}\n  \
    - {name: mixed, match: {path: /mixed}, respond: {status: 200}, limits: [bucket, here]}\n";

const LIMIT: Bucket = Bucket { capacity: 2_000.0, per_second: 2_000.0 };
/// Four gateways lease 25 tokens each, of the 5 % of 2,000.
const BOUND: f64 = 100.0;

fn leased(fleet: &Fleet, limit: &str) -> f64 {
    fleet.sum("sluicegate_limit_leased_tokens_total", &[("limit", limit)])
}

/// Requests for new keys until all gateways lease: they do so two seconds after they have joined.
fn wait_for_leases(fleet: &Fleet) {
    let mut round = 0;
    let mut leasing = vec![false; fleet.len()];
    until("every gateway leases", || {
        round += 1;
        for (at, gateway) in fleet.iter().enumerate() {
            let tokens = || gateway.metric("sluicegate_limit_leased_tokens_total", &[("limit", "bucket")]);
            let before = tokens();
            Load::at(gateway.edge, 4).target("/bucket").keys(&[format!("warm-{round}-{at}")]).send(400);
            leasing[at] |= tokens() > before;
        }
        leasing.iter().all(|leases| *leases).then_some(())
    });
}

/// How many requests were admitted beyond the bucket, in the worst interval that begins with the first request.
fn over(samples: &Admitted, bucket: Bucket, seconds: u64) -> f64 {
    let stretch = Duration::from_secs(seconds);
    let allowed = bucket.capacity + bucket.per_second * stretch.as_secs_f64();
    samples.within(Duration::ZERO..stretch) as f64 - allowed
}

/// How many of these requests the bucket admits by itself. A slow machine sends fewer than the bucket has tokens for.
fn exact(samples: &[Sample], bucket: Bucket) -> f64 {
    let mut times: Vec<Duration> = samples.iter().map(|sample| sample.at).collect();
    times.sort_unstable();
    let (mut left, mut last, mut passed) = (bucket.capacity, Duration::ZERO, 0.0);
    for at in times {
        left = bucket.capacity.min(left + bucket.per_second * (at - last).as_secs_f64());
        last = at;
        if left >= 1.0 {
            left -= 1.0;
            passed += 1.0;
        }
    }
    passed
}

/// Tokens that are not spent in their sub-window are lost. Fewer requests than the limit allows are all admitted.
#[test]
fn short_sub_windows_admit_all_that_they_allow() {
    let redis = RedisServer::start();
    let fleet = Fleet::start(GATEWAYS, &(redis.store() + TEXT));
    wait_for_leases(&fleet);
    // 8 clients that wait for 10 ms after each answer send at most 800 requests a second.
    let load = Load::on(&fleet, 8).target("/short").pause(Duration::from_millis(10)).start();
    until("2,000 are answered", || (load.answered() >= 2_000).then_some(()));
    let samples = load.stop();
    let refused = samples.len() - admitted(&samples);
    assert!(refused * 200 < samples.len(), "{refused} of {} refused", samples.len());
}

/// A reload that changes the rate of a limit gives back what was leased under the old one.
#[test]
fn a_changed_rate_loses_no_tokens() {
    let redis = RedisServer::start();
    let text = |rate: u64| {
        redis.store()
            + &format!(
                "limits: {{l: {{key: api_key, rate: {rate}/366d, sync: leased}}}}\n\
                 routes: [{{name: all, respond: {{status: 200}}, limits: [l]}}]\n"
            )
    };
    let gateway = Gateway::start(&text(100_000));
    let leased = || gateway.metric("sluicegate_limit_leased_tokens_total", &[("limit", "l")]);
    let load = Load::at(gateway.edge, 8).keys(&["k"]).start();
    for round in 1..=12 {
        let before = leased();
        until("it leases", || (leased() > before).then_some(()));
        let generation = gateway.generation();
        gateway.write(&text(100_000 + round % 2));
        until("the rate is changed", || (gateway.generation() > generation).then_some(()));
    }
    let admitted = admitted(&load.stop()) as u64;
    // Tokens are given back within half a second, but for the few that each worker has taken out last.
    let lost = || 100_000_u64.saturating_sub(admitted + gateway.remaining("l", "k"));
    let mut least = lost();
    let _ = within(Duration::from_secs(5), || {
        least = least.min(lost());
        (least <= 40).then_some(())
    });
    assert!(least <= 40, "{least} tokens are lost after {admitted} requests");
}

/// A rule and an identity can raise a rate, and with it what leases admit too much.
#[test]
fn the_bound_counts_rates_of_rules_and_identities() {
    let redis = RedisServer::start();
    let checker = Upstream::echoing();
    let text = format!(
        "auth: {{check: {{url: 'http://{}/'}}}}\nrules: {{redis: true}}\nlimits:\n  \
         ruled: {{key: api_key, rate: 100/s, sync: leased}}\n  \
         named: {{key: api_key, rate: 'check:rate', max_rate: 4000/s, default_rate: 100/s, sync: leased}}\n\
         routes: [{{name: all, respond: {{status: 200}}, limits: [ruled, named]}}]\n",
        checker.address,
    );
    let gateway = Gateway::start(&(redis.store() + &text));
    let over = |limit: &str| {
        gateway.admin_get("/status").json()["store"]["limits"][limit]["over_admission"].as_u64().unwrap()
    };
    assert_eq!((over("ruled"), over("named")), (5, 200));
    let rule = r#"{"limit": "ruled", "key": "acme", "rate": "2000/s"}"#;
    assert_eq!(gateway.admin_put("/rules/acme", rule).status, 201);
    // A request does not wait long for a rule that is not known yet.
    until("the rule is known", || {
        gateway.ask("GET", "/", &[("x-api-key", "acme")]);
        (over("ruled") == 100).then_some(())
    });
    assert_eq!(gateway.metric("sluicegate_limit_overshoot_bound", &[("limit", "ruled")]), 100.0);
}

/// More requests come than are admitted: no more pass than the bound says, with a call for every fiftieth request at most.
#[test]
fn leases_admit_what_the_limit_says_with_few_calls() {
    let redis = RedisServer::start();
    let fleet = Fleet::start(GATEWAYS, &(redis.store() + TEXT));
    for gateway in fleet.iter() {
        let status = gateway.admin_get("/status").json();
        let counting = &status["store"]["limits"]["bucket"];
        assert_eq!((&counting["counted"], &counting["over_admission"]), (&"leased".into(), &100.into()));
        assert_eq!(status["store"]["limits"]["tight"]["counted"], "exact");
        assert_eq!(gateway.metric("sluicegate_limit_overshoot_bound", &[("limit", "bucket")]), BOUND);
        assert_eq!(gateway.metric("sluicegate_limit_overshoot_bound", &[("limit", "strict")]), 0.0);
    }
    wait_for_leases(&fleet);
    for (target, bound) in [("/bucket", BOUND), ("/strict", 0.0)] {
        let (before, watch) = (redis.scripts(), Stopwatch::start());
        let load = Load::on(&fleet, 32).target(target).keys(&["hot"]).start();
        sleep(Duration::from_millis(3_200));
        let samples = load.stop();
        let (calls, all, took) = (redis.scripts() - before, samples.len(), watch.elapsed());
        let (passed, exact) = (admitted(&samples), exact(&samples, LIMIT));
        let samples = Admitted::of(&samples);
        for seconds in 1..=3 {
            let over = over(&samples, LIMIT, seconds);
            assert!(over <= bound, "{target}: {over} too many in {seconds} s");
        }
        // The bucket is empty in the end: nearly all that it had was used.
        assert!(passed as f64 >= 0.9 * exact, "{target}: {passed} of {all} passed, not {exact}");
        // However many requests come, a gateway asks so often at most.
        let most = (GATEWAYS * 400) as f64 * (took.as_secs_f64() + 0.8);
        assert!(calls as f64 <= most, "{target}: {calls} calls for {all} requests in {took:?}");
    }
    assert_eq!(fleet.fallbacks(), 0.0, "the store was there all the time");
    assert_eq!(fleet.sum("sluicegate_store_disagreements_total", &[]), 0.0, "scripts decide as the core");
}

/// A window admits its count and not one more, and what no gateway spends goes back.
#[test]
fn a_leased_window_admits_exactly_its_count() {
    let redis = RedisServer::start();
    let fleet = Fleet::start(GATEWAYS, &(redis.store() + TEXT));
    wait_for_leases(&fleet);
    let mut passed = admitted(&Load::on(&fleet, 32).target("/window").keys(&["k"]).send(8_000));
    assert!(leased(&fleet, "window") > 100.0, "tokens were leased");
    until("all of the window is used", || {
        passed += admitted(&Load::on(&fleet, 32).target("/window").keys(&["k"]).send(2_000));
        assert!(passed <= 10_000, "{passed} passed");
        (passed == 10_000).then_some(())
    });
    assert_eq!(admitted(&Load::on(&fleet, 32).target("/window").keys(&["k"]).send(500)), 0);
}

/// A leased limit beside others is one decision with them: a refusal by one takes nothing from the others.
#[test]
fn leases_are_one_decision_with_other_limits() {
    let redis = RedisServer::start();
    let fleet = Fleet::start(2, &(redis.store() + TEXT));
    wait_for_leases(&fleet);
    let passed = admitted(&Load::on(&fleet, 16).target("/exact").keys(&["e"]).send(3_000));
    assert_eq!(passed, 500, "as many as the exact limit admits, on all gateways together");
    let passed = admitted(&Load::on(&fleet, 16).target("/mixed").keys(&["m"]).send(6_000));
    assert_eq!(passed, 600, "as many as the limits of both gateways admit");
    // 1,400 are left of the bucket of 2,000, and what was added since; the refused 5,400 have taken nothing.
    let rest = admitted(&Load::on(&fleet, 16).target("/bucket").keys(&["m"]).send(1_300));
    assert_eq!(rest, 1_300);
}

/// Redis is killed under load and comes back: no client gets an error, and leases begin again.
#[test]
fn leases_survive_an_outage() {
    let mut redis = RedisServer::start();
    let fleet = Fleet::start(2, &(redis.store_within("100ms") + TEXT));
    wait_for_leases(&fleet);
    let load = Load::on(&fleet, 16).target("/bucket").keys(&["hot"]).start();
    sleep(Duration::from_millis(300));
    redis.kill();
    sleep(Duration::from_millis(700));
    redis.restart();
    fleet.up();
    let before = leased(&fleet, "bucket");
    until("leases begin again", || (leased(&fleet, "bucket") > before).then_some(()));
    let samples = load.stop();
    admitted(&samples);
}

/// The network between gateways and Redis delays and loses: the bound holds.
#[test]
fn the_bound_holds_on_a_bad_network() {
    let redis = RedisServer::start();
    let relay = Relay::start(redis.address, 7);
    let store = format!("store: {{redis: {{url: \"redis://{}\", timeout: 60ms}}}}\n", relay.address);
    // Without the store nothing is admitted, so that only leases and exact decisions count.
    let text = TEXT.replace("sync: leased}", "sync: leased, on_store_failure: closed}");
    let fleet = Fleet::start(GATEWAYS, &(store + &text));
    wait_for_leases(&fleet);
    relay.disturb();
    let passed = || fleet.decisions("bucket", "admitted");
    let before = passed();
    let load = Load::on(&fleet, 32).target("/bucket").keys(&["hot"]).start();
    sleep(Duration::from_millis(4_200));
    until("leases and decisions get through", || (passed() > before + 500.0).then_some(()));
    let samples = load.stop();
    relay.calm();
    let samples = Admitted::of(&samples);
    assert!(samples.count() > 500, "{} passed", samples.count());
    for seconds in 1..=4 {
        let over = over(&samples, LIMIT, seconds);
        assert!(over <= BOUND, "{over} too many in {seconds} s");
    }
    // Exact use again, soon.
    let mut round = 0;
    until("the store decides for all", || {
        round += 1;
        fleet.up();
        let before = fleet.fallbacks();
        let load = Load::on(&fleet, 32).target("/bucket").keys(&[format!("later-{round}")]).start();
        sleep(Duration::from_millis(1_100));
        let samples = load.stop();
        let (passed, exact) = (Admitted::of(&samples).count(), exact(&samples, LIMIT));
        let enough = passed as f64 >= 0.9 * exact;
        assert!(enough || fleet.fallbacks() > before, "{passed} of {exact} passed");
        enough.then_some(())
    });
}

/// Places are kept for the next request, so that most requests need no call; never are more taken than there are.
#[test]
fn places_are_kept_for_the_next_request() {
    let redis = RedisServer::start();
    let (upstream, gate) = gated_upstream();
    let text = redis.store()
        + "limits: {l: {key: api_key, algorithm: concurrency, max: 200, sync: leased, error_budget: 50%}, \
           bucket: {key: api_key, rate: 2000/s, sync: leased}}\n\
           upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
           routes: [{name: here, match: {path: /here}, respond: {status: 200}, limits: [l]}, \
           {name: bucket, match: {path: /bucket}, respond: {status: 200}, limits: [bucket]}, \
           {name: api, match: {path: /*}, upstream: api, limits: [l]}]\n";
    let fleet = Fleet::of((0..2).map(|_| Setup::default().upstream(&upstream)).collect(), &text);
    fleet.up();
    wait_for_leases(&fleet);
    let before = redis.scripts();
    assert_eq!(admitted(&Load::on(&fleet, 8).target("/here").keys(&["k"]).send(2_000)), 2_000);
    let calls = redis.scripts() - before;
    assert!(calls < 1_000, "{calls} calls for 2,000 requests");

    // One gateway has kept places; the other gets all that it asks for when they are free again.
    let mut clients = Vec::new();
    until("200 requests are in flight", || {
        let mut client = fleet[clients.len() % 2].client();
        client.request("GET", "/slow", &[("x-api-key", "k")]);
        clients.push(client);
        let taken = upstream.seen().len();
        assert!(taken <= 200, "{taken} requests are in flight");
        (taken == 200).then_some(())
    });
    gate.open();
    until("all places are free again", || (fleet[0].remaining("l", "k") == 200).then_some(()));
}
