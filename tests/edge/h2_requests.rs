//! Malformed requests over HTTP/2 (RFC 9113 §8): the stream is reset or answered 400, the connection stays open, and
//! no upstream sees the request.

use crate::harness::h2::{
    CONTINUATION, DATA, END, END_HEADERS, End, H2, HEADERS, PROTOCOL_ERROR, WINDOW_UPDATE, block, frame, get,
    post, pseudo,
};
use crate::harness::{Gateway, Upstream, deadline};

fn echo() -> (Upstream, Gateway) {
    let upstream = Upstream::echoing();
    let gateway = Gateway::before(
        &upstream,
        "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{name: api, match: {path: /*}, upstream: api}]\n",
    );
    (upstream, gateway)
}

/// What stream 1 of a connection that says this ends with; the connection lives on.
#[track_caller]
fn stream_error(gateway: &Gateway, what: &str, errors: &[u32], bytes: &[&[u8]]) {
    let mut h2 = H2::connect(gateway.edge);
    h2.send(bytes.concat());
    match h2.end(1) {
        End::Reset(error) if errors.contains(&error) => {}
        other => panic!("{what}: {other:?}"),
    }
    assert!(h2.serves(3), "{what}: the connection lives on");
}

#[track_caller]
fn is_status(gateway: &Gateway, what: &str, status: u16, fields: &[(&str, &str)]) {
    let mut h2 = H2::connect(gateway.edge);
    h2.send(frame(HEADERS, END | END_HEADERS, 1, &block(fields)));
    assert_eq!(h2.end(1), End::Status(status), "{what}");
    assert!(h2.serves(3), "{what}: the connection lives on");
}

/// §8.1.1, §8.2, §8.3: requests that are none. The stream is reset, or answered 400, and no upstream sees them.
#[test]
fn malformed_requests() {
    let (upstream, gateway) = echo();
    let with = |more: &[(&'static str, &'static str)]| [&pseudo("GET", "/")[..], more].concat();
    let without = |name: &str| pseudo("GET", "/").into_iter().filter(|(n, _)| *n != name).collect::<Vec<_>>();
    let set = |name: &str, value: &'static str| {
        pseudo("GET", "/")
            .into_iter()
            .map(|(n, v)| (n, if n == name { value } else { v }))
            .collect::<Vec<_>>()
    };
    let mut late = with(&[("x-a", "b")]);
    late.swap(3, 4);
    let cases = [
        ("an upper-case name", with(&[("X-Upper", "x")])),
        ("an empty name", with(&[("", "x")])),
        ("a name with a space", with(&[("x a", "x")])),
        ("a name with a colon", with(&[("x:a", "x")])),
        ("an unknown pseudo header", with(&[(":test", "x")])),
        ("a pseudo header of answers", with(&[(":status", "200")])),
        ("a pseudo header behind others", late),
        ("two methods", with(&[(":method", "GET")])),
        ("two schemes", with(&[(":scheme", "http")])),
        ("two paths", with(&[(":path", "/")])),
        ("two authorities", with(&[(":authority", "api.test")])),
        ("no method", without(":method")),
        ("no scheme", without(":scheme")),
        ("no path", without(":path")),
        ("an empty path", set(":path", "")),
        ("an empty method", set(":method", "")),
        ("a method with a space", set(":method", "GE T")),
        ("a path with a space", set(":path", "/a b")),
        ("a path with a line", set(":path", "/a\r\nx: y")),
        ("no scheme of HTTP", set(":scheme", "ftp")),
        ("a scheme with a line", set(":scheme", "http://a/\r\nx: ")),
        ("connection", with(&[("connection", "close")])),
        ("keep-alive", with(&[("keep-alive", "timeout=5")])),
        ("proxy-connection", with(&[("proxy-connection", "close")])),
        ("transfer-encoding", with(&[("transfer-encoding", "chunked")])),
        ("upgrade", with(&[("upgrade", "websocket")])),
        ("te that is not trailers", with(&[("te", "trailers, deflate")])),
        ("a line in a value", with(&[("x-a", "b\r\nx-c: d")])),
        ("a zero in a value", with(&[("x-a", "b\0c")])),
        ("a length that lies", with(&[("content-length", "5")])),
        ("a length that is none", with(&[("content-length", "-1")])),
        ("two lengths", with(&[("content-length", "0"), ("content-length", "1")])),
    ];
    for (what, fields) in &cases {
        let mut h2 = H2::connect(gateway.edge);
        h2.send(frame(HEADERS, END | END_HEADERS, 1, &block(fields)));
        let end = h2.end(1);
        assert!(upstream.seen().is_empty(), "{what}: no upstream sees it");
        if end == End::GoAway(PROTOCOL_ERROR) {
            continue; // a mistake of a stream may be taken for one of the connection (§5.4)
        }
        assert!(matches!(end, End::Reset(PROTOCOL_ERROR) | End::Status(400)), "{what}: {end:?}");
        h2.send(frame(HEADERS, END | END_HEADERS, 3, &block(&pseudo("GET", "/%2f"))));
        assert_eq!(h2.end(3), End::Status(400), "{what}: the connection lives on");
    }
}

