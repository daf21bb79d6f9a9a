//! HTTP/2 to servers: many requests on few connections, each of them on its own, and none lost where it is safe to say
//! it again.

#![allow(missing_docs, clippy::unwrap_used)]

mod harness;

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use harness::h2_upstream::{Call, H2Upstream, Speaks};
use harness::{Gate, Gateway, Setup, Upstream, at_once, timed, until};

const ALL: &str = "upstreams: {api: {servers: [\"http://{upstream}\"], protocol: http2, timeouts: {response: 2s, idle: 2s}}}\n\
                   routes: [{name: api, match: {path: /*}, upstream: api}]\n";

fn before(upstream: &H2Upstream) -> Gateway {
    Setup::default().value("upstream", upstream.address).workers(1).start(ALL)
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

/// A body of unknown length goes on as one.
#[test]
fn a_body_of_unknown_length_is_forwarded() {
    let upstream = H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        let body = call.read().await;
        call.answer(200, body);
    });
    let gateway = before(&upstream);
    let mut client = gateway.client();
    client.request("POST", "/", &[("transfer-encoding", "chunked")]);
    client.send("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n");
    assert_eq!(client.response().text(), "hello world");
    assert!(!upstream.seen()[0].headers.contains_key("content-length"));
}

/// Requests at once share one connection.
#[test]
fn requests_at_once_share_a_connection() {
    let upstream = H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        call.answer(200, "done");
    });
    let gateway = before(&upstream);
    let (statuses, took) = timed(|| at_once(40, |_| gateway.get("/").status));
    assert_eq!(statuses, [200; 40]);
    assert_eq!(upstream.connections(), 1);
    assert!(took < Duration::from_secs(4), "they do not wait for each other: {took:?}");
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
    let gateway = before(&upstream);
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
fn a_refused_request_is_asked_again() {
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
fn a_server_without_http2_is_found_out() {
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
    until("it is logged", || gateway.log().contains("upstream api: 127.0.0.1:").then_some(()));
}

/// A client that leaves ends its request upstream within a second, and nobody else's.
#[test]
fn a_client_that_leaves_ends_its_request() {
    let upstream = H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        match call.seen.uri.path() {
            "/waits" => {
                let reason = call.until_reset().await;
                call.note(format!("waits {reason:?}"));
            }
            "/uploads" => {
                while let Some(Ok(_)) = call.next().await {}
                let reason = call.until_reset().await;
                call.note(format!("uploads {reason:?}"));
            }
            "/streams" => {
                let mut answer = call.begin(200, &[]);
                while answer.send(Bytes::from_static(&[0; 1024])).await {}
                call.note("streams");
            }
            _ => call.answer(200, "done"),
        }
    });
    let gateway = before(&upstream);
    for (path, note) in
        [("/waits", "waits Some(CANCEL)"), ("/uploads", "uploads Some(CANCEL)"), ("/streams", "streams")]
    {
        let count = upstream.seen().len();
        let mut client = gateway.client();
        let headers: &[(&str, &str)] = if path == "/uploads" { &[("content-length", "100")] } else { &[] };
        client.request(if path == "/uploads" { "POST" } else { "GET" }, path, headers);
        if path == "/uploads" {
            client.send("half of it");
        }
        until("it is there", || (upstream.seen().len() > count).then_some(()));
        drop(client);
        let (_, took) =
            timed(|| until(note, || upstream.notes().iter().any(|known| known == note).then_some(())));
        assert!(took < Duration::from_secs(1), "{path}: {took:?}");
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!(upstream.connections(), 1);
}

/// An answer that breaks off is seen to break off.
#[test]
fn an_answer_that_breaks_off_is_seen_to_break_off() {
    let upstream = H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        let length = call.seen.uri.path().len() == 1;
        let mut answer = call.begin(200, if length { &[("content-length", "100")] } else { &[] });
        answer.send(Bytes::from_static(b"0123456789")).await;
        tokio::time::sleep(Duration::from_millis(50)).await; // so that the head is on its way
        answer.reset(Reason::INTERNAL_ERROR);
    });
    let gateway = before(&upstream);
    for path in ["/", "/chunked"] {
        let mut client = gateway.client();
        client.request("GET", path, &[]);
        assert!(client.try_response().is_err(), "{path}");
    }
}

