//! Bans: after several refusals a key is refused for a while, whatever it has left, on this gateway and on all that
//! share its store.

use std::time::Duration;

use crate::harness::fleet::{limit, route};
use crate::harness::load::admitted;
use crate::harness::{
    Cluster, Fleet, Gateway, Load, RedisServer, Response, Setup, Stopwatch, Upstream, program, sleep, until,
};
use aws_lc_rs::digest;
use serde_json::{Value, json};

const ABNORMAL_USAGE: &str = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

fn ask(gateway: &Gateway, key: &str) -> Response {
    gateway.ask("GET", "/", &[("x-api-key", key)])
}

fn statuses(gateway: &Gateway, count: usize, key: &str) -> Vec<u16> {
    gateway.statuses(count, "/", &[("x-api-key", key)])
}

fn kind(answer: &Response) -> String {
    answer.problem()["type"].as_str().unwrap().to_owned()
}

/// The state of a key. The gateway asks the store for it, but not for longer than a second.
fn state(gateway: &Gateway, key: &str) -> Value {
    until("the state of a key", || {
        let answer = gateway.admin_get(&format!("/limits/l/keys/{key}"));
        (answer.status == 200).then(|| answer.json())
    })
}

/// A request that costs two where `cost: {methods: {POST: 2}}`.
fn dear(gateway: &Gateway, key: &str) -> u16 {
    gateway.ask("POST", "/", &[("x-api-key", key)]).status
}

/// Three refusals in an hour are an hour.
const THREE: &str = "rate: 2/day, ban: {after: 3, within: 1h, for: 1h}";

/// The same test with a gateway that counts for itself, and with two that count in Redis.
fn here_and_shared(file: &str, test: impl Fn(&Fleet)) {
    test(&Fleet::cold(1, file));
    let redis = RedisServer::start();
    test(&Fleet::start(2, &(redis.store() + file)));
}

/// The third refusal begins the ban and is part of it: another problem, and how long it takes; nobody else is concerned.
#[test]
fn a_ban_begins_with_the_last_refusal() {
    here_and_shared(&limit(THREE), |fleet| {
        assert_eq!(fleet.in_turn(2, "k"), [200, 200]);
        for _ in 0..2 {
            let refused = ask(&fleet[0], "k");
            assert_eq!((refused.status, kind(&refused).as_str()), (429, QUOTA_EXCEEDED));
        }
        for gateway in fleet.iter().chain(&fleet[..1]) {
            let banned = ask(gateway, "k");
            let problem = banned.problem();
            assert_eq!((banned.status, problem["type"].as_str()), (429, Some(ABNORMAL_USAGE)));
            assert_eq!(problem["violated-policies"], serde_json::json!(["l"]));
            let wait = banned.number("retry-after");
            // The bucket needs half a day for the next token, and a client that comes back then is to be admitted.
            assert!((43_100..=43_200).contains(&wait), "{wait}");
            assert_eq!(problem["retry_after"], wait);
            assert_eq!(banned.number("x-ratelimit-retry-after"), wait);
            assert_eq!(banned.number("x-ratelimit-remaining"), 0);
            assert_eq!(banned.header("cache-control"), Some("no-store"));
        }
        assert_eq!(statuses(&fleet[0], 2, "other"), [200, 200]);
        let begun: f64 = fleet.sum("sluicegate_limit_bans_total", &[("limit", "l")]);
        assert_eq!(begun, 1.0);
        assert_eq!(fleet.decisions("l", "refused"), 3.0 + fleet.len() as f64);
    });
}

