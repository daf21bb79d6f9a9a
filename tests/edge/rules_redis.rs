//! Rules in the Redis of the shared counters: what one gateway changes is in force on all of them, and they go on without
//! their Redis.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::load::{count, slowest};
use crate::harness::{
    Client, Fleet, Gateway, Load, RedisServer, Response, Setup, TOKEN, measure, patience, until,
};

/// Two limits of 5 that do not fill up again, one of them counted by each gateway alone.
const FIVE: &str = "rules: {redis: true, wait: 1s}\nlimits: {per-key: {key: api_key, rate: 5/366d, scope: local}}\n\
                    routes:\n  \
                    - {name: usage, match: {path: /usage}, respond: usage, limits: [per-key]}\n  \
                    - {name: api, respond: {status: 200}, limits: [per-key]}\n";

/// How long Redis may take to answer.
const REDIS_TIMEOUT: Duration = Duration::from_millis(250);

/// A request to the admin API with the token.
#[track_caller]
fn ask_once(gateway: &Gateway, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let bearer = format!("Bearer {TOKEN}");
    let length = body.len().to_string();
    let mut client = Client::connect(gateway.admin);
    let own = [("host", "localhost"), ("authorization", &bearer), ("content-length", &length)];
    client.request(method, path, &[&own, headers].concat()).send(body);
    client.response()
}

