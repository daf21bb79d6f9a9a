//! Answers to clients when something fails: the right status, a problem document with the id of the request, and no
//! internals.

use std::net::SocketAddr;
use std::time::Duration;

use crate::harness::client::head;
use crate::harness::{Client, Gateway, ReservedPort, Response, Setup, Upstream, deadline, measure, patience};
use socket2::{Domain, Socket, Type};

/// Everything goes to the upstream.
const ALL: &str = "upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
                   routes: [{name: api, match: {path: /*}, upstream: api}]\n";

/// The same, and it has little time.
fn hurried() -> String {
    ALL.replace("\"]}", "\"], timeouts: {connect: 300ms, response: 400ms}}")
}

/// Asserts that an answer is a problem of this status that tells nothing of the inside.
#[track_caller]
fn is_problem(answer: &Response, status: u16, inside: SocketAddr) {
    assert_eq!(answer.status, status, "{answer:?}");
    answer.problem();
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let shown = format!("{:?}{}", answer.head, answer.text());
    for word in [
        inside.ip().to_string(),
        format!(":{}", inside.port()),
        "sluicegate/".into(),
        "src/".into(),
        "hyper".into(),
    ] {
        assert!(!shown.contains(&word), "`{word}` is told in {shown}");
    }
}

/// Nobody listens there: 502, at once.
#[test]
fn an_api_that_is_down_is_502() {
    let nobody = ReservedPort::new();
    let gateway = Setup::default().value("upstream", nobody.address).start(ALL);
    let mut client = gateway.client();
    for _ in 0..3 {
        is_problem(&client.get("/"), 502, nobody.address);
    }
    is_problem(&client.post("/", &[], b"body"), 502, nobody.address);
}

/// An API whose name is not known is down, too.
#[test]
fn an_api_without_an_address_is_502() {
    let gateway = Gateway::start(
        "upstreams: {api: {servers: [\"http://does-not-exist.invalid:9000\"], timeouts: {connect: 5s}}}\n\
         routes: [{name: api, match: {path: /*}, upstream: api}]\n",
    );
    let answer = gateway.get("/");
    assert!(matches!(answer.status, 502 | 504), "{answer:?}");
    assert!(!answer.text().contains("invalid"), "{answer:?}");
}

/// What is no HTTP is no answer: 502.
#[test]
fn an_api_that_speaks_no_http_is_502() {
    for words in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 abc\r\n\r\n",
        "",
        "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
    ] {
        let upstream = Upstream::scripted(move |exchange| {
            exchange.write(words);
            exchange.close();
        });
        let gateway = Gateway::before(&upstream, ALL);
        is_problem(&gateway.get("/"), 502, upstream.address);
        is_problem(&gateway.client().post("/", &[], b"body"), 502, upstream.address);
    }
}

/// An API that resets the connection is 502.
#[test]
fn an_api_that_resets_is_502() {
    let upstream = Upstream::scripted(|exchange| exchange.reset());
    let gateway = Gateway::before(&upstream, ALL);
    is_problem(&gateway.client().post("/", &[], b"body"), 502, upstream.address);
}

/// An API that says nothing is 504, after its `response` timeout and not much later.
#[test]
fn an_api_that_is_silent_is_504() {
    let upstream = Upstream::scripted(|exchange| exchange.silence());
    let gateway = Gateway::before(&upstream, &hurried());
    let mut client = gateway.client();
    for _ in 0..2 {
        let (answer, took) = measure(|| client.get("/"));
        is_problem(&answer, 504, upstream.address);
        assert!((Duration::from_millis(400)..patience(5)).contains(&took), "{took:?}");
    }
    let (answer, took) = measure(|| client.post("/", &[], b"body"));
    is_problem(&answer, 504, upstream.address);
    assert!((Duration::from_millis(400)..patience(5)).contains(&took), "{took:?}");
}

/// An API that cannot even be connected to in time is 504, after its `connect` timeout.
#[test]
fn an_api_that_accepts_nobody_is_504() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let full: Vec<_> =
        (0..3).map(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100))).collect();
    assert!(full.iter().any(Result::is_err), "its queue is full");
    let gateway = Setup::default().value("upstream", address).start(&hurried());
    let (answer, took) = measure(|| gateway.get("/"));
    is_problem(&answer, 504, address);
    assert!((Duration::from_millis(300)..deadline()).contains(&took), "{took:?}");
}

/// An API that takes its time with the body is not too slow as long as something comes.
#[test]
fn an_api_that_keeps_sending_is_not_too_slow() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n");
        for byte in [b"a", b"b", b"c", b"d", b"e"] {
            exchange.pause(Duration::from_millis(340));
            exchange.write(byte);
        }
    });
    let gateway = Gateway::before(&upstream, &hurried().replace("400ms", "1500ms"));
    assert_eq!(gateway.get("/").text(), "abcde");
}

/// A client that stops in the middle of its body is told so: 408, and it is not the API's fault.
#[test]
fn a_client_that_stops_sending_is_408() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, &hurried());
    let mut client = gateway.client();
    client.request("POST", "/", &[("content-length", "10")]).send("half!");
    is_problem(&client.response(), 408, upstream.address);
    assert!(client.is_closed());
}

/// A client that stops in the middle of its head is told so, in the end.
#[test]
fn a_client_that_never_ends_its_head_is_408() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, ALL);
    let mut client = gateway.client();
    client.reader.stream.set_read_timeout(Some(crate::harness::deadline() * 3)).unwrap();
    client.send("GET / HTTP/1.1\r\nHost: api.te");
    is_problem(&client.response(), 408, upstream.address);
    assert!(client.is_closed());
}

/// What no route takes is 404.
#[test]
fn a_request_without_a_route_is_404() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(
        &upstream,
        "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes:\n  \
         - {name: api, match: {path: /v1/*, host: api.test, methods: [GET], headers: {x-version: \"1\"}}, upstream: api}\n",
    );
    let right = [("x-version", "1")];
    assert_eq!(gateway.ask("GET", "/v1/x", &right).status, 200);
    for (method, target, headers) in [
        ("GET", "/v2/x", &right[..]),
        ("POST", "/v1/x", &right),
        ("GET", "/v1/x", &[]),
        ("GET", "/v1/x", &[("x-version", "2")]),
        ("GET", "/v1/x", &[("x-version", "1"), ("host", "other.test")]),
    ] {
        is_problem(&gateway.ask(method, target, headers), 404, upstream.address);
    }
}

/// A gateway with a bound of 1 kB on bodies, and of 10 bytes on one route.
fn bounded(upstream: &Upstream) -> Gateway {
    Gateway::before(
        upstream,
        "max_body: 1KB\nupstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes:\n  \
         - {name: short, match: {path: /short}, upstream: api, max_body: 10}\n  \
         - {name: api, match: {path: /*}, upstream: api}\n",
    )
}

/// A body above `max_body` is 413, told by its length; the API never sees it. One of exactly that length passes.
#[test]
fn a_body_that_is_too_long_is_413() {
    let upstream = Upstream::answering("done");
    let gateway = bounded(&upstream);
    assert_eq!(gateway.client().post("/", &[], &[b'x'; 1_000]).status, 200);
    assert_eq!(gateway.client().post("/short", &[], &[b'x'; 10]).status, 200);
    is_problem(&gateway.client().post("/", &[], &[b'x'; 1_001]), 413, upstream.address);
    is_problem(&gateway.client().post("/short", &[], &[b'x'; 11]), 413, upstream.address);
    assert_eq!(upstream.seen().len(), 2);
}

/// A chunked body above `max_body` is 413 as soon as it is longer; the API never sees a whole request.
#[test]
fn a_chunked_body_that_is_too_long_is_413() {
    let upstream = Upstream::answering("done");
    let gateway = bounded(&upstream);
    let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
    let mut client = gateway.client();
    client.request("POST", "/", &[("transfer-encoding", "chunked")]);
    assert_eq!(
        client.send(chunk.repeat(2) + "0\r\n\r\n").response().status,
        200,
        "exactly as long as allowed"
    );
    client.request("POST", "/", &[("transfer-encoding", "chunked")]).send(chunk.repeat(2) + "1\r\nx\r\n");
    is_problem(&client.response(), 413, upstream.address);
    assert!(upstream.seen().iter().skip(1).all(|seen| seen.body.is_empty()));
}

/// Sends 5 MB before it reads the answer.
#[track_caller]
fn upload(gateway: &Gateway, chunked: bool) -> Response {
    let body = vec![b'x'; 5_000_000];
    let mut client = gateway.client();
    let sent = if chunked {
        client.request("POST", "/", &[("transfer-encoding", "chunked")]);
        client.try_send([b"4c4b40\r\n", &body[..], b"\r\n0\r\n\r\n"].concat())
    } else {
        client.request("POST", "/", &[("content-length", "5000000")]);
        client.try_send(&body)
    };
    assert!(sent.is_ok(), "the gateway reads what it does not want, chunked {chunked}: {sent:?}");
    client.response()
}

/// The 413 reaches a client that sends all of 5 MB before it reads.
#[test]
fn a_413_reaches_a_client_that_uploads_before_it_reads() {
    let upstream = Upstream::answering("done");
    let gateway = bounded(&upstream);
    is_problem(&upload(&gateway, false), 413, upstream.address);
    is_problem(&upload(&gateway, true), 413, upstream.address);
}

/// The 502 of an API that is down reaches it too.
#[test]
fn a_502_reaches_a_client_that_uploads_before_it_reads() {
    let nobody = ReservedPort::new();
    let gateway = Setup::default().value("upstream", nobody.address).start(ALL);
    is_problem(&upload(&gateway, false), 502, nobody.address);
    is_problem(&upload(&gateway, true), 502, nobody.address);
}

/// A client that waits for leave to send too long a body gets the 413 instead.
#[test]
fn a_body_that_is_too_long_is_not_asked_for() {
    let upstream = Upstream::answering("done");
    let gateway = bounded(&upstream);
    let mut client = gateway.client();
    client.request("POST", "/", &[("content-length", "5000000"), ("expect", "100-continue")]);
    is_problem(&client.response(), 413, upstream.address);
}

/// A head that is too large is 431, in one line or in many.
#[test]
fn a_head_that_is_too_large_is_431() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, ALL);
    let many: Vec<(String, String)> = (0..2_000).map(|at| (format!("x-{at}"), "y".repeat(40))).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    for bytes in [
        head("GET", "/", &[("x-large", &"x".repeat(100_000))]),
        head("GET", "/", &[("cookie", &"x".repeat(40_000))]),
        head("GET", "/", &many),
        head("GET", "/", &many[..500]),
    ] {
        let mut client = gateway.client();
        let _ = client.try_send(bytes); // it need not take all of it
        is_problem(&client.response(), 431, upstream.address);
        assert!(client.is_closed());
    }
    let mut client = gateway.client();
    let _ = client.try_send(head("GET", &format!("/{}", "x".repeat(100_000)), &[]));
    let answer = client.response();
    assert!(matches!(answer.status, 414 | 431), "{answer:?}");
    answer.problem();
    assert_eq!(upstream.seen().len(), 0);
    assert_eq!(
        gateway.ask("GET", "/", &[("x-large", &"x".repeat(20_000))]).status,
        200,
        "32 KiB are allowed"
    );
}

/// What is no HTTP/1.1 is 400, and the connection ends.
#[test]
fn bytes_that_are_no_request_are_400() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, ALL);
    for bytes in [
        "GARBAGE\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\nHost: a\r\n\r\n",
        "GET / FTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nbad name: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nx: \x01\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: ten\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03\x03\r\n\r\n",
        "G@T / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client = gateway.client();
        client.send(bytes);
        is_problem(&client.response(), 400, upstream.address);
        assert!(client.is_closed(), "{bytes:?}");
    }
    assert_eq!(upstream.seen().len(), 0);
}

/// A body whose chunks are malformed is the client's mistake: 400, and the API gets no whole request of it.
#[test]
fn a_malformed_body_is_400() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, ALL);
    let mut client: Client = gateway.client();
    client.request("POST", "/", &[("transfer-encoding", "chunked")]).send("5\r\nhello\r\nxyz\r\n\r\n");
    is_problem(&client.response(), 400, upstream.address);
}
