//! From HTTP/2 to HTTP/1.1: the upstream gets exactly the request that was sent, whatever bytes it contains.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::{FORWARD_ALL, Gateway, Upstream, deadline, until};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

type Field<'a> = (&'a [u8], &'a [u8]);

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Headers as they are, never indexed, never compressed (RFC 7541 §6.2.3).
fn block(fields: &[Field<'_>]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0x10);
        for text in [name, value] {
            assert!(text.len() < 127);
            block.push(text.len() as u8);
            block.extend_from_slice(text);
        }
    }
    block
}

/// What became of the first stream.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// It was answered.
    Answered,
    /// It was reset, or the connection ended.
    Broken,
}

/// Sends one request on a connection of its own. Every answer of the gateway has a head; whether it is an error is
/// for the upstream to see, which gets a request or not.
fn send(gateway: &Gateway, fields: &[Field<'_>], data: &[(&[u8], bool)]) -> End {
    let mut stream = TcpStream::connect_timeout(&gateway.edge, deadline()).unwrap();
    stream.set_read_timeout(Some(deadline())).unwrap();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    let flags = if data.is_empty() { END_HEADERS | END_STREAM } else { END_HEADERS };
    bytes.extend(frame(HEADERS, flags, 1, &block(fields)));
    for (piece, last) in data {
        bytes.extend(frame(DATA, if *last { END_STREAM } else { 0 }, 1, piece));
    }
    stream.write_all(&bytes).unwrap();
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).is_err() {
            return End::Broken;
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        if stream.read_exact(&mut payload).is_err() {
            return End::Broken;
        }
        match (head[3], head[8]) {
            (HEADERS, 1) => return End::Answered,
            (RST_STREAM, 1) | (GOAWAY, _) => return End::Broken,
            _ => {}
        }
    }
}

fn request<'a>(method: &'a [u8], path: &'a [u8], more: &[Field<'a>]) -> Vec<Field<'a>> {
    let pseudo: [Field<'a>; 4] =
        [(b":method", method), (b":scheme", b"http"), (b":authority", b"api.test"), (b":path", path)];
    [&pseudo[..], more].concat()
}

fn get<'a>(more: &[Field<'a>]) -> Vec<Field<'a>> {
    request(b"GET", b"/", more)
}

/// An API that echoes, and a gateway before it.
fn edge() -> (Upstream, Gateway) {
    let upstream = Upstream::scripted(|exchange| match exchange.body() {
        Ok(_) => exchange.answer(200, &[], b"done"),
        Err(_) => exchange.close(),
    });
    let gateway = Gateway::before(&upstream, FORWARD_ALL);
    (upstream, gateway)
}

/// What HTTP/2 forbids reaches no API.
#[test]
fn malformed_requests_are_not_forwarded() {
    let (upstream, gateway) = edge();
    assert_eq!(send(&gateway, &get(&[(b"x-fine", b"1")]), &[]), End::Answered);
    upstream.wait_for(1);
    let mut bad: Vec<Vec<Field<'_>>> = Vec::new();
    for field in [
        // What is meant for one connection only (RFC 9113 §8.2.2).
        (&b"connection"[..], &b"x-fine"[..]),
        (b"connection", b"close"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"keep-alive", b"timeout=5"),
        (b"proxy-connection", b"keep-alive"),
        (b"te", b"gzip"),
        (b"te", b"trailers, chunked"),
        // Bytes that end a line or a name.
        (b"x-a", b"1\r\nx-b: 2"),
        (b"x-a", b"1\nx-b: 2"),
        (b"x-a", b"1\rx-b: 2"),
        (b"x-a", b"1\0"),
        (b"x-a\r\nx-b: 2\r\nx-c", b"3"),
        (b"x-a: 1\r\nx-b", b"2"),
        (b"x a", b"1"),
        (b"x-a:", b"1"),
        (b"X-Upper", b"1"),
        (b"", b"1"),
        // A second idea of what is asked.
        (b":path", b"/other"),
        (b":status", b"200"),
        (b"host", b"other.test"),
        (b"host", b"api.test\r\nx-b: 2"),
        (b"content-length", b"5"),
        (b"content-length", b"+0"),
        (b"content-length", b"0, 0"),
    ] {
        bad.push(get(&[field]));
    }
    for path in [
        &b"/a b"[..],
        b"/ HTTP/1.1\r\nx-b: 2\r\n\r\nGET /smuggled",
        b"/a\r\nx-b: 2",
        b"/a\0",
        b"/a\tb",
        b"/a\x7f",
        b"/\xc3\xa4",
        b"/\xff",
        b"",
        b"a",
        b"*",
        b"http://other.test/",
    ] {
        bad.push(request(b"GET", path, &[]));
    }
    for method in [
        &b"GET / HTTP/1.1\r\nx-b: 2\r\n\r\nGET"[..],
        b"GE T",
        b"GET\r\n",
        b"GET\0",
        b"",
        b"G\xc3\xa4T",
        b"CONNECT",
    ] {
        bad.push(request(method, b"/", &[]));
    }
    for authority in [
        &b"api.test\r\nx-b: 2"[..],
        b"api.test x",
        b"user@api.test",
        b"api.test/x",
        b"api.test\0",
        b"api.test#x",
    ] {
        bad.push(vec![
            (b":method", b"GET"),
            (b":scheme", b"http"),
            (b":authority", authority),
            (b":path", b"/"),
        ]);
    }
    // Extended CONNECT (RFC 8441), and CONNECT as it is.
    bad.push(request(b"CONNECT", b"/", &[(b":protocol", b"websocket")]));
    bad.push(vec![(b":method", b"CONNECT"), (b":authority", b"api.test:443")]);
    let mut arrived = String::new();
    for fields in &bad {
        let before = upstream.seen().len();
        send(&gateway, fields, &[]);
        if upstream.seen().len() > before {
            let shown = fields.iter().map(|(n, v)| format!("{}={}", n.escape_ascii(), v.escape_ascii()));
            arrived += &format!("{:?} as {:?}\n", shown.collect::<Vec<_>>(), upstream.last().head);
        }
    }
    assert!(arrived.is_empty(), "{arrived}");
    // A fragment is no part of a request; without it, it is the same for limits and for the API.
    assert_eq!(send(&gateway, &request(b"GET", b"/a#b", &[(b"te", b"trailers")]), &[]), End::Answered);
    assert_eq!(upstream.wait_for(2)[1].target, "/a");
    assert_eq!(upstream.wait_for(2)[1].head.one("te"), None, "it is for one connection");
}

