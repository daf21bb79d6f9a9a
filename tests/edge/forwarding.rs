//! Forwarding: the API gets the request and the client gets the answer, whole, streamed, and over connections that
//! are reused.

use std::time::Duration;

use crate::harness::{Client, FORWARD_ALL, Gate, Gateway, Stopwatch, Upstream, until};

/// An upstream that answers with what it got.
fn echo() -> Upstream {
    Upstream::scripted(|exchange| {
        let Ok(body) = exchange.body() else { return exchange.close() };
        exchange.answer(200, &[("x-method", &exchange.seen.method.clone())], &body);
    })
}

/// Method, path, query and body arrive as they were sent, and the answer comes back.
#[test]
fn a_request_arrives_as_it_was_sent() {
    let upstream = echo();
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"] {
        let mut client = gateway.client();
        let target = "/v1/items/a%20b;c=d?x=1&y=%2F..//&z";
        let answer = client
            .request(method, target, &[("content-length", "5"), ("x-mine", "one")])
            .send("hello")
            .response();
        assert_eq!(
            (answer.status, answer.text().as_str(), answer.header("x-method")),
            (200, "hello", Some(method))
        );
        let seen = upstream.last();
        assert_eq!((seen.method.as_str(), seen.target.as_str()), (method, target));
        assert_eq!((seen.body.as_slice(), seen.head.one("x-mine")), (&b"hello"[..], Some("one")));
        assert_eq!(seen.head.one("host"), Some("api.test"));
    }
}

/// Headers of the answer come back, also those that are there several times, in their order.
#[test]
fn an_answer_comes_back_as_it_was_given() {
    let upstream = Upstream::scripted(|exchange| {
        let headers =
            [("set-cookie", "a=1"), ("set-cookie", "b=2"), ("content-type", "text/x"), ("x-empty", "")];
        exchange.answer(418, &headers, b"\x00\xff binary");
    });
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let answer = gateway.get("/");
    assert_eq!((answer.status, answer.body.as_slice()), (418, &b"\x00\xff binary"[..]));
    assert_eq!(answer.head.all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!((answer.header("content-type"), answer.header("x-empty")), (Some("text/x"), Some("")));
}

/// Connections are kept on both sides: requests one after another, with a body or without, need one of each.
#[test]
fn connections_are_kept_on_both_sides() {
    let upstream = echo();
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    for _ in 0..20 {
        assert_eq!(client.post("/", &[], b"body").text(), "body");
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!((upstream.connections(), upstream.seen().len()), (1, 40));
}

/// Requests that are sent without waiting for answers are answered in order.
#[test]
fn pipelined_requests_are_answered_in_order() {
    let upstream =
        Upstream::scripted(|exchange| exchange.answer(200, &[], exchange.seen.target.clone().as_bytes()));
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    let all: String = (0..10).map(|at| format!("GET /{at} HTTP/1.1\r\nHost: api.test\r\n\r\n")).collect();
    client.send(all);
    for at in 0..10 {
        assert_eq!(client.response().text(), format!("/{at}"));
    }
}

/// A client that asks for the end of the connection gets it; one of HTTP/1.0 too, unless it asks to keep it.
#[test]
fn a_client_can_end_its_connection() {
    let upstream = echo();
    let gateway = Gateway::before(&upstream, &format!("workers: 1\n{FORWARD_ALL}"));
    let mut client = gateway.client();
    assert_eq!(client.ask("GET", "/", &[("connection", "close")]).status, 200);
    assert!(client.is_closed());
    let mut old = gateway.client();
    old.send("GET / HTTP/1.0\r\nHost: api.test\r\n\r\n");
    let head = old.reader.head().unwrap().unwrap();
    assert!(head.first.contains(" 200 "), "{head:?}");
    assert!(old.is_closed());
    assert_eq!(
        upstream.connections(),
        1,
        "what the client wants of its own connection does not concern the other"
    );
}

/// A chunked request streams: the API has the first chunk before the client has sent the last.
#[test]
fn a_chunked_request_streams_through() {
    let upstream = Upstream::scripted(|exchange| {
        let first = exchange.read_some(1 << 10);
        exchange.write(format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nfirst {}\n", first > 0));
        exchange.close();
    });
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    client.request("POST", "/", &[("transfer-encoding", "chunked")]).send("5\r\nhello\r\n");
    let head = client.reader.head().unwrap().unwrap();
    assert!(head.first.contains(" 200 "), "{head:?}");
    assert_eq!(upstream.last().head.one("transfer-encoding"), Some("chunked"));
}

/// The whole of a chunked body arrives, and the connection lives on.
#[test]
fn a_chunked_request_arrives_whole() {
    let upstream = echo();
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    client.request("POST", "/", &[("transfer-encoding", "chunked")]);
    client.send("5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\n\r\n");
    assert_eq!(client.response().text(), "hello world");
    assert_eq!(client.get("/").status, 200);
}

/// An answer streams: the client has its first part before the API has sent the last.
#[test]
fn an_answer_streams_through() {
    let gate = Gate::default();
    let opened = gate.clone();
    let upstream = Upstream::scripted(move |exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n");
        opened.wait();
        exchange.write("4\r\nlast\r\n0\r\n\r\n");
    });
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    client.request("GET", "/", &[]);
    let head = client.reader.head().unwrap().unwrap();
    assert_eq!(client.reader.exactly(10).unwrap(), b"5\r\nfirst\r\n");
    gate.open();
    assert_eq!(client.reader.body(&head, false).unwrap().0, b"last");
}

/// An answer without a length ends with the upstream's connection and comes whole.
#[test]
fn an_answer_without_a_length_comes_whole() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.0 200 OK\r\n\r\nup to the end");
        exchange.close();
    });
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    assert_eq!(client.get("/").text(), "up to the end");
    assert_eq!(client.get("/").text(), "up to the end", "the client's connection lives on");
}

