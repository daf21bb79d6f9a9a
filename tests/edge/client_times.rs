//! Timeouts and size limits for clients as configured. The defaults are longer than a test waits.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use crate::harness::h2::{End, H2, WINDOW_UPDATE, frame, get};
use crate::harness::{
    Client, Gateway, Setup, Stopwatch, Upstream, gated_upstream, patience, sleep, until, within,
};

const API: &str = "upstreams: {api: {servers: [\"http://{upstream}\"]}}\n";
const ROUTE: &str = "routes: [{name: api, match: {path: /*}, upstream: api}]\n";

/// A head that does not come to its end is answered 408, and an idle connection is closed.
#[test]
fn heads_and_idle_connections_time_out() {
    let gateway = Gateway::start(
        "timeouts: {head: 500ms, idle: 500ms}\nroutes: [{name: all, respond: {status: 200}}]\n",
    );
    let watch = Stopwatch::start();
    let mut slow = Client::quick(gateway.edge, "GET / HTTP/1.1\r\nHost: a");
    assert_eq!(slow.response().status, 408);
    assert!(slow.is_closed());
    let mut idle = Client::quick(gateway.edge, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(idle.response().status, 200);
    assert!(idle.is_closed());
    assert!(gateway.client().is_closed(), "one that says nothing");
    assert!(watch.elapsed() < Duration::from_secs(9), "sooner than usual: {:?}", watch.elapsed());
}

/// A body that stops coming is answered 408.
#[test]
fn bodies_time_out() {
    let upstream = Upstream::answering("done");
    let text = format!("timeouts: {{body: 500ms}}\n{API}{ROUTE}");
    let gateway = Setup::default().upstream(&upstream).start(&text);
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    assert_eq!(client.response().status, 408);
}

/// A request is over in time, whoever it waits for: 504 before the answer has begun, broken off behind that.
#[test]
fn requests_time_out() {
    let (upstream, gate) = gated_upstream();
    let text = format!("timeouts: {{request: 100ms}}\n{API}{ROUTE}");
    let gateway = Setup::default().upstream(&upstream).start(&text);
    assert_eq!(gateway.get("/slow").status, 504);
    gate.open();

    // An answer that never stops coming, byte by byte, and a route of its own.
    let upstream = Upstream::scripted(|exchange| {
        exchange.body().unwrap();
        exchange.write("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        while exchange.write("x") {
            exchange.pause(Duration::from_millis(20));
        }
    });
    let route = "routes: [{name: api, match: {path: /*}, upstream: api, timeout: 1800ms}]\n";
    let gateway = Setup::default().upstream(&upstream).start(&format!("{API}{route}"));
    let mut client = gateway.client();
    client.request("GET", "/", &[]);
    assert!(client.try_response().is_err(), "it is broken off");
    assert_eq!(gateway.metric("sluicegate_requests_total", &[("route", "api"), ("code", "200")]), 1.0);
}

/// A client that takes its answer more slowly than it may loses it, over HTTP/1.1 and HTTP/2. An answer of which nothing
/// waits to be sent may take its time.
#[test]
fn clients_that_read_too_slowly_lose_their_answer() {
    let upstream = Upstream::scripted(|exchange| {
        if exchange.seen.target == "/events" {
            exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
            for _ in 0..14 {
                exchange.write("1\r\nx\r\n");
                exchange.pause(Duration::from_secs(1));
            }
            exchange.write("0\r\n\r\n");
        } else {
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n");
            while exchange.write([b'x'; 64 << 10]) {}
        }
    });
    let gateway = Setup::default().upstream(&upstream).start(&format!("min_send_rate: 1MiB\n{API}{ROUTE}"));
    let mut events = gateway.client();
    events.request("GET", "/events", &[]);
    let mut slow = gateway.client();
    slow.request("GET", "/", &[]);
    let mut reader = slow.writer();
    let reading = std::thread::spawn(move || {
        while let Ok(1..) = reader.read(&mut [0; 16 << 10]) {
            sleep(Duration::from_millis(100));
        }
    });
    let mut h2 = H2::connect(gateway.edge);
    h2.send(get(1, "/"));
    assert_eq!(h2.end(1), End::Status(200));
    let reset = within(patience(40), || {
        let some = 1_000_u32.to_be_bytes();
        h2.send([frame(WINDOW_UPDATE, 0, 1, &some), frame(WINDOW_UPDATE, 0, 0, &some)].concat());
        h2.end_of(1, Duration::from_millis(500))
    });
    assert_eq!(reset, Some(End::Reset(8)));
    let open = within(patience(40), || (upstream.open() <= 1).then_some(()));
    assert!(open.is_some(), "the one that reads slowly still gets its answer");
    slow.reader.stream.shutdown(std::net::Shutdown::Both).unwrap();
    reading.join().unwrap();
    assert_eq!(events.response().text(), "x".repeat(14));
}

/// An answer without a length that is broken off ends in a reset: its end would look like that of a whole one.
#[test]
fn an_answer_without_a_length_is_aborted_by_a_reset() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        while exchange.write([&b"10000\r\n"[..], &[b'x'; 64 << 10], b"\r\n"].concat()) {}
    });
    let gateway =
        Setup::default().upstream(&upstream).start(&format!("timeouts: {{write: 1s}}\n{API}{ROUTE}"));
    let mut client = gateway.client();
    client.send("GET / HTTP/1.0\r\nHost: api.test\r\n\r\n");
    until("it is broken off", || (!upstream.seen().is_empty() && upstream.open() == 0).then_some(()));
    let mut all = Vec::new();
    let end = client.writer().read_to_end(&mut all).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset), "after {} bytes", all.len());
}

/// More headers than allowed are answered 431.
#[test]
fn headers_are_counted() {
    let gateway =
        Gateway::start("max_headers: 20\nroutes: [{name: all, match: {path: /*}, respond: {status: 200}}]\n");
    let headers: Vec<(String, String)> = (0..30).map(|n| (format!("x-{n}"), "y".to_owned())).collect();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(gateway.ask("GET", "/", &headers[..15]).status, 200);
    assert_eq!(gateway.ask("GET", "/", &headers).status, 431);
}
