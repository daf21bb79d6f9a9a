//! Which requests are sent again to another server, and which are not: nothing is done twice that was requested once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::{Behavior, Gateway, Load, ReservedPort, Server, Setup, Upstream, sleep, until};

/// The servers `{0}` and `{1}`, one after another; none is ever out.
fn two(fields: &str) -> String {
    format!(
        "upstreams: {{api: {{servers: [\"http://{{0}}\", \"http://{{1}}\"], ejection: off{fields}}}}}\n\
         limits: {{per-client: {{key: ip, rate: 1000/366d}}}}\n\
         routes: [{{name: api, match: {{path: /*}}, upstream: api, limits: [per-client]}}]\n"
    )
}

fn retries(gateway: &Gateway) -> f64 {
    gateway.metric("sluicegate_upstream_retries_total", &[("upstream", "api")])
}

/// What could not be sent because nobody listens is sent to somebody else, whatever it is. It costs its limits once.
#[test]
fn requests_that_were_not_sent_are_sent_to_another_server() {
    let (nobody, server) = (ReservedPort::new(), Server::start(1));
    let gateway =
        Setup::default().value("0", nobody.address).value("1", server.address()).workers(1).start(&two(""));
    let mut client = gateway.client();
    for _ in 0..2 {
        assert_eq!(client.get("/").status, 200);
        assert_eq!(client.ask("POST", "/", &[("content-length", "0")]).status, 200);
        assert_eq!(client.post("/", &[], b"body").status, 200);
    }
    assert_eq!(retries(&gateway), 3.0, "every other request");
    assert_eq!(gateway.remaining("per-client", "127.0.0.1"), 994);
    let bodies: Vec<_> = server.upstream.seen().into_iter().filter(|seen| seen.body == b"body").collect();
    assert_eq!((bodies.len(), server.requests()), (2, 6));
    let answered = [("upstream", "api"), ("outcome", "answered")];
    assert_eq!(gateway.metric("sluicegate_upstream_requests_total", &answered), 6.0);
}

/// With `unsafe: true` also what is not idempotent is sent again, with its body if that is short: to another server, and to the same one if a
/// kept connection has ended.
#[test]
fn unsafe_requests_are_repeated_where_that_is_allowed() {
    let long = "x".repeat(70_000);
    for (method, body, expected) in [
        ("GET", "", 200),
        ("POST", "", 200),
        ("POST", "body", 200),
        ("PUT", "body", 200),
        ("PATCH", "body", 200),
        ("POST", &long, 502),
    ] {
        let (servers, setup) = Server::several(2);
        servers[0].behave(Behavior::Disconnects);
        let gateway = setup.workers(1).start(&two(", retries: {attempts: 1, unsafe: true}"));
        let mut client = gateway.client();
        client.request(method, "/", &[("content-length", &body.len().to_string())]).send(body);
        assert_eq!(client.response().status, expected, "{method}, {} bytes", body.len());
        if expected == 200 {
            assert_eq!(servers[1].upstream.last().body, body.as_bytes(), "{method}");
        }
        // One server, which closes a connection when its second request comes.
        let server = Upstream::scripted({
            let count = AtomicUsize::new(0);
            move |exchange| match count.fetch_add(1, Ordering::SeqCst) {
                1 => {
                    let _ = exchange.body();
                    exchange.close();
                }
                _ => exchange.answer(200, &[], b"done"),
            }
        });
        let file = "upstreams: {api: {servers: [\"http://{upstream}\"], retries: {unsafe: true}}}\n\
                    routes: [{name: api, upstream: api}]\n";
        let gateway = Setup::default().workers(1).upstream(&server).start(file);
        let mut client = gateway.client();
        assert_eq!(client.get("/").status, 200);
        client.request(method, "/", &[("content-length", &body.len().to_string())]).send(body);
        assert_eq!(client.response().status, expected, "{method}, {} bytes", body.len());
        if expected == 200 {
            assert_eq!((server.last().body, server.connections()), (body.as_bytes().to_vec(), 2), "{method}");
        }
    }
}

/// A server says for how long it keeps a connection; the gateway does not use it for the last second of that.
#[test]
fn a_connection_is_not_used_when_its_server_is_about_to_close_it() {
    for (says, config, kept) in [
        ("timeout=2", "", false),
        ("max=5, Timeout=2", "", false),
        ("timeout=0", "", false),
        ("timeout=9", "", true),
        ("max=5", "", true),
        ("timeout=9", ", timeouts: {keep_alive: 500ms}", false),
        ("max=5", ", timeouts: {idle: 500ms}", true),
    ] {
        let server =
            Upstream::scripted(move |exchange| exchange.answer(200, &[("keep-alive", says)], b"done"));
        let file = format!(
            "upstreams: {{api: {{servers: [\"http://{{upstream}}\"]{config}}}}}\nroutes: [{{name: api, upstream: api}}]\n"
        );
        let gateway = Setup::default().workers(1).upstream(&server).start(&file);
        assert_eq!(gateway.get("/").status, 200);
        sleep(Duration::from_millis(1_100));
        assert_eq!(gateway.get("/").status, 200);
        assert_eq!(server.connections(), if kept { 1 } else { 2 }, "{says}{config}");
    }
}