/// Servers that say nothing are given up in time: without an answer, and in the middle of one.
#[test]
fn silence_is_given_up() {
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
    let gateway = before(&upstream);
    let (answer, took) = timed(|| gateway.get("/"));
    assert_eq!(answer.status, 504);
    assert!((Duration::from_millis(1900)..Duration::from_secs(5)).contains(&took), "{took:?}");
    until("the stream is reset", || (upstream.notes() == ["Some(CANCEL)"]).then_some(()));
    let mut client = gateway.client();
    let (answer, took) = timed(|| client.request("GET", "/half", &[]).try_response());
    assert!(answer.is_err());
    assert!((Duration::from_millis(1900)..Duration::from_secs(5)).contains(&took), "{took:?}");
    assert_eq!(upstream.connections(), 2, "nothing was heard on the first one");
}

const MIB: usize = 1 << 20;
const LENGTH: usize = 256 * MIB;

/// Large bodies pass in flat memory, in both directions, and a client that takes nothing holds up nobody else.
#[test]
fn large_bodies_pass_in_flat_memory() {
    let upstream = H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        match call.seen.uri.path() {
            "/down" => {
                let mut answer = call.begin(200, &[("content-length", &LENGTH.to_string())]);
                let piece = Bytes::from(vec![b'd'; MIB]);
                for _ in 0..256 {
                    answer.send(piece.clone()).await;
                }
                answer.end();
            }
            "/up" => {
                let mut read = 0;
                while let Some(Ok(piece)) = call.next().await {
                    read += piece.len();
                }
                call.answer(200, format!("{read}"));
            }
            _ => call.answer(200, vec![b'x'; MIB]),
        }
    });
    let gateway = Setup::default().value("upstream", upstream.address).workers(1).start(
        "upstreams: {api: {servers: [\"http://{upstream}\"], protocol: http2}}\n\
         routes: [{name: api, match: {path: /*}, upstream: api}]\n",
    );
    assert_eq!(gateway.get("/").body.len(), MIB);
    let before = gateway.peak_memory();

    let mut waiting: Vec<_> = (0..4).map(|_| gateway.client()).collect();
    for client in &mut waiting {
        client.request("GET", "/down", &[]);
    }
    for _ in 0..10 {
        assert_eq!(gateway.get("/").body.len(), MIB);
    }
    drop(waiting);

    let mut client = gateway.client();
    client.request("GET", "/down", &[]);
    let head = client.reader.head().unwrap().unwrap();
    assert_eq!(head.one("content-length"), Some(LENGTH.to_string().as_str()));
    let mut read = 0;
    while read < LENGTH {
        read += client.reader.some(MIB).unwrap().len();
    }

    client.request("POST", "/up", &[("content-length", &LENGTH.to_string())]);
    let piece = vec![b'u'; MIB];
    for _ in 0..256 {
        client.send(&piece);
    }
    assert_eq!(client.response().text(), LENGTH.to_string());
    assert_eq!(upstream.connections(), 1);
    let grown = gateway.peak_memory().saturating_sub(before); // the kernel counts roughly
    assert!(grown < 8 * MIB, "memory grew by {} kB", grown / 1024);
}