/// §8.1: bodies and trailers that do not fit their request.
#[test]
fn malformed_bodies() {
    let (upstream, gateway) = echo();
    let protocol = &[PROTOCOL_ERROR];
    let announced = |length| {
        let fields = [pseudo("POST", "/"), vec![("content-length", length)]].concat();
        frame(HEADERS, END_HEADERS, 1, &block(&fields))
    };
    stream_error(&gateway, "a shorter body", protocol, &[&announced("5"), &frame(DATA, END, 1, b"four")]);
    stream_error(&gateway, "a longer body", protocol, &[&announced("3"), &frame(DATA, END, 1, b"four")]);
    let halves = [frame(DATA, 0, 1, b"ab"), frame(DATA, END, 1, b"cd")].concat();
    stream_error(&gateway, "a longer body in two", protocol, &[&announced("3"), &halves]);
    let trailers = frame(HEADERS, END | END_HEADERS, 1, &block(&[(":path", "/other")]));
    let mut h2 = H2::connect(gateway.edge);
    h2.send([post(1, "/"), trailers].concat());
    let end = h2.end(1); // or left out: no upstream sees it
    assert!(matches!(end, End::Reset(PROTOCOL_ERROR) | End::Status(200 | 400)), "{end:?}");
    assert!(upstream.seen().iter().all(|seen| seen.target == "/"));
    let upper = frame(HEADERS, END | END_HEADERS, 1, &block(&[("X-Sum", "1")]));
    let mut h2 = H2::connect(gateway.edge);
    h2.send([post(1, "/"), upper].concat());
    assert!(matches!(h2.end(1), End::Reset(PROTOCOL_ERROR) | End::GoAway(PROTOCOL_ERROR)));
    let open = frame(HEADERS, END_HEADERS, 1, &block(&[("x-sum", "1")]));
    stream_error(&gateway, "a second head without an end", protocol, &[&post(1, "/"), &open]);
    // Trailers that are some are read.
    let mut h2 = H2::connect(gateway.edge);
    let good = frame(HEADERS, END | END_HEADERS, 1, &block(&[("x-sum", "1")]));
    h2.send([post(1, "/"), frame(DATA, 0, 1, b"body"), good].concat());
    assert_eq!(h2.end(1), End::Status(200));
}

/// RFC 9110 §7.2, RFC 9113 §8.3.1: the host is the one that the request names, once.
#[test]
fn the_host_is_named_once() {
    let (upstream, gateway) = echo();
    let host = |authority: Option<&'static str>, host: &[&'static str]| {
        let mut fields = vec![(":method", "GET"), (":scheme", "http"), (":path", "/")];
        fields.extend(authority.map(|name| (":authority", name)));
        fields.extend(host.iter().map(|name| ("host", *name)));
        fields
    };
    is_status(&gateway, "an authority", 200, &host(Some("api.test"), &[]));
    is_status(&gateway, "an authority and the same host", 200, &host(Some("api.test"), &["API.test"]));
    is_status(&gateway, "a host", 200, &host(None, &["api.test"]));
    let one = |seen: &crate::harness::Seen| {
        seen.head.one("host").is_some_and(|host| host.eq_ignore_ascii_case("api.test"))
    };
    assert!(upstream.seen().iter().all(one));
    let served = upstream.seen().len();
    is_status(&gateway, "another host", 400, &host(Some("api.test"), &["other.test"]));
    is_status(&gateway, "two hosts", 400, &host(Some("api.test"), &["api.test", "api.test"]));
    is_status(&gateway, "two hosts alone", 400, &host(None, &["api.test", "other.test"]));
    is_status(&gateway, "no host", 400, &host(None, &[]));
    let mut h2 = H2::connect(gateway.edge);
    for (at, name) in
        ["user@api.test", "user:pass@api.test", "api.test/path", "api.test,other.test", "a b", ""]
            .iter()
            .enumerate()
    {
        let stream = at as u32 * 2 + 1;
        h2.send(frame(HEADERS, END | END_HEADERS, stream, &block(&host(Some(name), &[]))));
        let end = h2.end(stream);
        assert!(matches!(end, End::Status(400) | End::Reset(PROTOCOL_ERROR)), "{name:?}: {end:?}");
    }
    assert_eq!(
        upstream.seen().len(),
        served + 4,
        "no upstream sees more than the good requests behind those"
    );
}