/// Trailers of the API reach a client that takes them.
#[test]
fn trailers_reach_a_client_that_asked_for_them() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum, grpc-status\r\n\r\n\
             4\r\nbody\r\n0\r\nx-sum: abc\r\ngrpc-status: 0\r\n\r\n",
        );
    });
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    for headers in [
        [("te", "trailers"), ("connection", "te")],
        [("te", "deflate;q=0.5, trailers"), ("connection", "te")],
    ] {
        let answer = client.ask("GET", "/", &headers);
        assert_eq!(answer.text(), "body");
        let value =
            |name| answer.trailers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert_eq!((value("x-sum"), value("grpc-status")), (Some("abc"), Some("0")), "{headers:?}");
        assert_eq!(upstream.last().head.one("te"), None, "it is for one connection");
    }
    let answer = client.get("/");
    assert_eq!((answer.text().as_str(), answer.trailers.len()), ("body", 0), "nobody else gets them");
}

/// Trailers of a request reach the API.
#[test]
fn trailers_of_a_request_reach_the_api() {
    let upstream = echo();
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    client.request("POST", "/", &[("transfer-encoding", "chunked"), ("trailer", "x-sum")]);
    client.send("4\r\nbody\r\n0\r\nx-sum: abc\r\n\r\n");
    assert_eq!(client.response().text(), "body");
    assert_eq!(upstream.last().head.one("x-sum"), Some("abc"));
}

/// A client that waits for leave to send its body gets it, once there is somebody to take it.
#[test]
fn a_client_that_expects_100_continue_is_told_to() {
    let upstream = echo();
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    for _ in 0..3 {
        client.request("POST", "/", &[("content-length", "4"), ("expect", "100-continue")]);
        assert_eq!(client.response().status, 100);
        assert_eq!(client.send("body").response().text(), "body");
        assert_eq!(upstream.last().head.one("expect"), None, "that was between the client and the gateway");
    }
}

