//! Request heads over HTTP/1.1: a head that servers could read in several ways is refused with an explanation and
//! counted, and never reaches the upstream (RFC 9110, RFC 9112).

use crate::harness::h2::{CONTINUATION, END, END_HEADERS, End, H2, HEADERS, block, frame, pseudo};
use crate::harness::{FORWARD_ALL, Gateway, Response, Upstream, until};

/// Asserts that each of these gets one problem of this status, behind which the connection ends, and that the upstream
/// sees nothing.
#[track_caller]
fn all_refused<B: AsRef<[u8]>>(status: u16, all: &[B]) {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    for bytes in all {
        let shown = String::from_utf8_lossy(&bytes.as_ref()[..bytes.as_ref().len().min(200)]).into_owned();
        let mut client = gateway.client();
        let _ = client.try_send(bytes);
        let answer = client.try_response().unwrap_or_else(|error| panic!("no answer to {shown:?}: {error}"));
        assert_eq!(answer.status, status, "{shown:?}");
        is_problem_that_closes(&answer);
        assert!(client.is_closed(), "{shown:?}");
    }
    assert_eq!(upstream.seen().len(), 0);
    let counted =
        || gateway.metric("sluicegate_requests_total", &[("route", ""), ("code", &status.to_string())]);
    until("all are counted", || (counted() == all.len() as f64).then_some(()));
}

#[track_caller]
fn is_problem_that_closes(answer: &Response) {
    answer.problem();
    assert_eq!(answer.header("connection"), Some("close"), "{answer:?}");
    assert!(answer.header("date").is_some_and(|date| date.ends_with(" GMT")), "{answer:?}");
}