/// While it lasts the key is refused though it has something left, and asking does not prolong it.
#[test]
fn a_ban_lasts_as_long_as_it_says() {
    here_and_shared(&limit("rate: 3/h, cost: {methods: {POST: 2}}, ban: 1h"), |fleet| {
        let gateway = &fleet[0];
        let before = Stopwatch::start();
        assert_eq!([(); 2].map(|()| dear(gateway, "k")), [200, 429], "one of three is left");
        let begun = Stopwatch::start();
        sleep(Duration::from_millis(400));
        let banned = ask(gateway, "k");
        assert_eq!((banned.status, kind(&banned).as_str()), (429, ABNORMAL_USAGE));
        let most = 3_600.0 - begun.elapsed().as_secs_f64();
        let left = state(gateway, "k")["banned_for"].as_f64().unwrap();
        let least = 3_600.0 - before.elapsed().as_secs_f64();
        // Two clocks measure an hour: this one, and that of the store.
        assert!(
            (least - 0.1..=most + 0.1).contains(&left),
            "it has not begun anew: {left}, {least} to {most}"
        );
        let wait = banned.number("retry-after") as f64;
        assert!((least - 0.1..=3_600.0).contains(&wait), "{wait}");
    });
}

/// Afterwards all is well: whoever comes back when told is admitted.
#[test]
fn a_ban_ends_when_it_says() {
    here_and_shared(&limit("rate: 1/s, ban: 2s"), |fleet| {
        let gateway = &fleet[0];
        let refused = || Some(ask(gateway, "k")).filter(|answer| answer.status == 429);
        let banned = until("a request is refused", refused);
        assert_eq!(kind(&banned), ABNORMAL_USAGE);
        let wait = banned.number("retry-after");
        assert!((1..=2).contains(&wait), "{wait}");
        sleep(Duration::from_secs(wait));
        assert_eq!(ask(gateway, "k").status, 200);
        assert_eq!(state(gateway, "k")["banned_for"], 0.0);
    });
}

/// gRPC calls learn of it as of every refusal.
#[test]
fn a_banned_grpc_call_is_pushed_back() {
    let gateway = &Gateway::start(&limit("rate: 1/min, ban: 1h"));
    statuses(gateway, 2, "k");
    let banned = gateway.ask("POST", "/", &[("x-api-key", "k"), ("content-type", "application/grpc")]);
    assert_eq!((banned.status, banned.header("grpc-status")), (200, Some("8")));
    let pushback = banned.number("grpc-retry-pushback-ms");
    assert!((3_590_000..=3_600_000).contains(&pushback), "{pushback}");
}

/// Refusals that are too far apart, or another limit's, ban nobody; and a ban takes nothing from another limit.
#[test]
fn only_refusals_of_this_limit_within_the_time_count() {
    let limits = "  strict: {key: api_key, rate: 2/day, ban: {after: 2, within: 500ms, for: 1h}}\n  \
                      tight: {key: global, rate: 3/day}\n  wide: {key: global, rate: 100/day, algorithm: fixed_window}";
    here_and_shared(&route("wide, strict, tight", limits), |fleet| {
        let gateway = &fleet[0];
        assert_eq!(statuses(gateway, 2, "k"), [200, 200]);
        for _ in 0..3 {
            assert_eq!(kind(&ask(gateway, "k")), QUOTA_EXCEEDED);
            sleep(Duration::from_millis(600));
        }
        assert_eq!(statuses(gateway, 6, "others"), [200, 429, 429, 429, 429, 429], "by `tight`");
        assert_eq!(kind(&ask(gateway, "others")), QUOTA_EXCEEDED);
        assert_eq!(gateway.metric("sluicegate_limit_bans_total", &[("limit", "strict")]), 0.0);
        until("two refusals come within the time", || {
            (kind(&ask(gateway, "k")) == ABNORMAL_USAGE).then_some(())
        });
        assert_eq!(statuses(gateway, 20, "k"), [429; 20]);
        assert_eq!(gateway.remaining("wide", "any"), 97);
    });
}