/// Answers to HEAD have the length and no body; 204 and 304 have neither; all keep both connections.
#[test]
fn answers_without_a_body_keep_the_connections() {
    let upstream =
        Upstream::scripted(|exchange| match (exchange.seen.method.as_str(), exchange.seen.target.as_str()) {
            ("HEAD", _) => {
                _ = exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\netag: \"x\"\r\n\r\n")
            }
            (_, "/204") => _ = exchange.write("HTTP/1.1 204 No Content\r\n\r\n"),
            (_, "/304") => {
                _ = exchange.write("HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\ncontent-length: 1234\r\n\r\n")
            }
            _ => exchange.answer(200, &[], b""),
        });
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    for _ in 0..3 {
        let head = client.ask("HEAD", "/", &[]);
        assert_eq!(
            (head.status, head.header("content-length"), head.header("etag")),
            (200, Some("1234"), Some("\"x\""))
        );
        let none = client.get("/204");
        assert_eq!(
            (none.status, none.header("content-length"), none.header("transfer-encoding")),
            (204, None, None)
        );
        let same = client.get("/304");
        assert_eq!(
            (same.status, same.header("etag"), same.header("transfer-encoding")),
            (304, Some("\"x\""), None)
        );
        let empty = client.get("/");
        assert_eq!((empty.status, empty.header("content-length")), (200, Some("0")));
    }
    assert_eq!(upstream.connections(), 1);
}

/// Requests go to all servers of an upstream, as often as their weights say.
#[test]
fn requests_are_spread_over_the_servers() {
    let (one, two) = (Upstream::answering("one"), Upstream::answering("two"));
    let gateway = crate::harness::Setup::default()
        .value("one", one.address)
        .value("two", two.address)
        .workers(1)
        .start(
            "upstreams: {api: {servers: [\"http://{one}\", {url: \"http://{two}\", weight: 2}]}}\n\
         routes: [{name: api, match: {path: /*}, upstream: api}]\n",
        );
    let mut client = gateway.client();
    (0..30).for_each(|_| assert_eq!(client.get("/").status, 200));
    assert_eq!((one.seen().len(), two.seen().len()), (10, 20));
}

/// Of two clients neither waits for the other's slow answer, and each gets its own.
#[test]
fn clients_do_not_wait_for_each_other() {
    let gate = Gate::default();
    let opened = gate.clone();
    let upstream = Upstream::scripted(move |exchange| {
        if exchange.seen.target == "/slow" {
            opened.wait();
        }
        exchange.answer(200, &[], exchange.seen.target.clone().as_bytes());
    });
    let gateway = crate::harness::Setup::default().upstream(&upstream).workers(1).start(FORWARD_ALL);
    let mut slow: Vec<Client> = (0..8).map(|_| gateway.client()).collect();
    slow.iter_mut().for_each(|client| _ = client.request("GET", "/slow", &[]));
    upstream.wait_for(8);
    assert_eq!(gateway.get("/quick").text(), "/quick");
    gate.open();
    slow.iter_mut().for_each(|client| assert_eq!(client.response().text(), "/slow"));
}

/// An idle connection that the API may use again is closed with the gateway's patience, not before.
#[test]
fn a_kept_upstream_connection_ends_when_it_is_idle() {
    let upstream = echo();
    let gateway = Gateway::before(
        &upstream,
        "upstreams: {api: {servers: [\"http://{upstream}\"], timeouts: {keep_alive: 2s}}}\n\
         routes: [{name: api, match: {path: /*}, upstream: api}]\n",
    );
    let watch = Stopwatch::start();
    assert_eq!(gateway.get("/").status, 200);
    until("the idle connection is closed", || (upstream.open() == 0).then_some(()));
    // The time counts from the worker's last look at the clock, which a busy machine delays.
    assert!(watch.elapsed() >= Duration::from_millis(500), "{:?}", watch.elapsed());
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(upstream.connections(), 2);
}
