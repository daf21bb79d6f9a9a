//! Several servers of one upstream: which of them gets a request, how many at once, and what a reload keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::harness::{Client, Gateway, Server, in_parallel, measure, patience, until};

/// Everything goes to the upstream `api`, which has these fields.
fn all(fields: &str) -> String {
    format!(
        "upstreams:\n  api:\n    {}\nroutes: [{{name: api, match: {{path: /*}}, upstream: api}}]\n",
        fields.replace('\n', "\n    ")
    )
}

/// The servers that answer some requests for `/` one after another.
fn answers(client: &mut Client, count: usize) -> Vec<String> {
    (0..count).map(|_| client.get("/").text()).collect()
}

/// Requests are spread by weight, exactly so where one worker gives turns.
#[test]
fn requests_are_spread_by_weight() {
    for (balance, spread) in [("round_robin", 0), ("least_requests", 0), ("random", 45)] {
        let (servers, setup) = Server::several(3);
        let gateway = setup.workers(1).start(&all(&format!(
            "servers: [{{url: \"http://{{0}}\", weight: 4}}, \"http://{{1}}\", \"http://{{2}}\"]\nbalance: {balance}"
        )));
        answers(&mut gateway.client(), 300);
        for (server, expected) in servers.iter().zip([200_usize, 50, 50]) {
            let got = server.requests();
            assert!(got.abs_diff(expected) <= spread, "{balance}: {got} instead of {expected}");
        }
    }
}

/// Who is slow gets no more while others are free.
#[test]
fn the_least_loaded_server_gets_the_next_request() {
    let (servers, setup) = Server::several(2);
    let gateway =
        setup.workers(1).start(&all("servers: [\"http://{0}\", \"http://{1}\"]\nbalance: least_requests"));
    let mut slow = gateway.client();
    slow.request("GET", "/slow", &[]);
    let busy = until("the slow request arrives", || servers.iter().position(|s| s.requests() == 1));
    let free = (1 - busy).to_string();
    assert_eq!(answers(&mut gateway.client(), 10), vec![free; 10]);
    servers[busy].gate.open();
    assert_eq!(slow.response().text(), busy.to_string());
}

/// Requests with the same key go to the same server, whichever worker serves them; without a key they go anywhere.
/// When a server goes, only its own keys move.
#[test]
fn a_key_stays_on_its_server() {
    let (servers, setup) = Server::several(3);
    let three = all(
        "servers: [\"http://{0}\", \"http://{1}\", \"http://{2}\"]\nbalance: {hash: \"header:x-tenant\"}",
    );
    let gateway = setup.workers(2).start(&three);
    let whose = |gateway: &Gateway| -> BTreeMap<String, String> {
        let keys = (0..60).map(|key| format!("tenant-{key}"));
        keys.map(|key| {
            let ask = || gateway.ask("GET", "/", &[("x-tenant", &key)]).text();
            let first = ask();
            assert!((0..3).all(|_| ask() == first), "{key} moves about");
            (key, first)
        })
        .collect()
    };
    let before = whose(&gateway);
    assert_eq!(before.values().collect::<BTreeSet<_>>().len(), 3, "all servers have keys: {before:?}");
    assert_eq!(gateway.get("/").status, 200);

    gateway.reload(&three.replace(", \"http://{2}\"", ""));
    let after = whose(&gateway);
    for (key, server) in &before {
        assert!(server == "2" || after[key] == *server, "{key} was on {server} and is on {}", after[key]);
    }
    assert!(servers[2].requests() > 0);
}

/// One key cannot overload its server: what is too much for it goes to the others.
#[test]
fn a_busy_key_is_spread() {
    let (servers, setup) = Server::several(2);
    let gateway =
        setup.workers(1).start(&all("servers: [\"http://{0}\", \"http://{1}\"]\nbalance: {hash: host}"));
    let mut clients: Vec<Client> = (0..12).map(|_| gateway.client()).collect();
    for client in &mut clients {
        client.request("GET", "/slow", &[]);
    }
    until("all arrive", || (servers.iter().map(Server::requests).sum::<usize>() == 12).then_some(()));
    let most = servers.iter().map(Server::requests).max().unwrap();
    assert!((6..=8).contains(&most), "12 requests of one key, {most} on one server");
    servers.iter().for_each(|server| server.gate.open());
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
}