/// Two framings, or a framing that is not exactly one of the two, are how requests are smuggled (RFC 9112 §6).
#[test]
fn an_ambiguous_framing_is_400() {
    let of = |lines: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n0\r\n\r\n");
    all_refused(
        400,
        &[
            of("Content-Length: 5\r\nTransfer-Encoding: chunked"),
            of("Transfer-Encoding: chunked\r\nContent-Length: 5"),
            of("Transfer-Encoding: chunked\r\nContent-Length: 0"),
            of("Transfer-Encoding: chunked, chunked"),
            of("Transfer-Encoding: ,chunked"),
            of("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
            of("Transfer-Encoding: gzip, chunked"),
            of("Transfer-Encoding: identity"),
            of("Transfer-Encoding: chunked;q=1"),
            of("Transfer-Encoding: \"chunked\""),
            of("Transfer-Encoding:"),
            of("Transfer-Encoding: xchunked"),
            of("Transfer-Encoding: \x0bchunked"),
            of("Transfer-Encoding : chunked"),
            of("Transfer-Encoding\t: chunked"),
            of(" Transfer-Encoding: chunked"),
            of("X: y\r\n Transfer-Encoding: chunked"),
            of("Content-Length: 5\r\nContent-Length: 5"),
            of("Content-Length: 5\r\nContent-Length: 6"),
            of("Content-Length: 5, 5"),
            of("Content-Length: +5"),
            of("Content-Length: -5"),
            of("Content-Length: 0x5"),
            of("Content-Length: 5 5"),
            of("Content-Length: 5.0"),
            of("Content-Length: ten"),
            of("Content-Length:"),
            of("Content-Length: 18446744073709551617"),
            of("Content-Length: 99999999999999999999999"),
            of("Content-Length: 5\r\nContent-Length:"),
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        ],
    );
}

/// Lines that some servers take for others (RFC 9112 §2.2, §5).
#[test]
fn a_malformed_line_is_400() {
    let of = |lines: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n").into_bytes();
    all_refused(
        400,
        &[
            of("X: y\r\n folded"),
            of("X: y\r\n\tfolded"),
            of("X: a\rb"),
            of("X: a\r\r"),
            of("X : y"),
            of("X\t: y"),
            of(": y"),
            of("no colon"),
            of("bad name: y"),
            of("b(d: y"),
            of("b\u{e4}d: y"),
            of("X: a\0b"),
            of("X: a\x01b"),
            of("X: a\x7fb"),
            of("X: a\nY: b"),
            b"GET / HTTP/1.1\r\n Host: a\r\n\r\n".to_vec(),
            b"GET / HTTP/1.1\n\rHost: a\r\n\r\n".to_vec(),
            b"GET / HTTP/1.1\nHost: a\n\n".to_vec(),
            b"GET / HTTP/1.1\r\nHost: a\n\r\n".to_vec(),
            b"GET / HTTP/1.1\r\nHost: a\r\n\n".to_vec(),
            [b"\r\n".repeat(9), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()].concat(),
            b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            b" GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        ],
    );
}

/// Request lines that are none, or of versions that are not spoken (RFC 9112 §2.3, §3).
#[test]
fn a_malformed_request_line_is_400() {
    let of = |line: &str| format!("{line}\r\nHost: a\r\n\r\n").into_bytes();
    all_refused(
        400,
        &[
            of("GET /"),
            of("GET  / HTTP/1.1"),
            of("GET /  HTTP/1.1"),
            of("GET / HTTP/1.1 "),
            of("GET\t/\tHTTP/1.1"),
            of("GET / http/1.1"),
            of("GET / HTTP/1.2"),
            of("GET / HTTP/2.0"),
            of("GET / HTTP/1.1x"),
            of("GET / HTTP/01.1"),
            of("GET / HTTP/1,1"),
            of("GET / FTP/1.1"),
            of("G@T / HTTP/1.1"),
            of("GET HTTP/1.1"),
            of("GET /a b HTTP/1.1"),
            of("GET /a#b HTTP/1.1"),
            of("GET http://a/#b HTTP/1.1"),
            of("GET /\u{e9} HTTP/1.1"),
            of("GET /?q=\u{e9} HTTP/1.1"),
            of("GET /\x01 HTTP/1.1"),
            of("GET /\x7f HTTP/1.1"),
            of("GET /\0 HTTP/1.1"),
            of("GET a HTTP/1.1"),
            of("GET a:80 HTTP/1.1"),
            of("GET ftp://a/ HTTP/1.1"),
            of("POST * HTTP/1.1"),
            of("GET * HTTP/1.1"),
            b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        ],
    );
}

/// Exactly one valid host, and the same one in every place (RFC 9112 §3.2). The connection may live on.
#[test]
fn a_request_without_exactly_one_host_is_400() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    for lines in [
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n",
        "GET / HTTP/1.1\r\nHost: a, b\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n",
        "GET / HTTP/1.1\r\nHost: user@a\r\n",
        "GET / HTTP/1.1\r\nHost: a/path\r\n",
        "GET / HTTP/1.1\r\nHost: a?x\r\n",
        "GET / HTTP/1.1\r\nHost: a:80:80\r\n",
        "GET / HTTP/1.1\r\nHost: a:8x\r\n",
        "GET / HTTP/1.1\r\nHost: [::1\r\n",
        "GET / HTTP/1.1\r\nHost: http://a\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: b\r\nHost: a\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: b/x\r\n",
        "GET http://user:pass@a/ HTTP/1.1\r\nHost: a\r\n",
        "GET http://user@a/ HTTP/1.1\r\nHost: user@a\r\n",
    ] {
        let mut client = gateway.client();
        client.send(format!("{lines}\r\n"));
        let answer = client.response();
        assert_eq!(answer.status, 400, "{lines:?}");
        answer.problem();
    }
    assert_eq!(upstream.seen().len(), 0);
    for good in [
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\n",
    ] {
        let mut client = gateway.client();
        client.send(format!("{good}\r\n"));
        assert_eq!(client.response().status, 200, "{good:?}");
    }
}

/// One empty line before a request is let pass, as RFC 9112 §2.2 has it; also between two.
#[test]
fn an_empty_line_before_a_request_is_ignored() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    for _ in 0..3 {
        client.send("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().status, 200);
    }
    client.send("\r").send("\n").send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 200);
}

/// Methods that would make a gateway something else are refused wherever they come.
#[test]
fn connect_and_trace_are_refused() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    for line in ["CONNECT a:80", "CONNECT /", "CONNECT http://a/", "TRACE /", "TRACE http://a/"] {
        let mut client = gateway.client();
        client.send(format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.response();
        assert!(matches!(answer.status, 400 | 405), "{line}: {answer:?}");
        answer.problem();
    }
    assert_eq!(gateway.ask("TRACE", "/", &[]).status, 405);
    assert!(gateway.ask("TRACE", "/", &[]).header("allow").is_some());
    assert_eq!(upstream.seen().len(), 0);
}

