//! Connections over HTTP/1.1: how they are kept, how either side closes them, and how the gateway notices that a
//! client has left (RFC 9112 §9).

use std::net::Shutdown;
use std::time::Duration;

use crate::harness::{Client, FORWARD_ALL, Gate, Gateway, Upstream, deadline, measure, patience, until};

/// An upstream whose answers to /slow wait for the gate.
fn gated_upstream(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::scripted(move |exchange| {
        if exchange.seen.target == "/slow" {
            gate.wait();
        }
        exchange.answer(200, &[], exchange.seen.target.clone().as_bytes());
    })
}

fn connected(gateway: &Gateway) -> f64 {
    gateway.metric("sluicegate_connections", &[("listener", "edge")])
}

/// Resets the connection.
fn reset(client: Client) {
    socket2::SockRef::from(&client.reader.stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// A client that sends nothing more gets the answers to all that it sent, however long they take; then the connection
/// ends.
#[test]
fn a_client_that_sends_nothing_more_gets_its_answers() {
    let gate = Gate::default();
    let upstream = gated_upstream(&gate);
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.writer().shutdown(Shutdown::Write).unwrap();
    assert_eq!([client.response().text(), client.response().text()], ["/1", "/2"]);
    assert!(client.is_closed());

    let mut client = gateway.client();
    client.request("GET", "/slow", &[]);
    client.writer().shutdown(Shutdown::Write).unwrap();
    upstream.wait_for(3);
    crate::harness::sleep(Duration::from_millis(1_500)); // long enough to be asked whether it still listens
    gate.open();
    let answers: Vec<_> = std::iter::from_fn(|| client.try_response().ok()).collect();
    assert!(answers.iter().rev().skip(1).all(|interim| interim.status == 100), "{answers:?}");
    assert_eq!(answers.last().unwrap().text(), "/slow");
}

/// A client that sends more after its last request gets the whole answer: to close a socket with bytes that were not read
/// resets the connection.
#[test]
fn late_bytes_do_not_cost_the_last_answer() {
    for late in ["\r\n", "GET /next HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let gate = Gate::default();
        let upstream = gated_upstream(&gate);
        let gateway = Gateway::before(&upstream, FORWARD_ALL);
        let mut client = gateway.client();
        client.request("GET", "/slow", &[("connection", "close")]);
        upstream.wait_for(1);
        client.send(late);
        gate.open();
        assert_eq!(client.response().text(), "/slow");
    }
}

/// A client that closes its connection while the API thinks is gone, whatever it sent before; so is one that resets it.
#[test]
fn a_client_that_leaves_is_noticed() {
    let patient = FORWARD_ALL.replace("]}}", "], timeouts: {response: 1h, idle: 1h}}}");
    for sent_ahead in [0, 1_000, 100_000] {
        for resets in [false, true] {
            let upstream = Upstream::scripted(|exchange| exchange.silence());
            let gateway = Gateway::before(&upstream, &patient);
            let mut client = gateway.client();
            client.request("GET", "/", &[]);
            upstream.wait_for(1);
            client.send(vec![b'x'; sent_ahead]);
            if resets {
                reset(client)
            } else {
                drop(client)
            }
            let what = format!("the upstream connection is closed: {sent_ahead} {resets}");
            until(&what, || (upstream.open() == 0).then_some(()));
            until("nobody is connected", || (connected(&gateway) == 0.0).then_some(()));
            let left = gateway.metric("sluicegate_requests_total", &[("route", "api"), ("code", "499")]);
            assert_eq!(left, 1.0, "{sent_ahead} {resets}");
        }
    }
}

/// The rest of a body that nobody asked for yet does not hide that its client has left the queue.
#[test]
fn a_client_that_leaves_a_queue_is_noticed_behind_its_body() {
    for resets in [false, true] {
        let upstream = Upstream::answering("done");
        let gateway = Gateway::before(
            &upstream,
            "limits: {l: {key: global, rate: 1/h, burst: 3, algorithm: leaky_bucket}}\n\
             upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
             routes: [{name: api, match: {path: /*}, upstream: api, limits: [l]}]\n",
        );
        assert_eq!(gateway.get("/").status, 200);
        let mut client = gateway.client();
        client.request("POST", "/", &[("content-length", "1000")]).send([b'x'; 1_000]);
        let left = || gateway.remaining("l", "any");
        until("it waits", || (left() == 1).then_some(()));
        if resets {
            reset(client)
        } else {
            drop(client)
        }
        until("its turn is free", || (left() == 2).then_some(()));
        assert_eq!(upstream.seen().len(), 1);
    }
}

/// Requests that come before the answer to the one before are answered in order, and their bytes are bounded.
#[test]
fn pipelined_bytes_wait_for_their_turn() {
    let gate = Gate::default();
    let upstream = gated_upstream(&gate);
    let gateway = crate::harness::Setup::default().upstream(&upstream).workers(1).start(FORWARD_ALL);
    let mut client = gateway.client();
    client.request("GET", "/slow", &[]);
    upstream.wait_for(1);
    let all: String = (0..2_000).map(|at| format!("GET /{at} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.send(all);
    // The one worker has looked at them when it has answered another client.
    assert_eq!(gateway.get("/other").text(), "/other");
    assert_eq!(upstream.seen().len(), 2, "one after another");
    gate.open();
    assert_eq!(client.response().text(), "/slow");
    for at in 0..2_000 {
        assert_eq!(client.response().text(), format!("/{at}"));
    }
}

/// The word is `close`, in any line, any case and any company.
#[test]
fn close_is_honoured_in_every_spelling() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    for lines in [
        "Connection: close",
        "Connection: CLOSE",
        "Connection: keep-alive, Close",
        "Connection: x-mine\r\nConnection: close",
        "connection:close ,te",
    ] {
        let mut client = gateway.client();
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n"));
        let answer = client.response();
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")), "{lines}");
        assert!(client.is_closed(), "{lines}");
    }
    let mut client = gateway.client();
    for lines in ["", "Connection: closed\r\n", "Connection: x-close\r\n", "X-Connection: close\r\n"] {
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
        assert_eq!(client.response().header("connection"), None, "{lines}");
    }
}

/// Every answer has a date; that of the API stays.
#[test]
fn every_answer_has_a_date() {
    const THEIRS: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let upstream = Upstream::scripted(|exchange| match exchange.seen.target.as_str() {
        "/dated" => exchange.answer(200, &[("date", THEIRS)], b""),
        _ => exchange.answer(200, &[], b""),
    });
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    assert_eq!(gateway.get("/dated").header("date"), Some(THEIRS));
    let ours = gateway.get("/").header("date").unwrap().to_owned();
    assert!(ours.len() == 29 && ours.ends_with(" GMT"), "{ours}");
}

/// While the gateway drains, the last answer of a connection says that it is the last.
#[test]
fn the_last_answer_says_close() {
    let gate = Gate::default();
    let upstream = gated_upstream(&gate);
    // One worker tells all of them at once.
    let mut gateway = crate::harness::Setup::default().upstream(&upstream).workers(1).start(FORWARD_ALL);
    let mut client = gateway.client();
    assert_eq!(client.get("/").header("connection"), None);
    client.request("GET", "/slow", &[]);
    upstream.wait_for(2);
    let mut idle = gateway.client();
    assert_eq!(idle.get("/").status, 200);
    gateway.signal("TERM");
    assert!(idle.is_closed(), "by then all have been told");
    gate.open();
    let answer = client.response();
    assert_eq!((answer.text().as_str(), answer.header("connection")), ("/slow", Some("close")));
    assert!(client.is_closed());
    assert_eq!(gateway.ended(deadline()).code(), Some(0));
}

/// Connections that say nothing are closed without a word, and no reload closes any other.
#[test]
fn a_silent_connection_is_closed() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let (closed, took) = measure(|| {
        let mut silent = gateway.client();
        silent.reader.stream.set_read_timeout(Some(patience(20))).unwrap();
        silent.is_closed()
    });
    assert!(closed, "after {took:?}");
    assert!(took >= Duration::from_secs(9), "{took:?}");
}
