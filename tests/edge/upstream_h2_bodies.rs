//! Bodies over HTTP/2 to servers: complete or visibly broken off, of any size in constant memory, and released when a
//! client has left.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::h2::{DATA, END, END_HEADERS, H2, HEADERS, RST_STREAM, block, frame, number, pseudo};
use crate::harness::h2_upstream::{Call, H2Upstream, Speaks};
use crate::harness::{Gate, Gateway, Setup, deadline, eventually, measure, patience, until};
use bytes::Bytes;
use h2::Reason;

const ALL: &str = "upstreams: {api: {servers: [\"http://{upstream}\"], protocol: http2, timeouts: {connect: 9s, response: 20s}}}\n\
                   routes: [{name: api, match: {path: /*}, upstream: api}]\n";

fn before(upstream: &H2Upstream) -> Gateway {
    Setup::default().value("upstream", upstream.address).workers(1).start(ALL)
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

/// A malformed head is no better over HTTP/2: 502, whatever the method.
#[test]
fn a_malformed_head_is_502() {
    let upstream = H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        match call.seen.uri.path() {
            "/600" => call.only(600, &[]),
            "/999" => call.only(999, &[]),
            "/304" => call.only(304, &[("content-length", "5, 6")]),
            _ => call.only(200, &[("content-length", "+5")]),
        }
    });
    let gateway = before(&upstream);
    for target in ["/600", "/999", "/304", "/length"] {
        for method in ["GET", "HEAD"] {
            assert_eq!(gateway.client().ask(method, target, &[]).status, 502, "{method} {target}");
        }
        assert_eq!(gateway.client().post(target, &[], b"body").status, 502, "POST {target}");
    }
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
            measure(|| until(note, || upstream.notes().iter().any(|known| known == note).then_some(())));
        // Whether a client that has closed its half is still there is asked once a second.
        assert!(took < patience(5), "{path}: {took:?}");
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!(upstream.connections(), 1);
}

/// An answer that breaks off is seen to break off.
#[test]
fn an_answer_that_breaks_off_is_visibly_broken_off() {
    let upstream = H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        let length = call.seen.uri.path().len() == 1;
        let mut answer = call.begin(200, if length { &[("content-length", "100")] } else { &[] });
        answer.send(Bytes::from_static(b"0123456789")).await;
        answer.reset(Reason::INTERNAL_ERROR);
    });
    let gateway = before(&upstream);
    for path in ["/", "/chunked"] {
        let mut client = gateway.client();
        client.request("GET", path, &[]);
        // The end may overtake the beginning: then there was no answer.
        if let Ok(answer) = client.try_response() {
            assert_eq!(answer.status, 502, "{path}: {answer:?}");
        }
    }
}

/// A server that resets its stream without an error has broken off its answer, unless it had ended.
#[test]
fn an_answer_that_is_reset_without_an_error_is_whole_or_broken_off() {
    // Answers whose client has all that was sent, so that the reset overtakes nothing.
    static ARRIVED: AtomicUsize = AtomicUsize::new(0);
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let upstream = H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        let turn = BEGUN.fetch_add(1, Ordering::SeqCst);
        let path = call.seen.uri.path().to_owned();
        let length: &[(&str, &str)] = if path == "/length" { &[("content-length", "100")] } else { &[] };
        let mut answer = call.begin(200, length);
        answer.send(Bytes::from_static(b"0123456789")).await;
        if path == "/whole" {
            answer.end();
        }
        eventually("the client has the data", || ARRIVED.load(Ordering::SeqCst) > turn).await;
        answer.reset(Reason::NO_ERROR);
    });
    let gateway = before(&upstream);
    for path in ["/", "/length", "/whole"] {
        for method in ["GET", "POST"] {
            let mut client = gateway.client();
            client.request(method, path, &[("content-length", if method == "GET" { "0" } else { "4" })]);
            until("the data is there", || {
                let mut there = [0; 1 << 10];
                let length = client.writer().peek(&mut there).ok()?;
                there[..length].windows(10).any(|bytes| bytes == b"0123456789").then_some(())
            });
            ARRIVED.fetch_add(1, Ordering::SeqCst);
            let answer = client.try_response().ok();
            let whole = answer.map(|answer| answer.text().to_owned());
            assert_eq!(whole.as_deref(), (path == "/whole").then_some("0123456789"), "{method} {path}");

            let fields = [pseudo(method, path), vec![("te", "trailers")]].concat();
            let mut h2 = H2::connect(gateway.edge);
            let ends = if method == "GET" { END } else { 0 };
            h2.send(frame(HEADERS, ends | END_HEADERS, 1, &block(&fields)));
            let data = h2.until(deadline(), |frame| frame.kind == DATA && !frame.payload.is_empty());
            ARRIVED.fetch_add(1, Ordering::SeqCst);
            let last = data.filter(|data| data.flags & END != 0).or_else(|| {
                h2.until(deadline(), |frame| {
                    frame.stream == 1 && (frame.kind == RST_STREAM || frame.flags & END != 0)
                })
            });
            let last = last.expect("an end");
            let broken = last.kind == RST_STREAM && number(&last.payload) != 0;
            assert_eq!(broken, path != "/whole", "{method} {path}: {last:?}");
        }
    }
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
        "upstreams: {api: {servers: [\"http://{upstream}\"], protocol: http2, timeouts: {connect: 9s}}}\n\
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
fn clients_that_leave_do_not_affect_others() {
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
        "upstreams: {api: {servers: [\"http://{upstream}\"], protocol: http2, timeouts: {connect: 9s, response: 5min}}}\n\
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

/// A body that is too large, breaks off or is none is the client's fault, and no whole request upstream.
#[test]
fn a_malformed_body_is_the_client_s_fault() {
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