/// A shadow counts and reports, and refuses nobody.
#[test]
fn a_shadow_limit_does_not_ban() {
    here_and_shared(&limit("rate: 3/h, cost: {methods: {POST: 2}}, ban: 1h, mode: shadow"), |fleet| {
        let gateway = &fleet[0];
        assert_eq!([(); 2].map(|()| dear(gateway, "k")), [200, 200], "one of three is left");
        assert_eq!(statuses(gateway, 3, "k"), [200; 3]);
        let refused = [("limit", "l"), ("outcome", "shadow_refused")];
        assert_eq!(gateway.metric("sluicegate_limit_decisions_total", &refused), 4.0, "banned all the while");
        assert_eq!(gateway.metric("sluicegate_limit_bans_total", &[("limit", "l")]), 1.0);
    });
}

/// A pardon ends a ban, on every gateway.
#[test]
fn a_pardon_ends_a_ban() {
    here_and_shared(&limit(THREE), |fleet| {
        assert_eq!(statuses(&fleet[0], 6, "k"), [200, 200, 429, 429, 429, 429]);
        for gateway in fleet.iter() {
            assert_eq!(ask(gateway, "k").status, 429);
            let state = state(gateway, "k");
            assert!(state["banned_for"].as_f64().unwrap() > 3_590.0 && state["known"] == true, "{state}");
        }
        let bans = fleet[0].admin_get("/limits/l/bans").json();
        assert_eq!((&bans["banned"], &bans["others"]), (&json!(1), &json!(0)), "{bans}");
        assert!(bans["keys"][0]["banned_for"].as_f64().unwrap() > 3_590.0, "{bans}");
        assert!(bans["keys"][0]["until"].as_str().unwrap().ends_with('Z'), "{bans}");
        assert_eq!(fleet[0].metric("sluicegate_limit_banned_keys", &[("limit", "l")]), 1.0);
        assert_eq!(fleet[0].admin_get("/limits").json()[0]["banned"], 1);
        let pardon = fleet[0].admin_change("DELETE", "/limits/l/keys/k").json();
        assert_eq!(pardon["pardoned"], true);
        assert_eq!(fleet[0].admin_get("/limits/l/bans").json()["banned"], 0);
        assert_eq!(state(&fleet[0], "k")["banned_for"], 0.0);
        assert_eq!(ask(&fleet[0], "k").status, 200, "and its debt is forgotten");
        until("the others hear of it", || (ask(&fleet[fleet.len() - 1], "k").status == 200).then_some(()));
        assert_eq!(fleet[0].admin_change("DELETE", "/limits/l/keys/nobody").json()["pardoned"], false);
    });
}

/// Places of requests in flight are no debt, but a ban of a limit on them can be pardoned.
#[test]
fn a_reload_keeps_bans_and_a_concurrency_limit_can_ban() {
    let gateway = &Gateway::start(&limit("rate: 1/h, ban: 1h"));
    assert_eq!(statuses(gateway, 2, "k"), [200, 429]);
    gateway.reload(&limit("algorithm: concurrency, max: 3, ban: {after: 9, within: 1s, for: 2h}"));
    let banned = ask(gateway, "k");
    assert_eq!((banned.status, kind(&banned).as_str()), (429, ABNORMAL_USAGE));
    assert!((3_500..=3_600).contains(&banned.number("retry-after")), "by what it began with");
    assert_eq!(ask(gateway, "other").status, 200);
    assert_eq!(gateway.admin_change("DELETE", "/limits/l/keys/k").json()["pardoned"], true);
    assert_eq!(ask(gateway, "k").status, 200);
    gateway.reload(&limit("rate: 1/s"));
    assert_eq!(ask(gateway, "k").status, 200);
}

