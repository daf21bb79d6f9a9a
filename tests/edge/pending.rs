//! Requests that wait for a server at `max_connections`: none keeps a server from another while it waits, and all notice what changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{Client, Gate, Gateway, Server, Setup, Upstream, until};

/// The servers `{0}` and `{1}`, and requests that may wait for an hour.
fn all(fields: &str) -> String {
    format!(
        "upstreams:\n  api: {{timeouts: {{connect: 1h, response: 1h}}, {fields}}}\n\
         routes: [{{name: api, upstream: api}}]\n"
    )
}

fn pending(gateway: &Gateway, count: usize) {
    let waiting = || gateway.metric("sluicegate_upstream_pending", &[("upstream", "api")]);
    until("so many wait", || (waiting() == count as f64).then_some(()));
}

fn ask(gateway: &Gateway, target: &str) -> Client {
    let mut client = gateway.client();
    client.request("GET", target, &[]);
    client
}

/// Two servers with one place each reset their first request, both of which are sent again: each to the other server, whose place was
/// given back.
#[test]
fn a_request_that_is_retried_gives_its_place_back_first() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let resetting = || {
        let (arrived, own) = (Arc::clone(&arrived), AtomicUsize::new(0));
        Upstream::scripted(move |exchange| {
            if own.fetch_add(1, Ordering::SeqCst) > 0 {
                return exchange.answer(200, &[], b"done");
            }
            arrived.fetch_add(1, Ordering::SeqCst);
            until("both servers have a request", || (arrived.load(Ordering::SeqCst) == 2).then_some(()));
            exchange.reset();
        })
    };
    let servers = [resetting(), resetting()];
    let gateway =
        Setup::default().value("0", servers[0].address).value("1", servers[1].address).workers(1).start(
            &all("servers: [\"http://{0}\", \"http://{1}\"], max_connections: 1, retries: 1, ejection: off"),
        );
    let mut clients = [ask(&gateway, "/"), ask(&gateway, "/")];
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
}

/// A request that waits sees that the ejection of a server has ended.
#[test]
fn the_end_of_an_ejection_is_noticed() {
    let gate = Gate::default();
    let failed = AtomicUsize::new(0);
    let opens = gate.clone();
    let first = Upstream::scripted(move |exchange| match failed.fetch_add(1, Ordering::SeqCst) {
        0 => exchange.answer(503, &[], b""),
        _ => exchange.answer(200, &[], b"first"),
    });
    let second = Upstream::scripted(move |exchange| {
        opens.wait();
        exchange.answer(200, &[], b"second");
    });
    let gateway = Setup::default().value("0", first.address).value("1", second.address).workers(1).start(&all(
        "servers: [\"http://{0}\", \"http://{1}\"], balance: round_robin, max_connections: 1, retries: 0, \
         ejection: {failures: 1, for: 2s, status: [503]}",
    ));
    assert_eq!(gateway.get("/").status, 503, "the first server is ejected");
    let _held = ask(&gateway, "/");
    second.wait_for(1);
    let mut waits = ask(&gateway, "/");
    assert_eq!(waits.response().text(), "first");
    gate.open();
}

/// A request that waits sees what a reload changes: another server, more places, no limit.
#[test]
fn reloads_are_noticed() {
    for fields in [
        "servers: [\"http://{0}\", \"http://{1}\"], max_connections: 1",
        "servers: [\"http://{0}\"], max_connections: 2",
        "servers: [\"http://{0}\"]",
    ] {
        let (servers, setup) = Server::several(2);
        let gateway = setup.workers(1).start(&all("servers: [\"http://{0}\"], max_connections: 1"));
        let held = ask(&gateway, "/slow");
        servers[0].upstream.wait_for(1);
        let mut waits = ask(&gateway, "/");
        pending(&gateway, 1);
        gateway.reload(&all(fields));
        assert_eq!(waits.response().status, 200, "{fields}");
        drop(held);
        servers.iter().for_each(|server| server.gate.open());
    }
}

/// So do requests that wait because of `overload` when that is removed.
#[test]
fn the_end_of_protection_is_noticed() {
    let (servers, setup) = Server::several(1);
    let overload =
        "servers: [\"http://{0}\"], overload: {adaptive: false, max_in_flight: 1, queue: {deadline: 1min}}";
    let gateway = setup.workers(1).start(&all(overload));
    let held = ask(&gateway, "/slow");
    servers[0].upstream.wait_for(1);
    let mut waits = ask(&gateway, "/");
    let queued =
        || gateway.metric("sluicegate_upstream_queued", &[("upstream", "api"), ("priority", "default")]);
    until("it waits", || (queued() == 1.0).then_some(()));
    gateway.reload(&all("servers: [\"http://{0}\"]"));
    assert_eq!(waits.response().status, 200);
    drop(held);
    servers[0].gate.open();
}

/// A request that cannot use the server that has become free, because it failed there, does not keep another from it.
#[test]
fn a_free_server_is_used_by_whoever_can() {
    let (first, second) = (Gate::default(), Gate::default());
    let server = |gate: &Gate| {
        let gate = gate.clone();
        Upstream::scripted(move |exchange| match exchange.seen.target.as_str() {
            "/reset" => exchange.reset(),
            "/slow" => {
                gate.wait();
                exchange.answer(200, &[], b"slow");
            }
            _ => exchange.answer(200, &[], b"done"),
        })
    };
    let servers = [server(&first), server(&second)];
    let gateway =
        Setup::default().value("0", servers[0].address).value("1", servers[1].address).workers(1).start(
            &all("servers: [\"http://{0}\", \"http://{1}\"], max_connections: 1, retries: 1, ejection: off"),
        );
    let slow = ask(&gateway, "/slow");
    until("one server is busy", || (servers[0].seen().len() + servers[1].seen().len() == 1).then_some(()));
    let (busy, other) = if servers[0].seen().is_empty() { (1, 0) } else { (0, 1) };
    let failed = ask(&gateway, "/reset");
    pending(&gateway, 1);
    let held = ask(&gateway, "/slow");
    servers[other].wait_for(2);
    let mut waits = ask(&gateway, "/");
    pending(&gateway, 2);
    [&first, &second][other].open();
    assert_eq!(waits.response().text(), "done");
    [&first, &second][busy].open();
    drop((slow, failed, held));
}