/// RFC 9113 §8.3.1, §8.5: targets that are no path, and CONNECT.
#[test]
fn invalid_targets() {
    let (upstream, gateway) = echo();
    let target = |method, path| {
        vec![(":method", method), (":scheme", "http"), (":authority", "api.test"), (":path", path)]
    };
    let mut h2 = H2::connect(gateway.edge);
    for (at, fields) in [
        target("GET", "*"),
        target("GET", "path"),
        target("GET", "http://other.test/"),
        target("GET", "//other.test/%00"),
        target("GET", "/a\x7f"),
    ]
    .iter()
    .enumerate()
    {
        let stream = at as u32 * 2 + 1;
        h2.send(frame(HEADERS, END | END_HEADERS, stream, &block(fields)));
        let end = h2.end(stream);
        assert!(matches!(end, End::Status(400) | End::Reset(PROTOCOL_ERROR)), "{fields:?}: {end:?}");
    }
    let connect = |more: &[(&'static str, &'static str)]| {
        frame(
            HEADERS,
            END_HEADERS,
            21,
            &block(&[&[(":method", "CONNECT"), (":authority", "a.test:443")][..], more].concat()),
        )
    };
    // A fragment is no part of a target, and goes nowhere.
    h2.send(get(19, "/a#b"));
    assert_eq!(h2.end(19), End::Status(200));
    assert_eq!(upstream.seen().pop().unwrap().target, "/a");
    h2.send(connect(&[]));
    let end = h2.end(21);
    assert!(matches!(end, End::Status(405 | 501)), "{end:?}");
    for more in [
        &[("content-length", "5")][..],
        &[(":path", "/"), (":scheme", "http")],
        &[(":path", "/"), (":scheme", "http"), (":protocol", "websocket")],
    ] {
        let mut h2 = H2::connect(gateway.edge);
        h2.send(connect(more));
        let end = h2.end(21);
        assert!(!matches!(end, End::Status(200..400)), "{more:?}: {end:?}");
    }
    assert_eq!(upstream.seen().len(), 1);
}

/// A client that takes nothing, though its windows are large, holds up nobody; and when it reads again, all comes.
#[test]
fn a_client_that_does_not_read_blocks_no_other() {
    const LENGTH: usize = 12 << 20;
    const WINDOW: u32 = i32::MAX as u32;
    let upstream = Upstream::scripted(|exchange| {
        let length = if exchange.seen.target == "/large" { LENGTH } else { 4 };
        exchange.answer(200, &[], &vec![b'x'; length]);
    });
    let gateway = Gateway::before(
        &upstream,
        "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{name: api, match: {path: /*}, upstream: api}]\n",
    );
    let mut slow = H2::with_settings(gateway.edge, &[(4, WINDOW)]);
    slow.send(frame(WINDOW_UPDATE, 0, 0, &(WINDOW - 65_535).to_be_bytes()));
    slow.send(get(1, "/large"));
    assert_eq!(slow.end(1), End::Status(200));
    // Whichever worker has it goes on with others.
    for _ in 0..20 {
        assert!(H2::connect(gateway.edge).serves(1));
    }
    let mut came = 0;
    let last = slow.until(deadline(), |frame| {
        came += if frame.kind == DATA { frame.payload.len() } else { 0 };
        frame.kind == DATA && frame.flags & END != 0
    });
    assert_eq!((last.is_some(), came), (true, LENGTH));
}

/// Over HTTP/1.1 a request without a body has no framing of one, or a length of zero where servers expect a body, whether the client
/// ends it with its head or with an empty frame later.
#[test]
fn requests_without_a_body_have_none_for_the_upstream() {
    let (upstream, gateway) = echo();
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "POST", "PUT", "PATCH"] {
        let expects = ["POST", "PUT", "PATCH"].contains(&method);
        let framing = || {
            let head = upstream.last().head;
            (head.one("content-length").map(str::to_owned), head.one("transfer-encoding").map(str::to_owned))
        };
        let mut h2 = H2::connect(gateway.edge);
        h2.send(frame(HEADERS, END | END_HEADERS, 1, &block(&pseudo(method, "/"))));
        assert_eq!(h2.end(1), End::Status(200), "{method}");
        assert_eq!(framing(), (expects.then(|| "0".to_owned()), None), "{method}");
        if expects {
            continue;
        }
        h2.send(frame(HEADERS, END_HEADERS, 3, &block(&pseudo(method, "/"))));
        h2.send(frame(DATA, 0, 3, b""));
        h2.send(frame(DATA, END, 3, b""));
        assert_eq!(h2.end(3), End::Status(200), "{method}, later");
        assert_eq!(framing(), (None, None), "{method}, later");
        // A body after all.
        h2.send(frame(HEADERS, END_HEADERS, 5, &block(&pseudo(method, "/"))));
        h2.send(frame(DATA, 0, 5, b"bo"));
        h2.send(frame(DATA, END, 5, b"dy"));
        assert_eq!(h2.end(5), End::Status(200), "{method}, with a body");
        assert_eq!(
            (upstream.last().body, framing().1.as_deref()),
            (b"body".to_vec(), Some("chunked")),
            "{method}"
        );
    }
}

/// A small head in many small frames is no flood.
#[test]
fn a_small_head_may_come_in_many_frames() {
    let (_upstream, gateway) = echo();
    let head = block(&pseudo("GET", "/"));
    let mut h2 = H2::connect(gateway.edge);
    h2.send(frame(HEADERS, END, 1, b""));
    for (at, byte) in head.iter().enumerate() {
        let flags = if at + 1 == head.len() { END_HEADERS } else { 0 };
        h2.send(frame(CONTINUATION, flags, 1, &[*byte]));
    }
    assert!(head.len() > 16, "{} frames", head.len());
    assert_eq!(h2.end(1), End::Status(200));
}
