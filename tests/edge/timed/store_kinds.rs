//! Redis with passwords, users, databases, TLS and a Unix socket: a limit is shared over each.

use std::time::Duration;

use crate::harness::fleet::limit;
use crate::harness::{Fleet, Gateway, RedisServer, sleep, until};

/// Two gateways share a limit of ten through this store.
#[track_caller]
fn shares(store: &str) -> Fleet {
    let fleet = Fleet::start(2, &(store.to_owned() + &limit("rate: 10/366d")));
    fleet.exactly(10, "/", "k");
    assert_eq!(fleet.fallbacks(), 0.0, "{store}");
    fleet
}

/// The gateway cannot use the store, logs that, and limits locally.
#[track_caller]
fn stays_outside(store: &str) {
    let fleet = Fleet::cold(1, &(store.to_owned() + &limit("rate: 10/366d")));
    assert_eq!(fleet[0].statuses(11, "/", &[("x-api-key", "k")]), [[200; 10].as_slice(), &[429]].concat());
    fleet.down();
    until("the log says it", || fleet[0].log().contains("store").then_some(()));
    assert!(!fleet[0].log().contains("wrong"), "and not the password");
}

/// One server with default settings.
#[test]
fn a_plain_server() {
    let redis = RedisServer::start();
    shares(&redis.store());
    for key in redis.keys() {
        assert!(key.starts_with("sluicegate"), "{key}");
        // A key that has expired meanwhile has none either, but says -2.
        assert_ne!(redis.run::<i64>(&["TTL", &key]), -1, "{key} never goes away");
    }
}

/// A password, in the URL or beside it; with a wrong one the gateway limits locally.
#[test]
fn a_server_with_a_password() {
    let redis = RedisServer::setup().password("secret").start();
    shares(&redis.store());
    redis.run::<()>(&["FLUSHALL"]);
    let bare = redis.bare_url();
    shares(&format!("store: {{redis: {{url: \"{bare}\", password: secret, timeout: 10s}}}}\n"));
    stays_outside(&format!("store: {{redis: {{url: \"{bare}\", password: wrong, timeout: 200ms}}}}\n"));
}

/// The permissions that the documentation names.
fn permissions(docs: &str) -> Vec<&str> {
    let (_, rest) = docs.split_once("**Permissions**: `").unwrap();
    rest.split_once('`').unwrap().0.split_whitespace().collect()
}

/// A user with exactly the permissions that docs/redis.md lists, in the URL or beside it.
#[test]
fn a_server_with_users() {
    let rules = [&["~sluicegate:*"], &permissions(include_str!("../../../docs/redis.md"))[..]].concat();
    let redis = RedisServer::setup().user("gate", "secret", &rules).start();
    shares(&redis.store());
    redis.run::<()>(&["FLUSHALL"]);
    let bare = redis.bare_url();
    shares(&format!(
        "store: {{redis: {{url: \"{bare}\", username: gate, password: secret, timeout: 10s}}}}\n"
    ));
}

/// The same user, and what the documentation says that a home store needs besides.
#[test]
fn a_home_store_with_users() {
    let docs = include_str!("../../../docs/redis.md");
    let rules = [&["~sluicegate:*", "+eval"], &permissions(docs)[..]].concat();
    let (home, store) = (RedisServer::setup().user("gate", "secret", &rules).start(), RedisServer::start());
    let text = format!(
        "{}regions: {{name: a, floors: {{a: 30%, b: 30%}}, home: {{redis: {{url: \"{}\"}}}}}}\n{}",
        store.store(),
        home.url(),
        limit("rate: 100/s")
    );
    let gateway = Gateway::start(&text);
    until("the home store is used", || {
        (gateway.admin_get("/status").json()["regions"]["home_up"] == true).then_some(())
    });
}

/// Without the permissions that only operators need, limits are shared all the same.
#[test]
fn a_user_that_may_not_show_the_busiest_keys() {
    let docs = include_str!("../../../docs/redis.md");
    let only_shown = ["+zrange", "+hkeys", "+hset", "+hdel"];
    let mut rules = permissions(docs);
    rules.retain(|rule| !only_shown.contains(rule));
    let redis =
        RedisServer::setup().user("gate", "secret", &[&["~sluicegate:*"], &rules[..]].concat()).start();
    let fleet = shares(&redis.store());
    fleet[0].admin_get("/top");
    sleep(Duration::from_secs(3));
    fleet.exactly(10, "/", "another");
    assert_eq!(fleet.fallbacks(), 0.0);
    assert!(!fleet[0].log().contains("the store is down"));
}

/// A database, in the URL or beside it.
#[test]
fn a_database() {
    let redis = RedisServer::setup().database(3).start();
    shares(&redis.store());
    assert!(redis.info("keyspace", "db3").is_some() && redis.info("keyspace", "db0").is_none());
    redis.run::<()>(&["FLUSHALL"]);
    shares(&format!("store: {{redis: {{url: \"redis://{}\", database: 5, timeout: 10s}}}}\n", redis.address));
    assert!(redis.info("keyspace", "db5").is_some() && redis.info("keyspace", "db3").is_none());
}

/// A Unix socket.
#[test]
fn a_unix_socket() {
    let redis = RedisServer::setup().unix().start();
    shares(&redis.store());
}

/// TLS with a CA of its own; a server of another CA is not trusted.
#[test]
fn a_server_with_tls() {
    let (redis, other) = (RedisServer::setup().tls().start(), RedisServer::setup().tls().start());
    shares(&redis.store());
    let store = redis
        .store_within("200ms")
        .replace(&redis.ca().display().to_string(), &other.ca().display().to_string());
    stays_outside(&store);
}

/// Gateways with different prefixes share nothing, and neither do local limits.
#[test]
fn what_is_not_shared() {
    let redis = RedisServer::start();
    shares(&redis.store());
    let store = redis.store().replace("timeout:", "prefix: staging, timeout:");
    shares(&store);
    assert!(redis.keys().iter().any(|key| key.starts_with("staging")));
    redis.run::<()>(&["FLUSHALL"]);
    let fleet = Fleet::start(2, &(redis.store() + &limit("rate: 10/366d, scope: local")));
    assert_eq!(fleet.in_turn(22, "k"), [[200; 20].as_slice(), &[429; 2]].concat());
}