/// The same, again if Redis did not answer in time. Also returns whether that was so: a change may be made by the time at
/// which it is asked for again.
#[track_caller]
fn ask(
    gateway: &Gateway,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (Response, bool) {
    let mut times = 0;
    let response = until("Redis answers in time", || {
        times += 1;
        Some(ask_once(gateway, method, path, headers, body)).filter(|response| response.status != 503)
    });
    (response, times > 1)
}

/// What the admin API says of rules.
#[track_caller]
fn get(gateway: &Gateway, path: &str) -> Response {
    ask(gateway, "GET", path, &[], "").0
}

/// Writes a rule, whether it is new or not.
#[track_caller]
fn put(gateway: &Gateway, id: &str, key: &str, rate: u64) {
    let (response, _) = ask(gateway, "PUT", &format!("/rules/{id}"), &[], &rule(key, rate).to_string());
    assert!(matches!(response.status, 200 | 201), "{response:?}");
}

/// Writes a new rule.
#[track_caller]
fn create(gateway: &Gateway, id: &str, key: &str, rate: u64) {
    let (response, again) = ask(gateway, "PUT", &format!("/rules/{id}"), &[], &rule(key, rate).to_string());
    assert!(response.status == 201 || (again && response.status == 200), "{response:?}");
}

#[track_caller]
fn delete(gateway: &Gateway, id: &str) {
    let (response, again) = ask(gateway, "DELETE", &format!("/rules/{id}"), &[], "");
    assert!(response.status == 204 || (again && response.status == 404), "{response:?}");
}

fn rule(key: &str, rate: u64) -> Value {
    json!({ "limit": "per-key", "key": key, "rate": format!("{rate}/366d") })
}

/// The limit of a key, by one more request.
#[track_caller]
fn limit(gateway: &Gateway, key: &str) -> u64 {
    let response = gateway.ask("GET", "/", &[("x-api-key", key)]);
    assert!(matches!(response.status, 200 | 429), "{response:?}");
    response.number("x-ratelimit-limit")
}

/// Waits until a key has this limit, and then spends one of it.
#[track_caller]
fn in_force(gateway: &Gateway, key: &str, expected: u64) {
    crate::rules::in_force(gateway, key, expected);
    assert_eq!(limit(gateway, key), expected);
}

/// Asserts that a key has this limit in the first request after `change`, unless Redis did not answer in time.
#[track_caller]
fn in_force_at_once(gateway: &Gateway, key: &str, expected: u64, change: impl FnOnce()) {
    let (found, took) = measure(|| {
        change();
        limit(gateway, key)
    });
    let late = ["the rules cannot be read", "Redis has not answered yet"];
    let is_late = || took >= REDIS_TIMEOUT || late.iter().any(|words| gateway.log().contains(words));
    assert!(found == expected || is_late(), "{found}, not {expected}, after {took:?}");
    in_force(gateway, key, expected);
}

/// Whether the gateway says that it can read its rules.
fn trouble(gateway: &Gateway) -> Option<String> {
    gateway.admin_get("/status").json()["rules"]["trouble"].as_str().map(str::to_owned)
}

fn pair(redis: &RedisServer) -> [Gateway; 2] {
    let text = redis.store() + FIVE;
    [Gateway::start(&text), Gateway::start(&text)]
}

/// A rule that is put, changed or deleted on one gateway is in force there at once, and on the other soon.
#[test]
fn a_change_is_in_force_everywhere() {
    let redis = RedisServer::start();
    let [a, b] = pair(&redis);
    assert_eq!((limit(&a, "k1"), limit(&b, "k1")), (5, 5));
    for rate in [50, 60, 70] {
        in_force_at_once(&a, "k1", rate, || put(&a, "acme", "k1", rate));
        in_force(&b, "k1", rate);
    }
    create(&b, "all", "merchant-*", 80);
    in_force(&a, "merchant-9", 80);
    delete(&b, "acme");
    in_force(&a, "k1", 5);
    delete(&a, "all");
    in_force(&b, "merchant-9", 5);
    let later = Gateway::start(&(redis.store() + FIVE));
    create(&a, "acme", "k1", 90);
    in_force(&later, "k1", 90);
    let last = Gateway::start(&(redis.store() + FIVE));
    in_force_at_once(&last, "k1", 90, || ()); // from the first request
}

/// Pages, single rules and changes are the same on all gateways; conditions hold between them; batches are bounded.
#[test]
fn the_api_is_the_same_on_all() {
    let redis = RedisServer::start();
    let [a, b] = pair(&redis);
    for number in 0..5 {
        create([&a, &b][number % 2], &format!("r{number}"), &format!("k{number}"), 50);
    }
    let page = get(&b, "/rules?most=3").json();
    assert_eq!((page["rules"].as_array().unwrap().len(), &page["next"]), (3, &json!("r2")));
    assert_eq!(get(&a, "/rules?key=k4").json()["rules"][0]["id"], "r4");
    assert_eq!(get(&a, "/rules/r3").header("etag"), Some("\"4\""));
    let conditional = |gateway: &Gateway| {
        ask(gateway, "PUT", "/rules/r3", &[("if-match", "\"4\"")], &rule("k3", 60).to_string())
    };
    let (changed, again) = conditional(&a);
    assert!(changed.status == 200 || (again && changed.status == 412), "{changed:?}");
    assert_eq!(conditional(&b).0.status, 412);
    until("both know the version", || {
        let version = |gateway: &Gateway| gateway.admin_get("/status").json()["rules"]["version"].as_u64();
        (version(&a) == Some(6) && version(&b) == Some(6)).then_some(())
    });
    assert_eq!(get(&b, "/rules:changes?since=4").text().lines().count(), 2);
    assert_eq!(get(&b, "/rules:changes?since=99").status, 410);
    let batch: String = (0..10_001).map(|number| format!("{{\"delete\":\"b{number}\"}}\n")).collect();
    let (refused, _) = ask(&a, "POST", "/rules:batch", &[], &batch);
    assert!(refused.status == 422 && refused.text().contains("at most 10000 lines"), "{}", refused.text());
    let batch =
        "{\"id\":\"x\",\"limit\":\"per-key\",\"key\":\"k7\",\"rate\":\"70/366d\"}\n{\"delete\":\"r9\"}\n";
    assert_eq!(ask(&a, "POST", "/rules:batch", &[], batch).0.status, 404, "all or nothing");
    assert_eq!(get(&b, "/rules/x").status, 404);
}

/// While Redis is away the rules that were read stay in force, no request fails, changes are refused, and what others
/// changed meanwhile is in force soon after.
#[test]
fn rules_outlive_their_redis() {
    let mut redis =
        RedisServer::setup().config("appendonly", &["yes"]).config("appendfsync", &["always"]).start();
    let [a, b] = pair(&redis);
    put(&a, "acme", "k1", 50);
    in_force(&a, "k1", 50);
    in_force(&b, "k1", 50);
    let gateways = [a, b];
    let load = Load::on(&gateways, 4).keys(&["k1", "k2", "k3"]).pause(Duration::from_millis(2)).start();
    let [a, b] = &gateways;
    redis.freeze();
    until("the trouble is seen", || trouble(a).and(trouble(b)));
    assert_eq!((limit(a, "k1"), limit(b, "k1"), limit(b, "new")), (50, 50, 5));
    assert_eq!(a.metric("sluicegate_rules_up", &[]), 0.0);
    let sixty = rule("k1", 60).to_string();
    let refused = ask_once(a, "PUT", "/rules/acme", &[], &sixty);
    assert_eq!(refused.status, 503, "{refused:?}");
    // Far more than if any of them waited for Redis.
    let before = load.answered();
    until("requests are answered", || (load.answered() > before + 1_000).then_some(()));
    redis.thaw();
    until("it is over", || (trouble(a).is_none() && trouble(b).is_none()).then_some(()));
    assert_eq!(ask(a, "PUT", "/rules/acme", &[], &sixty).0.status, 200);
    in_force(a, "k1", 60);
    in_force(b, "k1", 60);
    redis.kill();
    until("the trouble is seen", || trouble(a).and(trouble(b)));
    assert_eq!((limit(a, "k1"), limit(b, "k1")), (60, 60));
    redis.restart();
    until("it is over", || (trouble(a).is_none() && trouble(b).is_none()).then_some(()));
    assert_eq!((limit(a, "k1"), limit(b, "k1")), (60, 60));
    let samples = load.stop();
    assert_eq!(count(&samples, 200) + count(&samples, 429), samples.len(), "no other answers");
    assert!(slowest(&samples) < patience(5), "{:?}", slowest(&samples));
    assert!(gateways[0].times_logged("the rules cannot be read") > 0);
}

/// A Redis that has lost rules, because a failover lost them or because it was emptied, is right.
#[test]
fn what_redis_has_lost_is_not_in_force() {
    let redis = RedisServer::start();
    let [a, b] = pair(&redis);
    put(&a, "acme", "k1", 50);
    in_force(&b, "k1", 50);
    redis.run::<String>(&["FLUSHALL"]);
    in_force(&a, "k1", 5);
    in_force(&b, "k1", 5);
    create(&b, "acme", "k1", 70);
    in_force(&a, "k1", 70);
}

/// A gateway starts without its Redis, with the limits of its file, and has its rules as soon as there are some.
#[test]
fn a_gateway_starts_without_its_redis() {
    let mut redis = RedisServer::start();
    let text = redis.store() + FIVE;
    redis.kill();
    let gateway = Gateway::start(&text);
    assert_eq!(limit(&gateway, "k1"), 5);
    assert!(gateway.times_logged("Redis has not answered yet") > 0);
    redis.restart();
    create(&gateway, "acme", "k1", 50);
    in_force(&gateway, "k1", 50);
}

/// A key that is known is not asked for again, and one that is not known costs one question, however many wait for it.
#[test]
fn a_key_is_asked_for_once() {
    let redis = RedisServer::start();
    let gateway = Setup::default().workers(2).start(&(redis.store() + FIVE));
    put(&gateway, "acme", "k1", 1_000);
    in_force(&gateway, "k1", 1_000);
    let gateways = [gateway];
    let reads = || redis.calls(&["hmget", "hget"]);
    let before = reads();
    assert_eq!(count(&Load::on(&gateways, 8).keys(&["k1"]).send(400), 200), 400);
    // The position of the store is read once a second.
    assert!(reads() - before <= 20, "{} questions", reads() - before);
}

/// A shared limit counts exactly under a rule that is changed on another gateway.
#[test]
fn a_shared_limit_is_exact_under_a_rule_of_another_gateway() {
    let redis = RedisServer::start();
    let text = redis.store() + &FIVE.replace(", scope: local", "");
    let fleet = Fleet::start(2, &text);
    let [a, b] = &fleet[..] else { unreachable!() };
    create(a, "acme", "k1", 60);
    in_force(a, "k1", 60);
    in_force(b, "k1", 60);
    let left = b.remaining("per-key", "k1") as usize;
    let samples = Load::on(&fleet, 8).keys(&["k1"]).send(200);
    assert_eq!(count(&samples, 200), left);
    let body = rule("k1", 90).to_string();
    let key = until("what is left of the key is told", || {
        let dry = ask(a, "PUT", "/rules/acme?dry_run=1", &[], &body).0.json();
        Some(dry["keys"][0].clone()).filter(Value::is_object)
    });
    assert_eq!((&key["remaining"], &key["capacity_after"]), (&json!(0), &json!(90)), "{key}");
}

/// The user of the rules may do nothing else.
#[test]
fn a_user_with_few_permissions() {
    let rules = ["~sluicegate:*", "&sluicegate:*", "+@all"];
    let redis = RedisServer::setup().user("app", "secret", &rules).start();
    let gateway = Gateway::start(&(redis.store() + FIVE));
    create(&gateway, "acme", "k1", 50);
    in_force(&gateway, "k1", 50);
    until("nothing is wrong", || trouble(&gateway).is_none().then_some(()));
}

/// The rules can move from a file to Redis and back, also while somebody waits for a change.
#[test]
fn rules_move_from_a_file_to_redis_and_back() {
    let redis = RedisServer::start();
    let in_redis = redis.store() + FIVE;
    let in_file = in_redis.replace("redis: true", "file: rules.db");
    let gateway = Gateway::start(&in_file);
    put(&gateway, "acme", "k1", 50);
    in_force(&gateway, "k1", 50);
    let mut waiting = Client::connect(gateway.admin);
    waiting.request("GET", "/rules:changes?since=1&wait=60", &[("host", "localhost")]).send("");
    gateway.reload(&in_redis);
    assert_eq!(waiting.response().status, 503, "it does not keep the file");
    assert_eq!(limit(&gateway, "k1"), 5);
    put(&gateway, "acme", "k1", 60);
    in_force(&gateway, "k1", 60);
    gateway.reload(&in_file);
    in_force(&gateway, "k1", 50);
}

/// A rule that something else has written and that cannot be read is named, and hides no other.
#[test]
fn an_unreadable_rule_hides_no_other() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&(redis.store() + FIVE));
    ["a", "b", "c"].iter().for_each(|id| put(&gateway, id, id, 20));
    redis.run::<()>(&["HSET", "sluicegate:{rules}:rules", "b", "junk"]);
    let listed = get(&gateway, "/rules").json();
    let ids: Vec<&str> =
        listed["rules"].as_array().unwrap().iter().filter_map(|rule| rule["id"].as_str()).collect();
    assert_eq!(ids, ["a", "c"]);
    assert_eq!(listed["versions"].as_array().unwrap().len(), 2);
    assert_eq!(listed["unreadable"][0]["id"], "b");
    let why = listed["unreadable"][0]["detail"].as_str().unwrap();
    assert!(why.contains("\"b\"") && why.contains("put it again"), "{why}");
    // Pages go on behind it.
    let page = get(&gateway, "/rules?most=1&after=a").json();
    assert_eq!((&page["rules"], &page["next"]), (&json!([]), &json!("b")));
    put(&gateway, "b", "b", 30);
    assert_eq!(get(&gateway, "/rules").json().get("unreadable"), None);
}