/// What was sent and not answered is sent again only if that changes nothing: never with a body, never a POST.
#[test]
fn unsafe_requests_are_not_repeated() {
    for (method, body, expected) in [
        ("GET", false, 200),
        ("DELETE", false, 200),
        ("POST", false, 502),
        ("PUT", true, 502),
        ("POST", true, 502),
    ] {
        let (servers, setup) = Server::several(2);
        servers[0].behave(Behavior::Disconnects);
        let gateway = setup.workers(1).start(&two(""));
        let mut client = gateway.client();
        let length = if body { "4" } else { "0" };
        client.request(method, "/", &[("content-length", length)]).send(if body { "body" } else { "" });
        assert_eq!(client.response().status, expected, "{method}, with a body: {body}");
        let again = usize::from(expected == 200);
        assert_eq!(
            [servers[0].requests(), servers[1].requests()],
            [1, again],
            "{method}, with a body: {body}"
        );
    }
}

/// An answer that has begun is not asked for again; nor is one that is late.
#[test]
fn a_request_is_not_repeated_once_its_answer_has_begun() {
    let half = crate::harness::Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\n");
        exchange.close();
    });
    let late = crate::harness::Upstream::scripted(|exchange| exchange.silence());
    for (first, fields, expected) in [(&half, "", 502), (&late, ", timeouts: {response: 300ms}", 504)] {
        let other = Server::start(1);
        let setup = Setup::default().value("0", first.address).value("1", other.address()).workers(1);
        let gateway = setup.start(&two(fields));
        assert_eq!(gateway.get("/").status, expected);
        assert_eq!((other.requests(), retries(&gateway)), (0, 0.0));
    }
}

/// `retries: 0` is none; and where all fail, no more than were asked for.
#[test]
fn the_number_of_retries_is_as_configured() {
    for (fields, expected) in [(", retries: 0", 1), (", retries: 1", 2), (", retries: {attempts: 5}", 3)] {
        let (servers, setup) = Server::several(3);
        servers.iter().for_each(|server| server.behave(Behavior::Disconnects));
        let gateway = setup.workers(1).start(&two(fields).replace("{1}\"]", "{1}\", \"http://{2}\"]"));
        assert_eq!(gateway.get("/").status, 502);
        assert_eq!(servers.iter().map(Server::requests).sum::<usize>(), expected, "{fields}");
    }
}

/// In an outage retries stay a share of the requests, and a few.
#[test]
fn an_outage_does_not_double_the_traffic() {
    let (servers, setup) = Server::several(2);
    servers.iter().for_each(|server| server.behave(Behavior::Disconnects));
    let gateway = setup.workers(1).start(&two(", retries: {attempts: 1, budget: 10%}"));
    let (statuses, took) = crate::harness::measure(|| gateway.statuses(400, "/", &[]));
    assert!(statuses.iter().all(|status| *status == 502));
    let sent = servers.iter().map(Server::requests).sum::<usize>();
    let most = 400 + 40 + 10 + 10 * (took.as_secs() as usize + 1);
    assert!((440..=most).contains(&sent), "{sent} of 400, at most {most}");
    assert_eq!(retries(&gateway) as usize, sent - 400);
}

/// One server of three is killed under load: nobody notices, for all that was in flight is safe to ask for again.
#[test]
fn a_server_is_killed_under_load() {
    let server = || Gateway::start("routes: [{name: all, respond: {status: 200, body: done}}]\n");
    let mut servers: Vec<Gateway> = (0..3).map(|_| server()).collect();
    let setup = servers
        .iter()
        .enumerate()
        .fold(Setup::default(), |setup, (at, server)| setup.value(&at.to_string(), server.edge));
    let gateways = [setup.workers(2).start(
        "upstreams: {api: {servers: [\"http://{0}\", \"http://{1}\", \"http://{2}\"]}}\n\
         routes: [{name: api, match: {path: /*}, upstream: api}]\n",
    )];
    let load = Load::on(&gateways, 8).pause(Duration::from_millis(10)).start();
    until("there is load", || (load.answered() > 200).then_some(()));
    drop(servers.pop());
    let killed = load.answered();
    until("it goes on", || (load.answered() > killed + 800).then_some(()));
    let samples = load.stop();
    let odd: Vec<_> = samples.iter().filter(|sample| sample.status != 200).collect();
    assert!(odd.is_empty(), "{} of {}: {:?}", odd.len(), samples.len(), odd[0]);
    assert!(retries(&gateways[0]) > 0.0);
    assert_eq!(gateways[0].metric("sluicegate_upstream_ejections_total", &[("upstream", "api")]), 1.0);
}