/// What is banned is banned on every gateway, costs no round trip, and outlives the store.
#[test]
fn a_ban_holds_everywhere_and_costs_no_round_trip() {
    let mut redis = RedisServer::start();
    let file = redis.store() + &limit("rate: 1/day, ban: 1h, on_store_failure: open");
    let fleet = Fleet::start(2, &file);
    assert_eq!(fleet.in_turn(4, "k"), [200, 429, 429, 429]);
    assert_eq!(redis.keys().iter().filter(|key| key.starts_with("sluicegate:l:tb:ban:{")).count(), 1);
    let before = redis.scripts();
    let samples = Load::on(&fleet, 32).keys(&["k"]).send(5_000);
    assert_eq!(admitted(&samples), 0);
    assert!(redis.scripts() - before <= 10, "{} calls for 5,000 banned requests", redis.scripts() - before);
    redis.kill();
    assert_eq!(fleet.in_turn(20, "k"), [429; 20], "also while the store is away");
    fleet.down();
    assert_eq!(fleet.in_turn(20, "k"), [429; 20]);
    assert_eq!(fleet.in_turn(4, "new"), [200; 4], "the limit is open meanwhile");
    redis.restart();
    fleet.up();
    assert_eq!(fleet.in_turn(20, "k"), [429; 20], "and when it comes back with nothing");
}

/// While the store is away a gateway bans for itself.
#[test]
fn without_the_store_bans_are_local() {
    let mut redis = RedisServer::start();
    let file = redis.store() + &limit("rate: 2/day, ban: {after: 3, within: 1h, for: 1h}");
    let fleet = Fleet::start(1, &file);
    redis.kill();
    fleet.down();
    assert_eq!(statuses(&fleet[0], 5, "k"), [200, 200, 429, 429, 429]);
    assert_eq!(kind(&ask(&fleet[0], "k")), ABNORMAL_USAGE);
    redis.restart();
    fleet.up();
    assert_eq!(kind(&ask(&fleet[0], "k")), ABNORMAL_USAGE, "what began goes on");
    assert!(state(&fleet[0], "k")["banned_for"].as_f64().unwrap() > 3_500.0);
}

/// Of many that come at once, the refusals are counted one by one: the ban begins exactly once.
#[test]
fn under_load_a_ban_begins_once() {
    here_and_shared(&limit("rate: 100/day, ban: {after: 50, within: 1h, for: 1h}"), |fleet| {
        let samples = Load::on(fleet, 64).keys(&["k"]).send(2_000);
        assert_eq!(admitted(&samples), 100);
        assert_eq!(fleet.sum("sluicegate_limit_bans_total", &[("limit", "l")]), 1.0);
        assert_eq!(kind(&ask(&fleet[0], "k")), ABNORMAL_USAGE);
    });
}

/// A replay bans on the log's own clock.
#[test]
fn a_replay_bans() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = "listen: [127.0.0.1:18080]\n".to_owned() + &limit("rate: 1/s, ban: 10s");
    std::fs::write(folder.path().join("gateway.yaml"), file).unwrap();
    let line = |time: &str| {
        format!(
            "{{\"time\": {time}, \"client_ip\": \"192.0.2.1\", \"method\": \"GET\", \"host\": \"a.test\", \"path\": \"/\", \"headers\": {{\"x-api-key\": \"k\"}}}}\n"
        )
    };
    let log: String =
        ["1720000800", "1720000800.5", "1720000805", "1720000810.4", "1720000810.5"].map(line).concat();
    std::fs::write(folder.path().join("log.jsonl"), log).unwrap();
    let mut replay = program();
    replay.args(["replay", "log.jsonl", "--decisions", "out.jsonl"]).current_dir(folder.path());
    let output = replay.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(folder.path().join("out.jsonl")).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown: Vec<(&str, f64)> = rows
        .iter()
        .map(|row| (row["outcome"].as_str().unwrap(), row["retry_after"].as_f64().unwrap()))
        .collect();
    let refused = |wait| ("refused", wait);
    assert_eq!(shown, [("admitted", 0.0), refused(10.0), refused(5.5), refused(0.1), ("admitted", 0.0)]);
}

