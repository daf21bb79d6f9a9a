//! A cluster, and a master that a sentinel names.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::{Cmd, Connection, FromRedisValue, RedisError};
use sluicegate_counters_redis::{Address, Deployment, Settings};
use sluicegate_rules_redis::{Event, ReadError};
use tempfile::TempDir;

use crate::common::{DEADLINE, PATIENT, Server, batch, open, put, rule, run_test};

/// A server at a port. Killed when it is dropped.
struct Node {
    port: u16,
    /// For the other nodes of a cluster.
    bus: u16,
    child: Child,
    folder: TempDir,
}

impl Node {
    /// With these arguments behind the ports. If somebody else takes one of these first, the server ends, and others are
    /// tried.
    fn start(arguments: &[&str]) -> Self {
        let mut node = Self::spawn(arguments);
        wait(|| {
            if node.child.try_wait().unwrap().is_some() {
                node = Self::spawn(arguments);
            }
            node.answers()
        });
        assert!(Path::new(node.folder.path()).exists());
        node
    }

    fn spawn(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [port, bus] = free_ports();
        let mut command = Command::new("redis-server");
        let [port_text, bus_text] = [port, bus].map(|port| port.to_string());
        if arguments.contains(&"--sentinel") {
            std::fs::write(folder.path().join("conf"), "").unwrap();
            command.arg("conf");
        }
        command.args(["--port", &port_text, "--bind", "127.0.0.1"]).args(arguments);
        if !arguments.contains(&"--sentinel") {
            command.args(["--cluster-port", &bus_text, "--save", "", "--appendonly", "no"]);
        }
        let child = command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        Self { port, bus, child: child.spawn().expect("redis-server is not installed"), folder }
    }

    /// Whether it, and not another server at its port, answers.
    fn answers(&self) -> bool {
        let process = format!("process_id:{}\r\n", self.child.id());
        self.ask::<String>(&["INFO", "server"]).is_ok_and(|answer| answer.contains(&process))
    }

    fn connection(&self) -> redis::RedisResult<Connection> {
        redis::Client::open(format!("redis://127.0.0.1:{}", self.port))?.get_connection()
    }

