//! Bodies over HTTP/1.1: complete or refused, requested with 100 (Continue) only when needed, and awaited for a
//! bounded time; answers are framed as their method, status and version require (RFC 9110 §6.4, §10.1.1; RFC 9112 §6,
//! §7).

use std::time::Duration;

use crate::harness::{FORWARD_ALL, Gate, Gateway, Stopwatch, Upstream, patience, sleep, until};

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A chunk that is malformed is the client's mistake: 400, the connection ends, and the API gets no whole request.
#[test]
fn a_malformed_chunk_is_400() {
    let upstream = Upstream::echoing();
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let long = format!("5;a={}\r\nhello\r\n0\r\n\r\n", "x".repeat(5_000));
    let bodies: &[&[u8]] = &[
        b"x\r\n",
        b"\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloworld\r\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5;a\0\r\nhello\r\n0\r\n\r\n",
        b"5;a\x01\r\nhello\r\n0\r\n\r\n",
        b"5;a\nb\r\nhello\r\n0\r\n\r\n",
        b"5;\r\nhello\r\n0\r\n\r\n",
        b"5;;a\r\nhello\r\n0\r\n\r\n",
        b"5;a=\r\nhello\r\n0\r\n\r\n",
        b"5;a b\r\nhello\r\n0\r\n\r\n",
        b"5;a=\"b\r\nhello\r\n0\r\n\r\n",
        b"5;a=\"b\nc\"\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0;=\r\n\r\n",
        b"10000000000000005\r\nhello\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\n",
        b"5\r\nhello\r\n0\r\nno colon\r\n\r\n",
        b"5\r\nhello\r\n0\r\nX : y\r\n\r\n",
        b"5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n",
        b"5\r\nhello\r\n0\r\nX: a\n\r\n",
        b"5\r\nhello\r\n0\r\n\n",
        long.as_bytes(),
    ];
    for body in bodies {
        let shown = String::from_utf8_lossy(body);
        let mut client = gateway.client();
        client.send([CHUNKED.as_bytes(), body].concat());
        let answer = client.response();
        assert_eq!(answer.status, 400, "{shown:?}");
        answer.problem();
        assert!(client.is_closed(), "{shown:?}");
    }
    assert!(upstream.seen().iter().all(|seen| seen.body.is_empty()), "one was taken for whole");
    let counted = gateway.metric("sluicegate_requests_total", &[("route", "api"), ("code", "400")]);
    assert_eq!(counted, bodies.len() as f64);
}

/// A body that ends before its length does is 400 to a client that still listens.
#[test]
fn a_body_that_ends_early_is_400() {
    let upstream = Upstream::echoing();
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    for head in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
        let mut client = gateway.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n5\r\nhe"));
        client.writer().shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.response().status, 400, "{head}");
        assert!(client.is_closed());
    }
    assert!(upstream.seen().iter().all(|seen| seen.body.is_empty()));
}

