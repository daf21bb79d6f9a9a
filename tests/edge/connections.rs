//! Limits on the number of connections: of a listener, of an address, and of a process that runs out of descriptors.

use std::net::TcpStream;
use std::time::Duration;

use crate::harness::{Client, Gateway, Setup, Upstream, gated_upstream, sleep, until};

const ROUTES: &str = "routes: [{respond: {status: 200}}]\n";
/// Whoever has left is not found out by a timeout.
const TIMES: &str = "timeouts: {head: 10min, idle: 10min}\n";

fn refused(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric("sluicegate_connections_refused_total", &[("listener", "edge"), ("reason", reason)])
}

/// Connections that are served: each has had an answer.
fn served(gateway: &Gateway, count: usize) -> Vec<Client> {
    let connect = || {
        let mut client = gateway.client();
        assert_eq!(client.get("/").status, 200);
        client
    };
    (0..count).map(|_| connect()).collect()
}

fn one_too_many(gateway: &Gateway, reason: &str, places: usize) {
    // The harness itself has looked whether somebody listens. The one worker accepts in order, so with this answer it
    // has accepted that connection, too.
    gateway.get("/");
    until("nobody is connected", || {
        (gateway.metric("sluicegate_connections", &[("listener", "edge")]) == 0.0).then_some(())
    });
    let before = refused(gateway, reason);
    let mut clients = served(gateway, places);
    assert!(gateway.client().is_closed(), "one too many");
    until("it is counted", || (refused(gateway, reason) > before).then_some(()));
    assert_eq!(clients[0].get("/").status, 200, "the others are served");
    clients.pop();
    serves_again(gateway); // a place is free again
}

#[test]
fn connections_of_a_listener_are_limited() {
    let gateway = Setup::default()
        .workers(1)
        .start(&format!("listen: [{{name: edge, address: \"{{edge}}\", max_connections: 3}}]\n{ROUTES}"));
    one_too_many(&gateway, "listener_full", 3);
    gateway.reload(&format!("listen: [{{name: edge, address: \"{{edge}}\", max_connections: 5}}]\n{ROUTES}"));
    one_too_many(&gateway, "listener_full", 5);
}

#[test]
fn connections_of_an_address_are_limited() {
    let listen = "listen: [{name: edge, address: \"{edge}\", max_connections_per_ip: 3}]\n";
    let gateway = Setup::default().workers(1).start(&format!("{listen}{ROUTES}"));
    one_too_many(&gateway, "address_full", 3);
    // Proxies bring the clients of everybody.
    gateway.reload(&format!("{listen}client_ip: {{trusted_proxies: [127.0.0.1]}}\n{ROUTES}"));
    assert_eq!(served(&gateway, 10).len(), 10);
}

/// Waits until a new connection is served.
fn serves_again(gateway: &Gateway) {
    until("a client is served again", || {
        let mut client = gateway.client();
        client.try_send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").ok()?;
        client.try_response().ok().filter(|answer| answer.status == 200)
    });
}

/// 300 connections where there are descriptors for few: no work while they stand there, and service right behind.
#[test]
fn a_flood_of_connections_costs_nothing_and_leaves_nothing() {
    for descriptors in [64, 80] {
        let upstream = Upstream::answering("hello");
        let yaml = "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{upstream: api}]\n";
        let setup = Setup::default().upstream(&upstream).descriptors(descriptors).workers(2);
        let gateway = setup.start(&format!("{TIMES}{yaml}"));
        assert_eq!(gateway.get("/").status, 200);
        let flood: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(gateway.edge).unwrap()).collect();
        until("it has taken or turned away what there is", || {
            (refused(&gateway, "gateway_full") > 200.0).then_some(())
        });
        let taken = gateway.metric("sluicegate_connections", &[("listener", "edge")]);
        assert!(2.0 * taken <= descriptors as f64, "{taken}: each may need a connection to an upstream");
        let before = gateway.processor_time();
        sleep(Duration::from_secs(1)); // time is what is measured
        let spent = gateway.processor_time() - before;
        assert!(spent <= Duration::from_millis(50), "{descriptors}: {spent:?} of a second");
        drop(flood);
        serves_again(&gateway);
    }
}

/// The limit that is the shell's, and not the system's, is raised at the start.
#[test]
fn a_soft_limit_is_raised() {
    let gateway = Gateway::start(ROUTES);
    let limits = std::fs::read_to_string(gateway.proc("limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<&str> = line.split_whitespace().filter(|word| word.parse::<u64>().is_ok()).collect();
    assert_eq!(numbers[0], numbers[1], "{line}");
}

/// The system may take descriptors away, or others may use them up: whoever cannot be accepted waits, and so does the
/// gateway.
#[test]
fn a_lack_of_descriptors_costs_no_processor_time() {
    let setup = Setup::default().descriptors(80).workers(2).without_admin();
    let gateway = setup.start(&format!("{TIMES}{ROUTES}"));
    let allow = |most: usize| {
        let pid = gateway.proc("").file_name().unwrap().to_owned();
        let mut prlimit = std::process::Command::new("prlimit");
        prlimit.arg("--pid").arg(pid).arg(format!("--nofile={most}:80"));
        assert!(prlimit.status().unwrap().success());
    };
    // Connections fall to both workers: when all of these are answered, both have what they need.
    (0..40).for_each(|_| assert_eq!(gateway.get("/").status, 200));
    allow(4);
    let waiting: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(gateway.edge).unwrap()).collect();
    let before = gateway.processor_time();
    sleep(Duration::from_secs(1)); // time is what is measured
    let spent = gateway.processor_time() - before;
    assert!(spent <= Duration::from_millis(50), "{spent:?} of a second");
    assert!(gateway.log().matches("cannot accept").count() <= 2, "{}", gateway.log());
    drop(waiting);
    allow(80);
    serves_again(&gateway);
}

/// A busy worker reads requests later, but a slow upstream gets all of them, and none of them waits for another.
#[test]
fn many_clients_of_a_slow_upstream_wait_for_it_only() {
    const CLIENTS: usize = 200;
    let (upstream, gate) = gated_upstream();
    let rules = "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{upstream: api}]\n";
    let gateway = Gateway::before(&upstream, rules);
    let mut clients = served(&gateway, CLIENTS);
    for client in &mut clients {
        client.request("GET", "/slow", &[]);
    }
    let slow = || upstream.seen().iter().filter(|seen| seen.target == "/slow").count();
    until("the upstream has all of them", || (slow() == CLIENTS).then_some(()));
    assert_eq!(gateway.get("/").status, 200, "a quick request overtakes them");
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
}
