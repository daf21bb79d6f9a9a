//! Answers of HTTP/1.1 servers are parsed strictly: no malformed answer reaches a client, and unsolicited bytes are
//! never used as an answer (RFC 9110 §8.6, §15; RFC 9112 §6, §7.1).

use crate::harness::h2::{DATA, END, END_HEADERS, End, H2, HEADERS, block, frame, get, pseudo};
use crate::harness::{Client, FORWARD_ALL, Gate, Setup, Upstream, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Heads that are no answer, whatever was asked.
const BAD: [&str; 17] = [
    "HTTP/1.1 200 OK\r\ncontent-length: 5, 6",
    "HTTP/1.1 200 OK\r\ncontent-length: 5, 5",
    "HTTP/1.1 200 OK\r\ncontent-length: +5",
    "HTTP/1.1 200 OK\r\ncontent-length: 5x",
    "HTTP/1.1 200 OK\r\ncontent-length: -1",
    "HTTP/1.1 200 OK\r\ncontent-length:",
    "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6",
    "HTTP/1.1 304 Not Modified\r\ncontent-length: 5, 6",
    "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\ncontent-length: 6",
    "HTTP/1.1 204 No Content\r\ncontent-length: 5x",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 5x",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked",
    "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked",
    "HTTP/1.1 099 Early\r\ncontent-length: 0",
    "HTTP/1.1 600 Late\r\ncontent-length: 0",
    "HTTP/1.1 999 Later\r\ncontent-length: 0",
    "HTTP/1.1 2000 OK\r\ncontent-length: 0",
];

/// A malformed head is 502 to every method, with a body and without, over HTTP/1.1 and HTTP/2.
#[test]
fn a_malformed_head_is_502() {
    let upstream = Upstream::scripted(|exchange| {
        let _ = exchange.body();
        let at: usize = exchange.seen.target[1..].parse().unwrap();
        exchange.write(format!("{}\r\n\r\n", BAD[at]));
    });
    let gateway = Setup::default().upstream(&upstream).workers(1).start(FORWARD_ALL);
    for (at, head) in BAD.iter().enumerate() {
        let target = format!("/{at}");
        for method in ["GET", "HEAD"] {
            let mut client = gateway.client();
            let answer = client.ask(method, &target, &[]);
            assert_eq!(answer.status, 502, "{method}: {head}");
            assert_ne!(answer.header("content-length"), Some("5"), "{method}: {head}");
        }
        assert_eq!(gateway.client().post(&target, &[], b"body").status, 502, "POST: {head}");
        let mut h2 = H2::connect(gateway.edge);
        h2.send(get(1, &target));
        assert_eq!(h2.end(1), End::Status(502), "GET over HTTP/2: {head}");
        h2.send(frame(HEADERS, END | END_HEADERS, 3, &block(&pseudo("HEAD", &target))));
        assert_eq!(h2.end(3), End::Status(502), "HEAD over HTTP/2: {head}");
        h2.send(frame(HEADERS, END_HEADERS, 5, &block(&pseudo("POST", &target))));
        h2.send(frame(DATA, END, 5, b"body"));
        assert_eq!(h2.end(5), End::Status(502), "POST over HTTP/2: {head}");
    }
    assert_eq!(upstream.connections(), 6 * BAD.len(), "none is used again");
}

/// A malformed chunk breaks the answer off, to requests with a body and without.
#[test]
fn a_malformed_chunk_breaks_the_answer_off() {
    const CHUNKS: [&str; 12] = [
        "4;\r\nbody\r\n0\r\n\r\n",
        "4;;a\r\nbody\r\n0\r\n\r\n",
        "4;a=\r\nbody\r\n0\r\n\r\n",
        "4;a b\r\nbody\r\n0\r\n\r\n",
        "4;a=\"b\r\nbody\r\n0\r\n\r\n",
        "4;a=\"b\nc\"\r\nbody\r\n0\r\n\r\n",
        "4;a\nbody\r\n0\r\n\r\n",
        "4 \r\nbody\r\n0\r\n\r\n",
        "+4\r\nbody\r\n0\r\n\r\n",
        "4\nbody\r\n0\r\n\r\n",
        "4\r\nbodyX\r\n0\r\n\r\n",
        "4\r\nbody\r\n0\r\nno colon\r\n\r\n",
    ];
    let upstream = Upstream::scripted(|exchange| {
        let _ = exchange.body();
        let at: usize = exchange.seen.target[1..].parse().unwrap();
        let chunks = CHUNKS.get(at).unwrap_or(&"4;a=\"b\\\"\" ; c = d\r\nbody\r\n0;e\r\n\r\n");
        exchange.write(format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"));
    });
    let gateway = Setup::default().upstream(&upstream).workers(1).start(FORWARD_ALL);
    for (at, chunks) in CHUNKS.iter().enumerate() {
        let mut client = gateway.client();
        assert!(client.request("GET", &format!("/{at}"), &[]).try_response().is_err(), "GET: {chunks:?}");
        let mut client = gateway.client();
        client.request("POST", &format!("/{at}"), &[("content-length", "4")]).send("body");
        assert!(client.try_response().is_err(), "POST: {chunks:?}");
    }
    assert_eq!(gateway.client().get("/99").text(), "body", "well-formed extensions are left out");
    assert_eq!(gateway.client().post("/99", &[], b"body").text(), "body");
}

/// Servers of HTTP/1.0 are understood, with a length and without one. Their connections are kept only where they say so.
#[test]
fn a_server_of_http_1_0_is_understood() {
    let upstream = Upstream::scripted(|exchange| {
        let _ = exchange.body();
        match exchange.seen.target.as_str() {
            "/kept" => {
                _ = exchange
                    .write("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 4\r\n\r\nbody")
            }
            "/length" => _ = exchange.write("HTTP/1.0 200 OK\r\ncontent-length: 4\r\n\r\nbody"),
            _ => {
                exchange.write("HTTP/1.0 200 OK\r\n\r\nbody");
                exchange.close();
            }
        }
    });
    let gateway = Setup::default().upstream(&upstream).workers(1).start(FORWARD_ALL);
    for (target, connections) in [("/kept", 1), ("/length", 4), ("/open", 4)] {
        let before = upstream.connections();
        let mut client = gateway.client();
        for _ in 0..2 {
            assert_eq!(client.get(target).text(), "body", "{target}");
            assert_eq!(client.post(target, &[], b"hello").text(), "body", "{target}");
        }
        // The first of them goes on what was kept before.
        let made = upstream.connections() - before;
        assert!(made == connections || made + 1 == connections, "{target}: {made}");
    }
}

/// The warning about bytes that nobody asked for.
const WARNING: &str = "bytes that no request asked for";

/// A server that sends bytes nobody asked for is told of once, counted, and asked on new connections from then on. What
/// comes before the next request is sent is meant: later bytes cannot be told from the answer to that request.
#[test]
fn connections_with_unsolicited_bytes_are_not_kept() {
    const GOOD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood";
    const EVIL: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
    for target in ["/behind", "/later"] {
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&sent);
        let upstream = Upstream::scripted(move |exchange| {
            _ = exchange.body();
            match exchange.seen.target.as_str() {
                "/behind" => _ = exchange.write([GOOD, EVIL].concat()),
                "/later" => _ = exchange.write(GOOD) && exchange.write(EVIL),
                _ => {
                    exchange.write(GOOD);
                    return;
                }
            }
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let gateway = Setup::default().upstream(&upstream).workers(1).start(FORWARD_ALL);
        let unsolicited = || gateway.metric("sluicegate_upstream_unsolicited_total", &[("upstream", "api")]);
        let mut client = gateway.client();
        let get_both = |client: &mut Client| {
            let before = sent.load(Ordering::SeqCst);
            assert_eq!(client.get(target).text(), "good");
            until("both answers are sent", || (sent.load(Ordering::SeqCst) > before).then_some(()));
        };
        assert_eq!(client.get("/").text(), "good");
        assert_eq!(client.get("/").text(), "good");
        assert_eq!((upstream.connections(), unsolicited()), (1, 0.0));
        get_both(&mut client);
        // Found out when the connection is used next, or looked at.
        until("it is counted", || {
            assert_eq!(client.get("/").text(), "good");
            (unsolicited() >= 1.0).then_some(())
        });
        let before = upstream.connections();
        for _ in 0..5 {
            assert_eq!(client.get("/").text(), "good");
            assert_eq!(client.post("/", &[], b"body").text(), "good");
        }
        assert_eq!(upstream.connections(), before + 10, "each on a connection of its own");
        get_both(&mut client);
        assert_eq!(client.get("/").text(), "good");
        assert_eq!(gateway.times_logged(WARNING), 1, "{}", gateway.log());
    }
}

/// A server may send 408 before it closes an idle connection: that is no unsolicited answer.
#[test]
fn a_408_on_an_idle_connection_closes_it() {
    let answer_is_read = Gate::default();
    let gate = answer_is_read.clone();
    let upstream = Upstream::scripted(move |exchange| {
        exchange.answer(200, &[], b"good");
        if exchange.seen.target == "/idle" {
            gate.wait(); // earlier bytes could arrive together with the answer
            exchange.write("HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            exchange.close();
        }
    });
    let gateway = Setup::default().upstream(&upstream).workers(1).start(FORWARD_ALL);
    let mut client = gateway.client();
    assert_eq!(client.get("/idle").text(), "good");
    answer_is_read.open();
    until("the connection is closed", || (upstream.open() == 0).then_some(()));
    for _ in 0..5 {
        assert_eq!(client.get("/").text(), "good");
    }
    assert_eq!(upstream.connections(), 2);
    assert!(!gateway.log().contains(WARNING), "{}", gateway.log());
}

/// `max_headers` of the upstream is the most lines of a head, whether they are in the usual form or not.
#[test]
fn the_number_of_lines_of_a_head_is_configurable() {
    let upstream = Upstream::scripted(|exchange| {
        let lines: usize = exchange.seen.target[1..].trim_end_matches('t').parse().unwrap();
        let more = if exchange.seen.target.ends_with('t') { "\t" } else { "" };
        let lines: String = (1..lines).map(|at| format!("x-{at}: a{more}b\r\n")).collect();
        exchange.write(format!("HTTP/1.1 200 OK\r\n{lines}content-length: 0\r\n\r\n"));
    });
    for (setting, most) in [("", 1_024), (", max_headers: 2000", 2_000), (", max_headers: 50", 50)] {
        let file = format!(
            "upstreams: {{api: {{servers: [\"http://{{upstream}}\"]{setting}}}}}\n\
             routes: [{{name: api, upstream: api}}]\n"
        );
        let gateway = Setup::default().upstream(&upstream).workers(1).start(&file);
        for form in ["", "t"] {
            let most_lines = gateway.get(&format!("/{most}{form}"));
            assert_eq!(most_lines.status, 200, "{setting} {form}");
            assert_eq!(
                most_lines.header(&format!("x-{}", most - 1)).map(|value| value.len() > 1),
                Some(true)
            );
            assert_eq!(gateway.get(&format!("/{}{form}", most + 1)).status, 502, "{setting} {form}");
        }
    }
}