/// Nor one of a pattern, which stays in force as it was read; a gateway starts, without it.
#[test]
fn an_unreadable_pattern_hides_no_other() {
    let redis = RedisServer::start();
    let text = redis.store() + FIVE;
    let gateway = Gateway::start(&text);
    put(&gateway, "a", "a*", 20);
    put(&gateway, "b", "b*", 30);
    in_force(&gateway, "a1", 20);
    redis.run::<()>(&["HSET", "sluicegate:{rules}:patterns", "a", "junk"]);
    put(&gateway, "c", "c*", 40);
    for (key, expected) in [("c1", 40), ("a2", 20), ("b1", 30)] {
        in_force(&gateway, key, expected);
    }
    let new = Gateway::start(&text);
    for (key, expected) in [("b2", 30), ("c2", 40), ("a3", 5)] {
        in_force(&new, key, expected);
    }
    let listed = get(&new, "/rules?limit=per-key&key=b4&patterns=1").json();
    assert_eq!((listed["rules"].as_array().unwrap().len(), &listed["rules"][0]["id"]), (1, &json!("b")));
    // A rule of one key beside it, too.
    put(&gateway, "d", "b4", 50);
    put(&gateway, "e", "b4", 60);
    redis.run::<()>(&["HSET", "sluicegate:{rules}:rules", "d", "junk"]);
    let listed = get(&new, "/rules?limit=per-key&key=b4&patterns=1").json();
    assert_eq!(listed["unreadable"][0]["id"], "d");
    let ids: Vec<&str> =
        listed["rules"].as_array().unwrap().iter().filter_map(|r| r["id"].as_str()).collect();
    assert_eq!(ids, ["b", "e"]);
}