/// The length is what counts: what comes behind a body is the next request.
#[test]
fn bytes_after_a_body_are_the_next_request() {
    let upstream = Upstream::echoing();
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    client.send("POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloPOST /2 HTTP/1.1\r\nHost: a\r\ntransfer-encoding: CHUNKED\r\n\r\n3;x=\"y\"\r\nbye\r\n0\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "hello");
    assert_eq!(client.response().text(), "bye");
    assert_eq!(client.response().status, 200);
    let targets: Vec<String> = upstream.seen().iter().map(|seen| seen.target.clone()).collect();
    assert_eq!(targets, ["/1", "/2", "/3"]);
    for seen in upstream.seen() {
        assert!(!seen.head.headers.iter().any(|(_, value)| value.contains("CHUNKED") || value.contains('"')));
    }
}

/// Trailers that would say something else of the request do not reach the API.
#[test]
fn a_trailer_does_not_change_the_request() {
    let upstream = Upstream::echoing();
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    client.request(
        "POST",
        "/",
        &[
            ("transfer-encoding", "chunked"),
            ("trailer", "x-sum, host, content-length, authorization, x-forwarded-for, transfer-encoding"),
            ("trailer", "cf-connecting-ip, true_client_ip, x-http-method-override"),
        ],
    );
    client.send(
        "1\r\nx\r\n0\r\nx-sum: 7\r\nHost: evil\r\nContent-Length: 5\r\nAuthorization: Basic x\r\n\
         X-Forwarded-For: 1.2.3.4\r\nTransfer-Encoding: chunked\r\nCF-Connecting-IP: 1.2.3.4\r\n\
         True_Client_IP: 1.2.3.4\r\nX-HTTP-Method-Override: DELETE\r\n\r\n",
    );
    assert_eq!(client.response().text(), "x");
    let seen = upstream.last();
    assert_eq!((seen.head.one("x-sum"), seen.head.one("host")), (Some("7"), Some("api.test")));
    for name in ["authorization", "cf-connecting-ip", "true_client_ip", "x-http-method-override"] {
        assert_eq!(seen.head.one(name), None, "{name}");
    }
    assert_eq!(seen.head.one("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.head.one("content-length"), None);
}

/// A body that comes with a byte now and then is cut off, before its time is up that it could take at that pace.
#[test]
fn a_body_that_trickles_is_408() {
    let upstream = Upstream::scripted(|exchange| {
        while exchange.read_some(1 << 10) > 0 {}
        exchange.close();
    });
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    client.reader.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let watch = Stopwatch::start();
    client.request("POST", "/", &[("content-length", "1000")]);
    let mut writer = client.writer();
    let trickle = std::thread::spawn(move || {
        for _ in 0..40 {
            if std::io::Write::write_all(&mut writer, b"x").is_err() {
                return;
            }
            sleep(Duration::from_millis(500));
        }
    });
    let answer = client.response();
    let took = watch.elapsed();
    assert_eq!(answer.status, 408);
    answer.problem();
    assert!((Duration::from_secs(9)..patience(15)).contains(&took), "{took:?}");
    client.reader.stream.shutdown(std::net::Shutdown::Both).unwrap();
    trickle.join().unwrap();
}

/// A client that waits for leave to send is told to go on when the API takes the body, and not before; one of HTTP/1.0
/// is never told, and one that sends without waiting need not be.
#[test]
fn continue_is_sent_when_the_body_is_needed() {
    let upstream = Upstream::echoing();
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    client.send("POST / HTTP/1.0\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: keep-alive\r\n\r\n");
    client.send("hi");
    assert_eq!(client.response().text(), "hi");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n\r\nhi");
    let first = client.response();
    let last = if first.status == 100 { client.response() } else { first };
    assert_eq!(last.text(), "hi");
    client.send("GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.response().status, 200, "there is nothing to give leave for");
}

/// Answers to HTTP/1.0 have a length or end with the connection, never chunks; and the connection lives on only where
/// it was asked to and can.
#[test]
fn a_client_of_http_1_0_gets_no_chunks() {
    let upstream = Upstream::scripted(|exchange| match exchange.seen.target.as_str() {
        "/chunked" => {
            _ = exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n")
        }
        _ => exchange.answer(200, &[], b"body"),
    });
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    for _ in 0..3 {
        client.send("GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
        let answer = client.response();
        assert_eq!((answer.text().as_str(), answer.header("connection")), ("body", Some("keep-alive")));
    }
    client.send("GET /chunked HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
    let answer = client.response();
    assert_eq!((answer.text().as_str(), answer.header("transfer-encoding")), ("body", None));
    assert_eq!(answer.header("connection"), Some("close"));
    for lines in ["", "Connection: close\r\n", "Connection: keep-alive, close\r\n"] {
        let mut client = gateway.client();
        client.send(format!("GET / HTTP/1.0\r\nHost: a\r\n{lines}\r\n"));
        let answer = client.response();
        assert_eq!((answer.text().as_str(), answer.header("connection")), ("body", Some("close")), "{lines}");
        assert!(client.is_closed());
    }
}

/// An answer that breaks off where only the end of the connection tells its end is seen to break off.
#[test]
fn a_client_of_http_1_0_sees_an_answer_break_off() {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::scripted(move |exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n");
        waits.wait();
        exchange.close();
    });
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    let head = client.reader.head().unwrap().unwrap();
    assert_eq!(client.reader.exactly(4).unwrap(), b"body");
    gate.open();
    let rest = client.reader.body(&head, true);
    assert!(rest.is_err(), "it looks whole: {rest:?}");
}

/// What a server says of an answer that has no body does not frame one, and cannot split the answer.
#[test]
fn answers_without_a_body_have_none() {
    let upstream = Upstream::scripted(|exchange| {
        let target = exchange.seen.target.clone();
        let head = match target.as_str() {
            "/204" => "HTTP/1.1 204 No Content\r\nx-mine: 1",
            "/304" => "HTTP/1.1 304 Not Modified\r\ncontent-length: 7",
            _ => "HTTP/1.1 200 OK\r\ncontent-length: 7",
        };
        exchange.write(format!("{head}\r\n\r\n"));
    });
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    for _ in 0..2 {
        let answer = client.get("/204");
        assert_eq!((answer.status, answer.header("content-length")), (204, None));
        assert_eq!(answer.header("transfer-encoding"), None);
        assert_eq!(
            (client.get("/304").status, client.get("/304").header("content-length")),
            (304, Some("7"))
        );
        assert_eq!(client.ask("HEAD", "/", &[]).header("content-length"), Some("7"));
    }
}

/// The rest of a body that was answered early is read and thrown away; then the connection lives on, or it has ended in
/// an orderly way.
#[test]
fn an_early_answer_reaches_a_client_that_still_sends() {
    let gateway = Gateway::start(
        "limits: {l: {key: ip, rate: 1/h}}\nroutes: [{name: own, match: {path: /*}, respond: {status: 200}, limits: [l]}]\n",
    );
    let mut client = gateway.client();
    assert_eq!(client.post("/", &[], b"first").status, 200);
    for _ in 0..3 {
        assert_eq!(client.post("/", &[], &vec![b'x'; 3_000_000]).status, 429);
    }
    let mut large = gateway.client();
    large.request("POST", "/", &[("content-length", "20000000")]);
    let answer = large.response();
    assert_eq!(
        (answer.status, answer.header("connection")),
        (429, Some("close")),
        "it is too much to throw away"
    );
    let mut bad = gateway.client();
    bad.request("POST", "/", &[("transfer-encoding", "chunked")]).send("zz\r\n");
    assert_eq!(bad.response().status, 429);
    assert!(bad.is_closed(), "nobody knows where the next request begins");
}

/// Leave that was not given is not waited for: the refusal comes at once, and the connection ends, since nobody knows
/// whether the body will come.
#[test]
fn a_refused_client_gets_no_continue() {
    let gateway = Gateway::start(
        "limits: {l: {key: ip, rate: 1/h}}\nroutes: [{name: own, match: {path: /*}, respond: {status: 200}, limits: [l]}]\n",
    );
    assert_eq!(gateway.get("/").status, 200);
    let mut client = gateway.client();
    client.request("POST", "/", &[("content-length", "10"), ("expect", "100-continue")]);
    let answer = client.response();
    assert_eq!(answer.status, 429);
    assert!(client.is_closed());
    until("nobody is connected", || {
        drop(gateway.client());
        (gateway.metric("sluicegate_connections", &[("listener", "edge")]) <= 1.0).then_some(())
    });
}
