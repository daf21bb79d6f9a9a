//! HTTP/2 to servers: many requests share few connections without affecting each other, and requests that are safe to
//! repeat are not lost.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::h2_upstream::{Call, H2Upstream, Speaks};
use crate::harness::{Gate, Gateway, Setup, Upstream, in_parallel, measure, patience, until};
use bytes::Bytes;
use h2::Reason;

const ALL: &str = "upstreams: {api: {servers: [\"http://{upstream}\"], protocol: http2, timeouts: {connect: 9s, response: 20s}}}\n\
                   routes: [{name: api, match: {path: /*}, upstream: api}]\n";

fn before(upstream: &H2Upstream) -> Gateway {
    with_timeouts(upstream, "response: 20s")
}

/// The same with these timeouts.
fn with_timeouts(upstream: &H2Upstream, timeouts: &str) -> Gateway {
    let file = ALL.replace("response: 20s", timeouts);
    Setup::default().value("upstream", upstream.address).workers(1).start(&file)
}

/// A request arrives whole: Host is the authority, and nothing of it is meant for one connection only.
#[test]
fn a_request_is_forwarded() {
    let upstream = H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        let body = call.read().await;
        let mut answer = call.begin(201, &[("x-answer", "yes"), ("trailer", "x-sum")]);
        answer.send(body.into()).await;
        answer.trailers(&[("x-sum", "7")]);
    });
    let gateway = before(&upstream);
    let headers = [
        ("host", "api.test:8080"),
        ("te", "trailers"),
        ("connection", "keep-alive, x-hop, te"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("x-kept", "2"),
    ];
    let mut client = gateway.client();
    let answer = client.post("/v1/items?x=1", &headers, b"hello");
    assert_eq!((answer.status, answer.text().as_str()), (201, "hello"));
    assert_eq!(answer.header("x-answer"), Some("yes"));
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    let answer = client.get("/");
    assert_eq!((answer.status, answer.text().as_str()), (201, ""));

    let seen = upstream.seen();
    assert_eq!(
        (seen[0].method.as_str(), seen[0].uri.to_string().as_str()),
        ("POST", "http://api.test:8080/v1/items?x=1")
    );
    for gone in ["host", "connection", "x-hop", "keep-alive", "transfer-encoding"] {
        assert!(!seen[0].headers.contains_key(gone), "{gone}");
    }
    for (name, value) in
        [("te", "trailers"), ("x-kept", "2"), ("content-length", "5"), ("x-forwarded-host", "api.test:8080")]
    {
        assert_eq!(seen[0].headers[name], value);
    }
    assert!(!seen[1].headers.contains_key("content-length"), "{:?}", seen[1].headers);
    assert_eq!(upstream.connections(), 1);
}

/// Requests at once share one connection.
#[test]
fn requests_at_once_share_a_connection() {
    // None is answered before all are there, so they do not wait for each other.
    let all = Arc::new(tokio::sync::Barrier::new(40));
    let upstream = H2Upstream::start(Speaks::default(), move |mut call: Call| {
        let all = Arc::clone(&all);
        async move {
            all.wait().await;
            call.answer(200, "done");
        }
    });
    let gateway = before(&upstream);
    assert_eq!(in_parallel(40, |_| gateway.get("/").status), [200; 40]);
    assert_eq!(upstream.connections(), 1);
}

/// A server that allows few streams gets more connections, and no stream beyond what it allows.
#[test]
fn a_server_that_allows_few_streams_gets_more_connections() {
    let speaks = Speaks { streams: Some(4), ..Speaks::default() };
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = H2Upstream::start(speaks, move |mut call: Call| {
        let waits = waits.clone();
        async move {
            tokio::task::spawn_blocking(move || waits.wait()).await.unwrap();
            call.answer(200, "done");
        }
    });
    let gateway = with_timeouts(&upstream, "response: 20s, keep_alive: 2s");
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..20).map(|_| scope.spawn(|| gateway.get("/").status)).collect();
        until("all are there at once", || (upstream.seen().len() == 20).then_some(()));
        assert_eq!(upstream.connections(), 5);
        gate.open();
        assert!(all.into_iter().all(|one| one.join().unwrap() == 200));
    });
    assert_eq!(gateway.get("/").status, 200);
    until("connections beyond what is needed go", || (upstream.open() == 0).then_some(()));
}

/// A server that sends GOAWAY between requests loses none of them.
#[test]
fn no_request_is_lost_when_connections_end() {
    let upstream = H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        call.read().await;
        call.answer(200, "done");
        call.close_connection();
    });
    let gateway = before(&upstream);
    let mut client = gateway.client();
    for turn in 0..50 {
        assert_eq!(client.get("/").status, 200, "turn {turn}");
        assert_eq!(client.post("/", &[], b"body").status, 200, "turn {turn}");
    }
    assert!(upstream.connections() > 10, "{}", upstream.connections());
}