/// `max_connections` is exact over all workers; `max_pending` wait, and all others are told to come back.
#[test]
fn connections_and_pending_requests_of_a_server_are_limited() {
    let (servers, setup) = Server::several(1);
    let gateway = setup.workers(2).start(&all(
        "servers: [\"http://{0}\"]\ntimeouts: {connect: 9s}\nmax_connections: 2\nmax_pending: 3",
    ));
    let clients: Vec<Client> = (0..5)
        .map(|count| {
            let mut client = gateway.client();
            client.request("GET", "/slow", &[]);
            until("it arrives, or waits", || {
                let waiting = gateway.metric("sluicegate_upstream_pending", &[("upstream", "api")]);
                (servers[0].requests() + waiting as usize == count + 1).then_some(())
            });
            client
        })
        .collect();
    assert_eq!(servers[0].requests(), 2);
    let (refused, took) = measure(|| gateway.get("/"));
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert!(took < patience(5), "{took:?}");
    let kind = refused.problem()["type"].as_str().unwrap().to_owned();
    assert!(kind.ends_with("#temporary-reduced-capacity"), "{kind}");
    servers[0].gate.open();
    for mut client in clients {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(gateway.get("/").status, 200, "places are given back");
    let outcome = |outcome| {
        gateway.metric("sluicegate_upstream_requests_total", &[("upstream", "api"), ("outcome", outcome)])
    };
    assert_eq!((outcome("busy"), outcome("answered")), (1.0, 6.0));
}

/// Whoever waits is told so after the time for a connection, and a client that leaves frees its place.
#[test]
fn pending_requests_time_out() {
    let (servers, setup) = Server::several(1);
    let gateway =
        setup.start(&all("servers: [\"http://{0}\"]\ntimeouts: {connect: 300ms}\nmax_connections: 1"));
    let mut slow = gateway.client();
    slow.request("GET", "/slow", &[]);
    servers[0].upstream.wait_for(1);
    let (refused, took) = measure(|| gateway.get("/"));
    assert_eq!(refused.status, 503);
    assert!((Duration::from_millis(250)..patience(9)).contains(&took), "{took:?}");
    drop(slow);
    until("the place of a client that left is free", || (gateway.get("/").status == 200).then_some(()));
    let left = || {
        let labels = [("upstream", "api"), ("outcome", "client_left")];
        gateway.metric("sluicegate_upstream_requests_total", &labels)
    };
    until("the request of that client is counted", || (left() > 0.0).then_some(()));
    assert_eq!(left(), 1.0);
}

/// A burst over many connections never has more than the bound at the server, and loses nobody.
#[test]
fn a_burst_waits_for_connections() {
    let (_servers, setup) = Server::several(2);
    let gateway = setup.workers(2).start(&all(
        "servers: [\"http://{0}\", \"http://{1}\"]\ntimeouts: {connect: 9s}\nmax_connections: 2\nmax_pending: 1000",
    ));
    let statuses = in_parallel(16, |_| gateway.statuses(20, "/", &[]));
    assert!(statuses.iter().flatten().all(|status| *status == 200), "{statuses:?}");
    assert_eq!(gateway.metric("sluicegate_upstream_pending", &[("upstream", "api")]), 0.0);
}

/// A name is looked up before the first request needs it, and operators see where it leads.
#[test]
fn names_are_resolved() {
    let (servers, setup) = Server::several(1);
    let port = servers[0].address().port();
    let gateway = setup.value("port", port).start(&all("servers: [\"http://localhost:{port}\"]\nretries: 0"));
    assert_eq!(
        gateway.statuses(5, "/", &[]),
        [200; 5],
        "also where the name has addresses nobody listens on"
    );
    let status = gateway.admin_get("/status").json();
    let server = &status["upstreams"][0]["servers"][0];
    assert_eq!(server["server"], format!("localhost:{port}"));
    let addresses = server["addresses"].as_array().unwrap();
    let here = format!("127.0.0.1:{port}");
    assert!(addresses.iter().any(|address| address["address"] == here.as_str()), "{status}");
}

/// A reload that adds a server, changes weights or timeouts keeps the connections to those that stay.
#[test]
fn a_reload_keeps_connections() {
    let (servers, setup) = Server::several(2);
    let one = all("servers: [\"http://{0}\"]");
    let gateway = setup.workers(1).start(&one);
    let mut client = gateway.client();
    answers(&mut client, 3);
    for fields in [
        "servers: [\"http://{1}\", {url: \"http://{0}\", weight: 3}]",
        "servers: [{url: \"http://{0}\", weight: 2}]\ntimeouts: {response: 5s}\nbalance: round_robin",
        "servers: [\"http://{0}\", \"http://{1}\"]\nretries: 0\nmax_connections: 10",
    ] {
        gateway.reload(&all(fields));
        answers(&mut client, 8);
        assert_eq!(servers[0].upstream.connections(), 1, "{fields}");
    }
    assert!(servers[1].requests() > 0);
}

/// What is hashed may be proved first: a user's requests stay on one server, although no limit asks who it is.
#[test]
fn a_user_stays_on_a_server() {
    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    let (servers, setup) = Server::several(3);
    let gateway = setup.workers(2).start(&format!(
        "auth: {{jwt: {{secret: {SECRET}}}}}\n{}",
        all("servers: [\"http://{0}\", \"http://{1}\", \"http://{2}\"]\nbalance: {hash: user}")
    ));
    for user in 0..12 {
        let claims = format!(r#"{{"sub":"user-{user}","exp":4000000000}}"#);
        let token =
            crate::harness::issuer::Signer::hs256(SECRET.as_bytes()).signed(r#"{"alg":"HS256"}"#, &claims);
        let headers = [("authorization", &*format!("Bearer {token}"))];
        let answers: BTreeSet<String> = (0..4).map(|_| gateway.ask("GET", "/", &headers).text()).collect();
        assert_eq!(answers.len(), 1, "user-{user} moves about");
    }
    assert!(servers.iter().filter(|server| server.requests() > 0).count() > 1);
}
