//! An answer that ends before its end says why, in the access log and in the metrics: the upstream, a timeout, or the client.

use std::io::Read;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Exchange, Gateway, Upstream, until};

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
            "/idle" => {
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
        let told = gateway.admin_get(&format!("/explain?request={id}")).text();
        assert!(told.contains(&format!(" bytes: {reason}")), "{told}");
        assert!(error.is_none_or(|error| told.contains(error)), "{told}");
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