/// `OPTIONS *` asks the gateway itself, which says what it serves and asks nobody.
#[test]
fn options_asterisk_is_answered_by_the_gateway() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    let answer = client.ask("OPTIONS", "*", &[]);
    assert_eq!((answer.status, answer.header("content-length")), (204, None));
    assert!(answer.header("allow").unwrap().contains("GET"));
    assert_eq!(client.ask("OPTIONS", "/", &[]).status, 200, "the connection lives on");
    assert_eq!(upstream.seen().len(), 1);
}

/// Heads have bounds: 8 KiB for the target (414), `max_head` for all (431), and 100 headers (431).
#[test]
fn heads_are_limited() {
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(8 << 10));
    let endless = format!("GET /{}", "x".repeat(100_000));
    all_refused(414, &[long, endless]);
    let lines = |count: usize| (0..count).map(|at| format!("x-{at}: y\r\n")).collect::<String>();
    all_refused(
        431,
        &[
            format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", lines(100)),
            format!("GET / HTTP/1.1\r\nHost: a\r\nx: {}\r\n\r\n", "y".repeat(32 << 10)),
            format!("GET / HTTP/1.1\r\nHost: a\r\n{}: y\r\n\r\n", "x".repeat(40_000)),
            format!("GET / HTTP/1.1\r\nHost: a\r\nx: {}", "y".repeat(100_000)),
            "X".repeat(100_000),
        ],
    );
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    client.send(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat((8 << 10) - 1)));
    assert_eq!(client.response().status, 200);
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", lines(99)));
    assert_eq!(client.response().status, 200);
}

/// A head may come in as many pieces as it likes, and two in one.
#[test]
fn a_head_in_pieces_is_assembled() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    for byte in b"GET /x HTTP/1.1\r\nHost: api.test\r\nX-Mine: yes\r\n\r\n" {
        client.send([*byte]);
    }
    assert_eq!(client.response().status, 200);
    let seen = upstream.last();
    assert_eq!((seen.target.as_str(), seen.head.one("x-mine")), ("/x", Some("yes")));
}

/// A malformed request behind a good one is refused in its turn, and counted.
#[test]
fn a_malformed_request_behind_a_good_one_is_refused() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 200);
    let refused = client.response();
    assert_eq!(refused.status, 400);
    is_problem_that_closes(&refused);
    assert!(client.is_closed());
    assert_eq!(upstream.seen().len(), 1);
    assert_eq!(gateway.metric("sluicegate_requests_total", &[("route", ""), ("code", "400")]), 1.0);
}

/// An expectation that nobody can meet is 417; leave to send is none of the upstream's business.
#[test]
fn an_expectation_that_is_not_met_is_417() {
    let of = |value: &str| format!("GET / HTTP/1.1\r\nHost: a\r\nExpect: {value}\r\n\r\n");
    all_refused(417, &[of("200-ok"), of("100-continue, more"), of("")]);
}

/// Some clients send empty lines before a request (RFC 9112 §2.2).
#[test]
fn empty_lines_before_a_request_are_skipped() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    for lines in [1, 2, 3, 8] {
        let mut client = gateway.client();
        for _ in 0..2 {
            client.send("\r\n".repeat(lines) + "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response().status, 200, "{lines}");
        }
    }
}

/// The longest target is configurable, over HTTP/1.1 and HTTP/2.
#[test]
fn the_longest_target_is_configurable() {
    let upstream = Upstream::answering("done");
    for (config, longest) in
        [("", 8 << 10), ("max_target: 1KiB\n", 1 << 10), ("max_target: 20KiB\n", 20 << 10)]
    {
        let gateway = Gateway::before(&upstream, &format!("{config}{FORWARD_ALL}"));
        for (length, expected) in [(longest, 200), (longest + 1, 414)] {
            let target = format!("/{}", "x".repeat(length - 1));
            assert_eq!(gateway.get(&target).status, expected, "{config}{length}");
            let mut h2 = H2::connect(gateway.edge);
            h2.send(get_long(1, &target));
            assert_eq!(h2.end(1), End::Status(expected), "{config}{length}, over HTTP/2");
        }
    }
}

/// A GET whose head takes several frames.
fn get_long(stream: u32, target: &str) -> Vec<u8> {
    let head = block(&pseudo("GET", target));
    let mut pieces = head.chunks(16 << 10).peekable();
    let mut out = Vec::new();
    let mut kind = HEADERS;
    while let Some(piece) = pieces.next() {
        let last = if pieces.peek().is_none() { END_HEADERS } else { 0 };
        let end = if kind == HEADERS { END } else { 0 };
        out.extend(frame(kind, last | end, stream, piece));
        kind = CONTINUATION;
    }
    out
}
