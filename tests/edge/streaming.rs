//! Bodies: complete or visibly broken off, never silently short; of any size in constant memory; and everything is
//! freed when either side leaves.

use std::io::Write;
use std::time::Duration;

use crate::harness::{Gate, Gateway, Setup, Upstream, measure, patience, until};

const ALL: &str = "upstreams: {api: {servers: [\"http://{upstream}\"], timeouts: {idle: 1s}}}\n\
                   routes: [{name: api, match: {path: /*}, upstream: api}]\n";

/// An API that closes in the middle of its answer gives the client a broken answer, not a short one.
#[test]
fn an_answer_that_breaks_off_is_visibly_broken_off() {
    for (head, reset) in [
        ("content-length: 100", false),
        ("content-length: 100", true),
        ("transfer-encoding: chunked", false),
        ("transfer-encoding: chunked", true),
    ] {
        let upstream = Upstream::scripted(move |exchange| {
            let chunk = if head.contains("chunked") { "a\r\n0123456789\r\n" } else { "0123456789" };
            exchange.write(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{chunk}"));
            exchange.pause(Duration::from_millis(20)); // so that the head is on its way
            if reset { exchange.reset() } else { exchange.close() }
        });
        let gateway = Gateway::before(&upstream, ALL);
        let answer = gateway.client().request("GET", "/", &[]).try_response();
        match answer {
            Err(error) => {
                assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the client is left waiting")
            }
            Ok(answer) => assert_eq!(answer.status, 502, "{head}, reset {reset}: {answer:?}"),
        }
    }
}

/// An API that stops in the middle of its answer is given up after its `idle` timeout.
#[test]
fn an_answer_that_stalls_times_out() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n0123456789");
        exchange.silence();
    });
    let gateway = Gateway::before(&upstream, ALL);
    let mut client = gateway.client();
    let (answer, took) = measure(|| client.request("GET", "/", &[]).try_response());
    assert!(answer.is_err());
    assert!((Duration::from_millis(900)..patience(4)).contains(&took), "{took:?}");
    until("the upstream connection is closed", || (upstream.open() == 0).then_some(()));
}

/// A client that breaks off its upload is seen to break it off: the API gets no whole request.
#[test]
fn an_upload_that_breaks_off_is_visibly_broken_off() {
    for head in ["content-length: 100\r\n", "transfer-encoding: chunked\r\n"] {
        let upstream = Upstream::echoing();
        let gateway = Gateway::before(&upstream, ALL);
        let mut client = gateway.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: api.test\r\n{head}\r\na\r\n0123456789\r\n"));
        upstream.wait_for(1);
        drop(client);
        until("the upstream connection is closed", || (upstream.open() == 0).then_some(()));
        assert!(upstream.last().body.is_empty(), "it was taken for a whole body");
    }
}

/// A kept connection that the API has closed since is no error to the client.
#[test]
fn a_dead_idle_connection_is_no_error() {
    for reset in [false, true] {
        let upstream = Upstream::scripted(move |exchange| {
            exchange.answer(200, &[], b"done");
            if reset { exchange.reset() } else { exchange.close() }
        });
        let gateway = Setup::default().upstream(&upstream).workers(1).start(ALL);
        let mut client = gateway.client();
        for turn in 0..200 {
            let answer = client.get("/");
            assert_eq!(answer.status, 200, "turn {turn}, reset {reset}: {}", answer.text());
        }
        for turn in 0..10 {
            until("the gateway can know that it has closed", || {
                (gateway.connections_to(upstream.address) == 0).then_some(())
            });
            assert_eq!(client.post("/", &[], b"body").status, 200, "turn {turn}, reset {reset}");
        }
    }
}

/// An API that closes a kept connection as the next request comes has seen nothing of it: what is safe to send
/// again is sent again.
#[test]
fn an_idle_connection_that_dies_during_the_request_is_no_error() {
    let upstream = Upstream::scripted(|exchange| match exchange.seen.turn {
        0 => exchange.answer(200, &[], b"done"),
        _ => exchange.close(),
    });
    let gateway = Setup::default().upstream(&upstream).workers(1).start(ALL);
    let mut client = gateway.client();
    for turn in 0..10 {
        let answer = client.get("/");
        assert_eq!(answer.status, 200, "turn {turn}: {}", answer.text());
    }
}

/// What is not safe to send again is sent once: the API may have acted on it.
#[test]
fn unsafe_requests_are_sent_once() {
    let upstream = Upstream::scripted(|exchange| match exchange.seen.turn {
        0 => {
            let _ = exchange.body();
            exchange.answer(200, &[], b"done");
        }
        _ => _ = exchange.body().map(|_| exchange.close()),
    });
    let gateway = Setup::default().upstream(&upstream).workers(1).start(ALL);
    let mut client = gateway.client();
    assert_eq!(client.post("/", &[], b"1").status, 200);
    assert_eq!(client.post("/pay", &[], b"100").status, 502);
    assert_eq!(upstream.seen().iter().filter(|seen| seen.target == "/pay").count(), 1);
}