    fn ask<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        command(words).query(&mut self.connection()?)
    }

    /// Asks again when the connection breaks: a server that becomes a replica closes all of them, also those that
    /// are being opened.
    ///
    /// # Panics
    ///
    /// If the server refuses the command.
    fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut answer = self.ask(words);
        wait(|| {
            if answer.as_ref().is_err_and(RedisError::is_io_error) {
                answer = self.ask(words);
            }
            !answer.as_ref().is_err_and(RedisError::is_io_error)
        });
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn address(&self) -> Address {
        Address::Tcp { host: "127.0.0.1".into(), port: self.port }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn command(words: &[&str]) -> Cmd {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command
}

fn free_ports() -> [u16; 2] {
    let listeners = [0_u16, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn wait(mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < DEADLINE, "it does not come to pass");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Settings with these servers; the rest is that of any server.
fn settings(servers: Deployment) -> Settings {
    Settings { servers, ..Server::start().settings() }
}

/// The whole cluster agrees that all slots are held.
fn is_up(nodes: &[&Node]) -> bool {
    nodes.iter().all(|node| node.command::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok"))
}

#[test]
fn the_node_that_holds_the_slot_is_found_and_followed() {
    let arguments = ["--cluster-enabled", "yes", "--cluster-node-timeout", "15000"];
    let [first, second] = [Node::start(&arguments), Node::start(&arguments)];
    let slot: u16 = first.command(&["CLUSTER", "KEYSLOT", "test:{rules}:meta"]);
    let [below, own, above] = [slot - 1, slot, slot + 1].map(|slot| slot.to_string());
    first.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", &below, &above, "16383"]);
    second.command::<()>(&["CLUSTER", "ADDSLOTS", &own]);
    // The node that gets the slot has the higher one: it keeps a slot that an older message of the other claims.
    first.command::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", "2"]);
    second.command::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", "1"]);
    let [port, bus] = [second.port, second.bus].map(|port| port.to_string());
    first.command::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    wait(|| is_up(&[&first, &second]));
    run_test(async {
        // Only the node that does not hold the rules is configured.
        let settings = settings(Deployment::Cluster(vec![first.address()]));
        let (a, _) = open(settings.clone(), PATIENT);
        let (b, events) = open(settings, PATIENT);
        assert_eq!(events.next_but_outages().1, Event::Everything);
        events.until_version(0);
        a.write(batch([put(rule("a", "k", ""))])).await.unwrap();
        assert_eq!(events.next_but_outages().1, Event::Keys(vec![("api".into(), "k".into())]));
        assert_eq!(b.list(None, None, None, 9).await.unwrap().len(), 1);
        assert_eq!(second.command::<u64>(&["HLEN", "test:{rules}:rules"]), 1);
        let epoch = a.version().await.unwrap().epoch;
        // The slot moves, without what it had. A node gives a slot away only while it holds no key of it, and the
        // stores write an epoch to a server without one, so nothing may come between the two commands. It no longer claims
        // the slot when the other node takes it.
        let id: String = first.command(&["CLUSTER", "MYID"]);
        let set_slot = ["CLUSTER", "SETSLOT", &own, "NODE", &id];
        let mut emptied = redis::pipe();
        emptied.atomic().add_command(command(&["FLUSHALL"])).add_command(command(&set_slot));
        emptied.exec(&mut second.connection().unwrap()).unwrap();
        first.command::<()>(&set_slot);
        events.until(|event| *event == Event::Everything);
        let begun = Instant::now();
        while a.write(batch([put(rule("b", "k2", ""))])).await.is_err() {
            assert!(begun.elapsed() < DEADLINE);
        }
        wait(|| first.command::<u64>(&["HLEN", "test:{rules}:rules"]) == 1);
        let reply =
            |event: &Event| matches!(event, Event::At(head) if head.version == 1 && head.epoch != epoch);
        events.until(reply);
    });
}

#[test]
fn the_master_that_the_sentinels_name_is_followed() {
    let master = Node::start(&[]);
    let replica = Node::start(&["--replicaof", "127.0.0.1", &master.port.to_string()]);
    wait(|| replica.command::<String>(&["INFO", "replication"]).contains("master_link_status:up"));
    let sentinel = Node::start(&["--sentinel"]);
    // One that has stood still for two seconds would do nothing for thirty.
    sentinel.command::<()>(&["SENTINEL", "DEBUG", "tilt-trigger", "60000"]);
    let port = master.port.to_string();
    sentinel.command::<()>(&["SENTINEL", "MONITOR", "rules", "127.0.0.1", &port, "1"]);
    sentinel.command::<()>(&[
        "SENTINEL",
        "SET",
        "rules",
        "down-after-milliseconds",
        "30000",
        "failover-timeout",
        "20000",
    ]);
    wait(|| sentinel.command::<String>(&["INFO", "sentinel"]).contains("slaves=1"));
    run_test(async {
        let nodes = vec![sentinel.address()];
        let settings =
            settings(Deployment::Sentinel { master: "rules".into(), nodes, username: None, password: None });
        let (a, _) = open(settings.clone(), PATIENT);
        let (b, events) = open(settings, PATIENT);
        events.until_version(0);
        a.write(batch([put(rule("a", "k", ""))])).await.unwrap();
        events.until_version(1);
        // WAIT would say nothing of it: it is about writes of its own connection.
        wait(|| replica.command::<u64>(&["HLEN", "test:{rules}:rules"]) == 1);
        wait(|| {
            let is_master = replica.command::<String>(&["INFO", "replication"]).contains("role:master");
            if !is_master {
                // Refused while the replica is no good or a failover is going on; one that was begun may be given up.
                _ = sentinel.ask::<()>(&["SENTINEL", "FAILOVER", "rules"]);
            }
            is_master
        });
        let promoted = Instant::now();
        while replica.command::<u64>(&["HLEN", "test:{rules}:rules"]) < 2 {
            assert!(promoted.elapsed() < DEADLINE);
            // It may be lost with the old master.
            _ = a.write(batch([put(rule("b", "k2", ""))])).await;
        }
        println!("a write reaches the new master after {:?}", promoted.elapsed());
        events.until_version(2);
        assert_eq!(b.list(None, None, None, 9).await.unwrap().len(), 2);
    });
}

#[test]
fn a_user_needs_the_names_with_the_tag_only() {
    let server = Server::start();
    let user =
        "ACL SETUSER gateway on >secret ~test:{rules}:* resetchannels &test:{rules}:* +@all -@dangerous";
    server.command::<()>(&user.split(' ').collect::<Vec<_>>());
    run_test(async {
        let user = |password: &str| Settings {
            username: Some("gateway".into()),
            password: Some(password.into()),
            ..server.settings()
        };
        let (a, _) = open(user("secret"), PATIENT);
        let (b, events) = open(user("secret"), PATIENT);
        events.until_version(0);
        server.wait_for_listeners(2);
        a.write(batch((0..6_000).map(|n| put(rule(&format!("r{n}"), "k*", ""))))).await.unwrap();
        // The message says the one; a check of the store that comes before it says the other of so many changes.
        events.until(|event| matches!(event, Event::Patterns | Event::Everything));
        assert_eq!(b.list(None, Some("k*"), None, 9).await.unwrap().len(), 9);
        assert_eq!(b.patterns().await.unwrap().1.len(), 6_000);
        let begun = Instant::now();
        loop {
            let (refused, reply) = open(user("wrong"), PATIENT);
            let Event::Away(reply) = reply.next().1 else { panic!("it cannot be reached") };
            let Err(ReadError::Away(read)) = refused.0.get("a").await else { panic!("it cannot") };
            if [&reply, &read].into_iter().all(|why| why.to_lowercase().contains("password")) {
                break;
            }
            let is_late = [&reply, &read].into_iter().any(|why| why.contains("does not answer in time"));
            assert!(is_late && begun.elapsed() < PATIENT, "{reply}; {read}");
        }
    });
}
