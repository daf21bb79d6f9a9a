//! Tests of the harness: its Redis servers work as the tests of the store expect.

use crate::harness::{Cluster, RedisServer, Sentinels};

/// Sets a value as a user would, with the URL that stands in the configuration.
fn set(url: &str) -> redis::RedisResult<()> {
    let mut connection = redis::Client::open(url)?.get_connection_with_timeout(crate::harness::deadline())?;
    redis::cmd("SET").arg("sluicegate:k").arg("v").query(&mut connection)
}

/// A password, a user, a database and a Unix socket are needed where they are asked for.
#[test]
fn servers_of_every_kind_start() {
    let plain = RedisServer::start();
    set(&plain.url()).unwrap();
    assert_eq!((plain.keys(), plain.calls(&["set", "keys"])), (vec!["sluicegate:k".to_owned()], 2));

    let secret = RedisServer::setup().password("secret").start();
    set(&secret.url()).unwrap();
    set(&secret.bare_url()).unwrap_err();

    let user = RedisServer::setup().user("gate", "secret", &["~sluicegate*", "+set"]).start();
    set(&user.url()).unwrap();
    set(&user.bare_url()).unwrap_err();

    let second = RedisServer::setup().database(2).start();
    set(&second.url()).unwrap();
    assert_eq!(second.info("keyspace", "db2").map(|db| db.starts_with("keys=1,")), Some(true));

    let unix = RedisServer::setup().unix().start();
    set(&unix.url()).unwrap();
    assert!(std::net::TcpStream::connect(unix.address).is_err());

    let tls = RedisServer::setup().tls().start();
    tls.run::<()>(&["SET", "k", "v"]);
    set(&tls.url()).unwrap_err();
}

/// A server comes back at its address and empty, and a frozen one goes on where it was.
#[test]
fn a_server_can_be_killed_and_frozen() {
    let mut server = RedisServer::start();
    set(&server.url()).unwrap();
    server.freeze();
    let client = server.client();
    client.get_connection_with_timeout(std::time::Duration::from_millis(50)).err().unwrap();
    server.thaw();
    assert_eq!(server.keys().len(), 1);
    server.kill();
    set(&server.url()).unwrap_err();
    server.restart();
    assert!(server.keys().is_empty());
}

/// A slot moves with its keys, and everybody knows.
#[test]
fn a_slot_can_be_moved() {
    let cluster = Cluster::start();
    let (slot, key) = (cluster.slot("{a}1"), "{a}1");
    let from = cluster.owner(slot);
    cluster.nodes[from].run::<()>(&["SET", key, "v"]);
    cluster.nodes[from].run::<()>(&["SET", "{a}2", "v"]);
    let to = (from + 1) % 3;
    cluster.move_slot(slot, to);
    assert_eq!(cluster.owner(slot), to);
    assert_eq!(cluster.keys().iter().map(|(node, _)| *node).collect::<Vec<_>>(), [to, to]);
}

/// The replica takes over when the master dies, and when it is asked to.
#[test]
fn a_replica_takes_over() {
    let sentinels = Sentinels::start(1);
    sentinels.servers[0].run::<()>(&["SET", "k", "v"]);
    sentinels.catch_up();
    sentinels.switch_over();
    assert_eq!(sentinels.master(), 1);
    assert_eq!(sentinels.servers[1].keys(), ["k"]);
    let mut sentinels = Sentinels::start(3);
    sentinels.fail_over();
    assert_eq!(sentinels.master(), 1);
}