/// What an API sends beyond its answer is nobody's answer: the connection is not used again.
#[test]
fn surplus_answers_reach_no_client() {
    let evil = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
    for first in [
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 44\r\n\r\n",
    ] {
        let upstream = Upstream::scripted(move |exchange| match exchange.seen.target.as_str() {
            "/first" => _ = exchange.write(format!("{first}{evil}")),
            _ => exchange.answer(200, &[], b"mine"),
        });
        let gateway = Setup::default().upstream(&upstream).workers(1).start(ALL);
        let mut client = gateway.client();
        for turn in 0..20 {
            let answer = client.get("/first");
            assert!(
                matches!(answer.status, 200 | 204 | 304) && !answer.text().contains("evil"),
                "{answer:?}"
            );
            assert_eq!(client.get("/second").text(), "mine", "turn {turn} after {first:?}");
        }
    }
}

/// Interim answers of an API are not taken for its answer.
#[test]
fn interim_answers_are_not_the_answer() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
        exchange.answer(200, &[], b"done");
    });
    let gateway = Gateway::before(&upstream, ALL);
    let mut client = gateway.client();
    for _ in 0..3 {
        client.request("GET", "/", &[]);
        let answers = std::iter::from_fn(|| client.try_response().ok());
        let last = answers.into_iter().find(|answer| answer.status >= 200).unwrap();
        assert_eq!((last.status, last.text().as_str()), (200, "done"));
    }
}

/// A client that leaves before its answer frees the connection to the API.
#[test]
fn a_client_that_leaves_frees_the_upstream_connection() {
    let upstream = Upstream::scripted(|exchange| exchange.silence());
    let gateway = Gateway::before(&upstream, ALL);
    let mut clients: Vec<_> = (0..5).map(|_| gateway.client()).collect();
    clients.iter_mut().for_each(|client| _ = client.request("GET", "/", &[]));
    upstream.wait_for(5);
    assert_eq!(upstream.open(), 5);
    drop(clients);
    until("the upstream connections are closed", || (upstream.open() == 0).then_some(()));
    until("nobody is connected", || {
        (gateway.metric("sluicegate_connections", &[("listener", "edge")]) == 0.0).then_some(())
    });
}

/// A client that leaves in the middle of its answer frees the connection to the API, whatever is still to come.
#[test]
fn a_client_that_leaves_in_the_middle_frees_everything() {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::scripted(move |exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\nbeginning");
        waits.wait();
        while exchange.write([0; 64 << 10]) {}
    });
    let gateway = Gateway::before(&upstream, ALL);
    let mut client = gateway.client();
    client.request("GET", "/", &[]);
    assert!(client.reader.head().unwrap().is_some());
    drop(client);
    gate.open();
    until("the upstream connection is closed", || (upstream.open() == 0).then_some(()));
}

/// An API that answers before it has read the upload: the client gets that answer.
#[test]
fn an_early_answer_of_the_api_reaches_a_client_that_uploads() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno");
        while exchange.read_some(1 << 20) > 0 {}
        exchange.close();
    });
    let gateway = Gateway::before(&upstream, ALL);
    let answer = gateway.client().post("/", &[], &vec![b'x'; 5_000_000]);
    assert_eq!((answer.status, answer.text().as_str()), (403, "no"));
}

const MIB: usize = 1 << 20;
const LENGTH: usize = 64 * MIB;

/// Waits until a number no longer grows.
fn settled(mut number: impl FnMut() -> usize) -> usize {
    let (mut last, mut equal) = (0, 0);
    until("it no longer grows", || {
        let now = number();
        equal = if now == last { equal + 1 } else { 0 };
        last = now;
        (equal >= 50).then_some(now)
    })
}

/// 64 MiB through in both directions, with a side that is slow to take them, and memory stays flat.
#[test]
fn large_bodies_pass_in_flat_memory() {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::scripted(move |exchange| match exchange.seen.target.as_str() {
        "/warm" => exchange.answer(200, &[], &vec![b'x'; MIB]),
        "/down" => {
            exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n"));
            (0..64).for_each(|_| _ = exchange.write(vec![b'd'; MIB]));
        }
        _ => {
            waits.wait();
            let mut read = 0;
            while read < LENGTH {
                match exchange.read_some(MIB) {
                    0 => break,
                    length => read += length,
                }
            }
            exchange
                .write(format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 8\r\n\r\n{read:08}"));
            exchange.close();
        }
    });
    let gateway = Setup::default().upstream(&upstream).workers(1).start(
        "upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
         routes: [{name: api, match: {path: /*}, upstream: api}]\n",
    );
    assert_eq!(gateway.client().post("/warm", &[], &vec![b'x'; MIB]).body.len(), MIB);
    let before = gateway.peak_memory();

    let mut client = gateway.client();
    client.request("GET", "/down", &[]);
    let taken = settled(|| upstream.written());
    assert!(taken < LENGTH, "the API is held back while the client reads nothing");
    assert_eq!(client.response().body.len(), LENGTH);

    client.request("POST", "/up", &[("content-length", &LENGTH.to_string())]);
    let mut writer = client.writer();
    let upload =
        std::thread::spawn(move || (0..64).for_each(|_| writer.write_all(&vec![b'u'; MIB]).unwrap()));
    upstream.wait_for(3);
    settled(|| gateway.peak_memory());
    assert!(!upload.is_finished(), "the client is held back while the API reads nothing");
    gate.open();
    assert_eq!(client.response().text(), format!("{LENGTH:08}"));
    upload.join().unwrap();

    let grown = gateway.peak_memory().saturating_sub(before);
    assert!(grown < 16 * MIB, "memory grew by {} kB", grown / 1024);
}