/// Behind a body comes what was announced, and nothing that says who sends it or how it is read.
#[test]
fn nothing_is_smuggled_in_behind_a_body() {
    let upstream = H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        call.read().await;
        let trailers = call.trailers().await.unwrap_or_default();
        let mut names: Vec<String> = trailers.keys().map(ToString::to_string).collect();
        names.sort();
        call.note(names.join(" "));
        call.answer(200, "done");
    });
    let gateway = before(&upstream);
    let chunked = [
        ("transfer-encoding", "chunked"),
        ("trailer", "x-sum, host, x-forwarded-for, authorization, te, content-length, x-api-key"),
    ];
    let mut client = gateway.client();
    client.request("POST", "/", &chunked);
    client.send(
        "1\r\nx\r\n0\r\nx-sum: 1\r\nx-more: 2\r\nhost: evil.test\r\nx-forwarded-for: 1.1.1.1\r\nauthorization: x\r\n\
         te: trailers\r\ncontent-length: 7\r\nx-api-key: k\r\n\r\n",
    );
    // Some of these are no trailers at all: then the request is refused, and that is as well.
    let status = client.response().status;
    match status {
        200 => assert_eq!(upstream.notes(), ["x-sum"]),
        status => assert_eq!((status, upstream.notes().len()), (400, 0)),
    }
    let mut client = gateway.client();
    client.request("POST", "/", &[("transfer-encoding", "chunked"), ("trailer", "x-sum")]);
    client.send("1\r\nx\r\n0\r\nx-sum: 1\r\nx-more: 2\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert_eq!(upstream.notes().last().unwrap(), "x-sum");
}

/// Clients that leave in the middle of their answers, however many, harm nobody else on the connection.
#[test]
fn clients_that_leave_harm_nobody_else() {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = H2Upstream::start(Speaks::default(), move |mut call: Call| {
        let waits = waits.clone();
        async move {
            match call.seen.uri.path() {
                "/streams" => {
                    let mut answer = call.begin(200, &[]);
                    while answer.send(Bytes::from_static(&[0; 16 << 10])).await {}
                }
                "/waits" => {
                    tokio::task::spawn_blocking(move || waits.wait()).await.unwrap();
                    call.answer(200, "done");
                }
                _ => call.answer(200, "done"),
            }
        }
    });
    let gateway = Setup::default().value("upstream", upstream.address).workers(1).start(
        "upstreams: {api: {servers: [\"http://{upstream}\"], protocol: http2}}\n\
         routes: [{name: api, match: {path: /*}, upstream: api}]\n",
    );
    let mut patient = gateway.client();
    patient.request("GET", "/waits", &[]);
    until("it waits", || (upstream.seen().len() == 1).then_some(()));
    for _ in 0..1_500 {
        let mut client = gateway.client();
        client.request("GET", "/streams", &[]);
        assert!(client.reader.head().unwrap().is_some());
    }
    gate.open();
    assert_eq!(patient.response().text(), "done");
    until("all is as before", || (gateway.get("/").status == 200).then_some(()));
    assert!(upstream.connections() <= 16, "{}", upstream.connections());
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
    gateway.reload(&ALL.replace("response: 2s", "response: 3s"));
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
fn a_head_that_is_too_long_is_no_answer() {
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

/// A body that is too large, breaks off or is none is the client's fault, and no whole request upstream.
#[test]
fn a_bad_body_is_the_client_s_fault() {
    let upstream = H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        while let Some(piece) = call.next().await {
            if piece.is_err() {
                return call.note("broken");
            }
        }
        call.note("whole");
        call.answer(200, "done");
    });
    let gateway = Setup::default()
        .value("upstream", upstream.address)
        .workers(1)
        .start(&format!("max_body: 1KB\n{ALL}"));
    let large = format!("800\r\n{}\r\n0\r\n\r\n", "x".repeat(0x800));
    for (body, status) in [(large.as_str(), 413), ("5\r\nhello\r\nnonsense\r\n", 400)] {
        let before = upstream.notes().len();
        let mut client = gateway.client();
        client.request("POST", "/", &[("transfer-encoding", "chunked")]);
        client.send(body);
        assert_eq!(client.response().status, status);
        until("the server has seen it break off", || (upstream.notes().len() > before).then_some(()));
        assert_eq!(upstream.notes().last().unwrap(), "broken");
    }
    assert_eq!(gateway.client().post("/", &[], b"hello").status, 200);
    assert_eq!(upstream.connections(), 1);
}