/// In a cluster a ban stands beside its counter, and holds on every gateway too.
#[test]
fn bans_hold_in_a_cluster() {
    let cluster = Cluster::start();
    let limits = "  one: {key: api_key, rate: 2/day, ban: 1h}\n  other: {key: global, rate: 100/day}";
    let fleet = Fleet::start(2, &(cluster.store() + &route("other, one", limits)));
    for key in ["a", "b", "c", "d"] {
        assert_eq!(fleet.in_turn(5, key), [200, 200, 429, 429, 429]);
        fleet.iter().for_each(|gateway| assert_eq!(kind(&ask(gateway, key)), ABNORMAL_USAGE));
    }
    until("what bans refused took nothing", || (fleet[0].remaining("other", "any") == 92).then_some(()));
    fleet[0].admin_change("DELETE", "/limits/one/keys/a");
    assert_eq!(ask(&fleet[0], "a").status, 200);
}

/// Logins that fail five times: then the right password does not help for a while.
#[test]
fn guessing_a_login_is_banned() {
    let file = "limits: {l: {key: api_key, algorithm: sliding_log, rate: 5/day, cost: {status: [401]}, ban: 15min}}\n\
                upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
                routes: [{name: login, match: {path: /*}, upstream: api, limits: [l]}]\n";
    let upstream = Upstream::scripted(|exchange| {
        let right = exchange.seen.target == "/right";
        exchange.answer(if right { 200 } else { 401 }, &[], b"");
    });
    for redis in [None, Some(RedisServer::start())] {
        let store = redis.as_ref().map_or(String::new(), RedisServer::store);
        let gateway = &Setup::default().upstream(&upstream).start(&(store + file));
        if redis.is_some() {
            Fleet::up_of(gateway);
        }
        let login = |target| gateway.ask("GET", target, &[("x-api-key", "k")]);
        for left in (0..5).rev() {
            assert_eq!(login("/right").status, 200);
            until("the right one counts for nothing", || {
                (gateway.remaining("l", "k") == left + 1).then_some(())
            });
            assert_eq!(login("/wrong").status, 401);
            until("only the failed one counts", || (gateway.remaining("l", "k") == left).then_some(()));
        }
        assert_eq!(state(gateway, "k")["banned_for"], 0.0);
        assert_eq!(kind(&login("/right")), ABNORMAL_USAGE);
        assert!(state(gateway, "k")["banned_for"].as_f64().unwrap() > 890.0);
    }
}

/// A key is banned on a limit whatever its plan; a candidate bans nobody; and who asks for its usage is told.
#[test]
fn plans_share_bans_and_usage_shows_them() {
    let file = "limits: {l: {key: ip, rate: 1/h, plans: {pro: 2/h}, candidate: 1/day, ban: 1h}}\n\
                auth: {api_key: {consumers: consumers.yaml}}\nroutes:\n  \
                - {name: usage, match: {path: /usage}, respond: usage, limits: [l]}\n  \
                - {name: all, respond: {status: 200}, limits: [l]}\n";
    let hash = digest::digest(&digest::SHA256, b"k");
    let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let consumers = format!("- {{name: acme, plan: pro, key: \"sha256:{hash}\"}}\n");
    for redis in [None, Some(RedisServer::start())] {
        let store = redis.as_ref().map_or(String::new(), RedisServer::store);
        let gateway = &Setup::default().file("consumers.yaml", &consumers).start(&(store + file));
        if redis.is_some() {
            Fleet::up_of(gateway);
        }
        assert_eq!(gateway.get("/usage").json()["limits"][0]["remaining"], 1);
        assert_eq!(statuses(gateway, 2, "unknown"), [200, 429]);
        assert_eq!(kind(&ask(gateway, "k")), ABNORMAL_USAGE, "by address, and so on every plan");
        let shown = gateway.get("/usage");
        assert_eq!((shown.status, &shown.json()["limits"][0]["remaining"]), (200, &serde_json::json!(0)));
        let reset = shown.json()["limits"][0]["reset"].as_u64().unwrap();
        assert!((3_500..=3_600).contains(&reset), "{reset}");
        assert_eq!(gateway.metric("sluicegate_limit_bans_total", &[("limit", "l")]), 1.0);
    }
}