/// What a server refuses to look at is asked again; what it has begun with is not.
#[test]
fn a_refused_stream_is_retried() {
    let turn = Cell::new(0);
    let upstream = H2Upstream::start(Speaks::default(), move |mut call: Call| {
        turn.set(turn.get() + 1);
        let reason = if turn.get() % 2 == 1 { Some(call.seen.uri.path().to_owned()) } else { None };
        async move {
            match reason.as_deref() {
                Some("/refused") => call.reset(Reason::REFUSED_STREAM),
                Some("/broken") => call.reset(Reason::INTERNAL_ERROR),
                _ => call.answer(200, "done"),
            }
        }
    });
    let gateway = before(&upstream);
    let mut client = gateway.client();
    assert_eq!(client.ask("DELETE", "/refused", &[]).status, 200);
    assert_eq!(upstream.seen().len(), 2);
    let answer = client.ask("POST", "/broken", &[]);
    assert_eq!(answer.status, 502);
    assert_eq!(upstream.seen().len(), 3, "it may have been acted on");
    assert_eq!(upstream.connections(), 1, "only the stream ended");
}

/// A server that speaks something else gets no request; the log says why.
#[test]
fn a_server_without_http2_is_detected() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        exchange.close();
    });
    let gateway = Setup::default().value("upstream", upstream.address).workers(1).start(ALL);
    for _ in 0..3 {
        assert_eq!(gateway.get("/").status, 502);
        assert_eq!(gateway.client().post("/", &[], b"body").status, 502);
    }
    assert!(upstream.seen().iter().all(|seen| seen.method == "PRI"), "{:?}", upstream.seen());
    let warning = "does not serve requests: the handshake with the server failed";
    until("it is logged", || gateway.log().contains(warning).then_some(()));
}

/// Servers that say nothing are given up in time: without an answer, and in the middle of one.
#[test]
fn a_silent_server_times_out() {
    let upstream = H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        if call.seen.uri.path() == "/half" {
            let mut answer = call.begin(200, &[("content-length", "100")]);
            answer.send(Bytes::from_static(b"0123456789")).await;
            let _ = answer.until_reset().await;
        } else {
            let reason = call.until_reset().await;
            call.note(format!("{reason:?}"));
        }
    });
    let gateway = with_timeouts(&upstream, "response: 2s, idle: 2s");
    let (answer, took) = measure(|| gateway.get("/"));
    assert_eq!(answer.status, 504);
    assert!((Duration::from_millis(1900)..patience(9)).contains(&took), "{took:?}");
    until("the stream is reset", || (upstream.notes() == ["Some(CANCEL)"]).then_some(()));
    let mut client = gateway.client();
    let (answer, took) = measure(|| client.request("GET", "/half", &[]).try_response());
    assert!(answer.is_err());
    assert!((Duration::from_millis(1900)..patience(9)).contains(&took), "{took:?}");
    assert_eq!(upstream.connections(), 2, "nothing was heard on the first one");
}

/// A reload that leaves an upstream as it is leaves its connections and what is under way on them.
#[test]
fn a_reload_keeps_connections() {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = H2Upstream::start(Speaks::default(), move |mut call: Call| {
        let waits = waits.clone();
        async move {
            if call.seen.uri.path() == "/waits" {
                tokio::task::spawn_blocking(move || waits.wait()).await.unwrap();
            }
            call.answer(200, "done");
        }
    });
    let gateway = before(&upstream);
    let mut patient = gateway.client();
    patient.request("GET", "/waits", &[]);
    until("it waits", || (upstream.seen().len() == 1).then_some(()));
    gateway.reload(&format!(
        "limits: {{new: {{key: ip, rate: 1/s, mode: shadow}}}}\n{}",
        ALL.replace("upstream: api}", "upstream: api, limits: [new]}")
    ));
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(upstream.connections(), 1);
    gateway.reload(&ALL.replace("response: 20s", "response: 21s"));
    assert_eq!(gateway.get("/").status, 200);
    gate.open();
    assert_eq!(patient.response().status, 200, "it ends on the connection that it has");
    until("the old connection goes", || (upstream.open() == 1).then_some(()));
}

/// Interim answers are not the answer.
#[test]
fn interim_answers_are_not_the_answer() {
    let upstream = H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        call.interim(103);
        call.answer(200, "done");
    });
    let gateway = before(&upstream);
    for _ in 0..3 {
        assert_eq!(gateway.get("/").text(), "done");
    }
}

/// A server that answers too much in its head is no server; the others on the connection go on.
#[test]
fn a_head_that_is_too_long_is_502() {
    let upstream = H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        let long = "x".repeat(15_000);
        let headers: Vec<_> = (0..10).map(|_| ("x-long", long.as_str())).collect();
        match call.seen.uri.path() {
            "/long" => call.only(200, &headers),
            _ => call.answer(200, "done"),
        }
    });
    let gateway = before(&upstream);
    assert_eq!(gateway.get("/long").status, 502);
    assert_eq!(gateway.get("/").status, 200);
}
