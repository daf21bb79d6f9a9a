//! Messages that servers have read in several ways, put together at random and with bytes changed.

use proptest::prelude::*;

const REQUEST_LINES: [&str; 20] = [
    "GET / HTTP/1.1",
    "GET /a?b=c HTTP/1.1",
    "POST / HTTP/1.1",
    "POST / HTTP/1.1",
    "PUT /x HTTP/1.1",
    "HEAD / HTTP/1.1",
    "GET / HTTP/1.0",
    "POST / HTTP/1.0",
    "OPTIONS * HTTP/1.1",
    "GET http://a.test/b HTTP/1.1",
    "GET http://a.test?b HTTP/1.1",
    "GET HTTPS://u@a.test:80 HTTP/1.1",
    "CONNECT a.test:443 HTTP/1.1",
    "M-SEARCH /%7e HTTP/1.1",
    "get / HTTP/1.1",
    "GET  / HTTP/1.1",
    "GET / HTTP/1.1 ",
    "GET /\t HTTP/1.1",
    "GET /#a HTTP/1.1",
    "GET / HTTP/2.0",
];

const STATUS_LINES: [&str; 17] = [
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200 OK",
    "HTTP/1.0 200 OK",
    "HTTP/1.1 204 No Content",
    "HTTP/1.1 304 Not Modified",
    "HTTP/1.1 404",
    "HTTP/1.1 404 ",
    "HTTP/1.1 500 a b\tc",
    "HTTP/1.1 599 X",
    "HTTP/1.1 101 Switching Protocols",
    "HTTP/1.1 205 Reset Content",
    "HTTP/1.1 600 X",
    "HTTP/1.1 099 X",
    "HTTP/1.1  200 OK",
    "HTTP/1.1 20 OK",
    "HTTP/1.2 200 OK",
];

const FIELDS: [&str; 48] = [
    "Host: a.test",
    "Content-Length: 5",
    "Content-Length: 5",
    "content-length:5",
    "Content-Length:\t5 ",
    "Content-Length: 0",
    "Content-Length: 00005",
    "Content-Length: 6",
    "Content-Length: 5, 5",
    "Content-Length: 5,6",
    "Content-Length: +5",
    "Content-Length: -5",
    "Content-Length: 0x5",
    "Content-Length: 5 5",
    "Content-Length: ",
    "Content-Length : 5",
    "Content-Length: 18446744073709551616",
    "Content-Length: 9223372036854775808",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked",
    "TRANSFER-ENCODING: Chunked",
    "Transfer-Encoding:chunked\t",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, gzip",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: \u{b}chunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding: ",
    "Transfer_Encoding: chunked",
    "Connection: close",
    "Connection: Close",
    "Connection: keep-alive",
    "Connection: keep-alive, close",
    "Connection: x, close ,y",
    "Connection: \"close\"",
    "Connection: Upgrade\r\nUpgrade: websocket",
    "Expect: 100-continue",
    "TE: trailers",
    "Trailer: x-sum",
    "X-A: b\r\n c",
    "X-A: b\n X-B: c",
    "X-A: b\rX-B: c",
    "X-Empty:",
    "X-\u{fc}: a",
    "X-L: \u{fc}",
    " X-A: b",
];

const BODIES: [&str; 25] = [
    "",
    "hello",
    "hell",
    "5\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n",
    "5\r\nhello\r\n0\r\nX-Sum: 7\r\nHost: b\r\nX-Sum:8\r\n\r\n",
    "0\r\n\r\n",
    "A\r\n0123456789\r\n00\r\n\r\n",
    "5;a=b\r\nhello\r\n0;c\r\n\r\n",
    "5 ; a = \"b;\\\"\"\r\nhello\r\n0\r\n\r\n",
    "5; a\t=\"b\"\r\nhello\r\n0\r\n\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
    "5\nhello\r\n0\r\n\r\n",
    "5;a\nb\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello0\r\n\r\n",
    "5\r\nhello\n0\r\n\r\n",
    "5\r\nhello\r\n0\r\nX: y\n\r\n",
    "5\r\nhello\r\n0\r\n X: y\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "+5\r\nhello\r\n0\r\n\r\n",
    "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "0000000000000005\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n-0\r\n\r\n",
    "hello\r\n",
];

/// The end of most lines.
const ENDS: [&str; 8] = ["\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r"];

/// A piece of text in Latin-1, as it goes over the wire.
fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect()
}

/// One message with this first line.
fn message(lines: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let line = (prop::sample::select(&FIELDS[..]), 0_usize..200)
        .prop_map(|(field, end)| [&latin1(field)[..], ENDS.get(end).unwrap_or(&"\r\n").as_bytes()].concat());
    (prop::sample::select(lines), prop::collection::vec(line, 0..4), prop::sample::select(&BODIES[..]))
        .prop_map(|(first, fields, body)| {
            [&latin1(first)[..], b"\r\n", &fields.concat(), b"\r\n", &latin1(body)].concat()
        })
}

/// The same bytes with a few that are others, missing or added.
fn changed(bytes: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let odd = prop_oneof![prop::sample::select(b"\r\n\t :;,\0\x0b\x7f0".to_vec()), any::<u8>()];
    let change = (any::<prop::sample::Index>(), 0_u8..3, odd);
    let changes = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(change, 1..3)];
    (bytes, changes).prop_map(|(mut bytes, changes)| {
        for (at, how, byte) in changes {
            let at = at.index(bytes.len().max(1));
            match how {
                0 if at < bytes.len() => bytes[at] = byte,
                1 if at < bytes.len() => _ = bytes.remove(at),
                _ => bytes.insert(at.min(bytes.len()), byte),
            }
        }
        bytes
    })
}

/// What comes on the connection of a client: up to three requests.
pub(crate) fn requests() -> impl Strategy<Value = Vec<u8>> {
    changed(prop::collection::vec(message(&REQUEST_LINES), 1..4).prop_map(|requests| requests.concat()))
}

/// What an upstream answers, with or without an interim response before it.
pub(crate) fn response() -> impl Strategy<Value = Vec<u8>> {
    let interim = prop_oneof![
        8 => Just(""),
        1 => Just("HTTP/1.1 100 Continue\r\n\r\n"),
        1 => Just("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 7\r\n\r\n"),
    ];
    changed(
        (interim, message(&STATUS_LINES))
            .prop_map(|(interim, response)| [interim.as_bytes(), &response].concat()),
    )
}