/// A body that is not as long as it was said to be is never taken for a whole one.
#[test]
fn a_body_of_another_length_is_never_whole() {
    let (upstream, gateway) = edge();
    let post = |length: &'static [u8]| request(b"POST", b"/", &[(b"content-length", length)]).to_vec();
    for (length, data) in [
        (&b"10"[..], &[(&b"hello"[..], true)][..]),
        (b"3", &[(b"hello", true)]),
        (b"3", &[(b"hel", false), (b"lo", true)]),
        (b"0", &[(b"GET /smuggled HTTP/1.1\r\n\r\n", true)]),
    ] {
        assert_ne!(send(&gateway, &post(length.to_vec().leak()), data), End::Answered);
    }
    assert_eq!(send(&gateway, &post(b"5"), &[(b"hel", false), (b"lo", true)]), End::Answered);
    // The upstream accepts connections in order, so it has those before. That of the last request is kept.
    until("no other connection is left", || (upstream.open() <= 1).then_some(()));
    let (whole, others): (Vec<_>, Vec<_>) =
        upstream.seen().into_iter().partition(|seen| seen.body == b"hello");
    for seen in others {
        assert!(seen.body.is_empty() && seen.target == "/", "{seen:?}");
    }
    assert_eq!((whole.len(), whole[0].head.one("content-length")), (1, Some("5")));
}

/// A body of unknown length is sent in chunks, and its bytes are never a request.
#[test]
fn a_body_of_unknown_length_is_sent_in_chunks() {
    let (upstream, gateway) = edge();
    let evil = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: api.test\r\n\r\n";
    assert_eq!(
        send(&gateway, &request(b"POST", b"/", &[]), &[(evil, false), (b"more", true)]),
        End::Answered
    );
    let seen = upstream.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].head.one("transfer-encoding"), Some("chunked"));
    assert_eq!(seen[0].body, [&evil[..], b"more"].concat());
    // Methods that mostly have none.
    assert_eq!(send(&gateway, &request(b"GET", b"/", &[]), &[(evil, true)]), End::Answered);
    assert_eq!(upstream.last().body, evil);
    assert_eq!(upstream.seen().len(), 2);
}

/// Cookies that came in several fields arrive in one line (RFC 9113 §8.2.3).
#[test]
fn cookies_arrive_in_one_line() {
    let (upstream, gateway) = edge();
    let cookies: [Field<'_>; 3] = [(b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"cookie", b"c=3; d=4")];
    assert_eq!(send(&gateway, &get(&cookies), &[]), End::Answered);
    assert_eq!(upstream.wait_for(1)[0].head.one("cookie"), Some("a=1; b=2; c=3; d=4"));
}

/// :authority and Host that say the same are one Host.
#[test]
fn host_and_authority_become_one_host() {
    let (upstream, gateway) = edge();
    assert_eq!(send(&gateway, &get(&[(b"host", b"api.test")]), &[]), End::Answered);
    assert_eq!(upstream.wait_for(1)[0].head.one("host"), Some("api.test"));
}
