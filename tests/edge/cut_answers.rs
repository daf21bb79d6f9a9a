//! An answer that ends before its end says why, in the access log and in the metrics: the upstream, a timeout, or the client.

use std::io::Read;
use std::time::Duration;

use serde_json::Value;

use crate::harness::h2::{DATA, H2, RST_STREAM, frame, get, stream};
use crate::harness::{Exchange, Gateway, Upstream, deadline, until};

const FILE: &str = "access_log: access.log\n\
    upstreams: {api: {servers: [\"http://{upstream}\"], timeouts: {idle: 400ms}}}\n\
    routes:\n  - {name: total, match: {path: /total}, upstream: api, timeout: 300ms}\n  \
      - {name: api, match: {path: /*}, upstream: api}\n";

/// The head of an answer and some of its body, which are on their way before anything else happens.
fn begin(exchange: &mut Exchange<'_>, framing: &str, part: &str) {
    exchange.write(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{part}"));
    exchange.pause(Duration::from_millis(50));
}

fn upstream() -> Upstream {
    Upstream::scripted(|exchange| {
        let (length, chunked) = ("content-length: 100", "transfer-encoding: chunked");
        match exchange.seen.target.as_str() {
            "/reset" => {
                begin(exchange, length, "0123456789");
                exchange.reset();
            }
            "/closed" => {
                begin(exchange, length, "0123456789");
                exchange.close();
            }
            "/malformed" => {
                begin(exchange, chunked, "a\r\n0123456789\r\n");
                exchange.write("nothing\r\n");
                exchange.silence();
            }
            "/idle" | "/upload" => {
                begin(exchange, chunked, "a\r\n0123456789\r\n");
                exchange.silence();
            }
            "/total" | "/left" => {
                begin(exchange, chunked, "");
                while exchange.write("a\r\n0123456789\r\n") {
                    exchange.pause(Duration::from_millis(20));
                }
            }
            _ => exchange.answer(200, &[], b"whole"),
        }
    })
}

/// The line of the access log with this path.
fn line(gateway: &Gateway, path: &str) -> Value {
    until("the line is written", || {
        let text = std::fs::read_to_string(gateway.path("access.log")).ok()?;
        let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["path"] == path)
    })
}

#[test]
fn an_answer_that_is_cut_says_why() {
    let upstream = upstream();
    let gateway = Gateway::before(&upstream, FILE);
    for (path, reason, error) in [
        ("/reset", "upstream_reset", Some("in the middle of its response")),
        ("/closed", "upstream_closed", Some("in the middle of its response")),
        ("/malformed", "upstream_malformed", Some("chunk")),
        ("/idle", "upstream_idle", Some("stopped in the middle")),
        ("/total", "total_timeout", Some("stopped in the middle")),
        ("/left", "client_left", None),
    ] {
        let route = if path == "/total" { "total" } else { "api" };
        let count =
            || gateway.metric("sluicegate_responses_cut_total", &[("route", route), ("reason", reason)]);
        assert_eq!(count(), 0.0, "{path}");
        let mut client = gateway.client();
        client.request("GET", path, &[]);
        match reason {
            "client_left" => {
                assert!(client.writer().read(&mut [0; 64]).unwrap() > 0);
                drop(client);
            }
            _ => assert!(client.try_response().is_err(), "{path}"),
        }
        let line = line(&gateway, path);
        assert_eq!((&line["status"], &line["complete"]), (&200.into(), &false.into()), "{line}");
        assert_eq!(line["cut"], reason, "{line}");
        assert_eq!(line["upstream_error"].as_str().is_some(), error.is_some(), "{line}");
        assert!(error.is_none_or(|error| line["upstream_error"].as_str().unwrap().contains(error)), "{line}");
        assert_eq!(count(), 1.0, "{path}");
        let id = line["request_id"].as_str().unwrap();
        let shown = gateway.admin_get(&format!("/explain?request={id}")).text();
        assert!(shown.contains(&format!(" bytes: {reason}")), "{shown}");
        assert!(error.is_none_or(|error| shown.contains(error)), "{shown}");
    }
    for method in ["GET", "HEAD"] {
        assert_eq!(gateway.ask(method, &format!("/{method}"), &[]).status, 200);
        let line = line(&gateway, &format!("/{method}"));
        assert_eq!((&line["cut"], &line["complete"]), (&Value::Null, &true.into()), "{line}");
    }
    let count = |route| {
        gateway.metric("sluicegate_responses_cut_total", &[("route", route), ("reason", "client_left")])
    };
    assert_eq!((count("api"), count("total")), (1.0, 0.0), "nothing else was cut");
}

/// Over HTTP/2 a stream that is cut is reset, and others go on. A stream that the client resets is one that it has left.
#[test]
fn a_stream_that_is_cut_says_why() {
    const CANCEL: u32 = 8;
    let upstream = upstream();
    let gateway = Gateway::before(&upstream, FILE);
    let mut h2 = H2::connect(gateway.edge);
    let cuts = [
        ("/reset", "upstream_reset"),
        ("/closed", "upstream_closed"),
        ("/malformed", "upstream_malformed"),
        ("/idle", "upstream_idle"),
        ("/total", "total_timeout"),
        ("/left", "client_left"),
    ];
    for (at, (path, reason)) in (0..).zip(cuts) {
        let stream = stream(at);
        h2.send(get(stream, path));
        if reason == "client_left" {
            let data = h2.until(deadline(), |frame| frame.stream == stream && frame.kind == DATA);
            assert!(data.is_some(), "the answer has begun");
            h2.send(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
        } else {
            let end = h2.until(deadline(), |frame| frame.stream == stream && frame.kind == RST_STREAM);
            assert!(end.is_some(), "{path}");
        }
        let line = line(&gateway, path);
        assert_eq!((&line["status"], &line["complete"]), (&200.into(), &false.into()), "{line}");
        assert_eq!(line["cut"], reason, "{line}");
        let route = if path == "/total" { "total" } else { "api" };
        let labels = [("route", route), ("reason", reason)];
        assert_eq!(gateway.metric("sluicegate_responses_cut_total", &labels), 1.0, "{path}");
    }
    assert!(h2.serves(stream(cuts.len() as u32)));
}

/// A client that breaks its upload while the answer is on its way has cut the answer itself.
#[test]
fn a_broken_upload_cuts_its_answer() {
    let upstream = upstream();
    let gateway = Gateway::before(&upstream, FILE);
    let mut client = gateway.client();
    client.request("POST", "/upload", &[("transfer-encoding", "chunked")]).send("5\r\nhello\r\n");
    assert!(client.writer().read(&mut [0; 64]).unwrap() > 0, "the answer has begun");
    client.send("no chunk\r\n");
    let _ = client.writer().read_to_end(&mut Vec::new()); // to its end, or to a reset
    let line = line(&gateway, "/upload");
    assert_eq!((&line["status"], &line["complete"]), (&200.into(), &false.into()), "{line}");
    assert_eq!(line["cut"], "upload_failed", "{line}");
    let labels = [("route", "api"), ("reason", "upload_failed")];
    assert_eq!(gateway.metric("sluicegate_responses_cut_total", &labels), 1.0);
}
