//! Interim answers: 100 (Continue), and those of the upstream such as 103 (Early Hints).

use std::io::Read;

use crate::harness::h2::{DATA, END, END_HEADERS, End, Frame, H2, HEADERS, block, frame, get, pseudo};
use crate::harness::{Gateway, Upstream, deadline};

const HINT: &str =
    "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\nconnection: x-hop\r\nx-hop: 1\r\n\r\n";

fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::before(
        upstream,
        "upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
         limits: {one: {key: ip, rate: 1/h}}\n\
         routes: [{name: one, match: {path: /one}, upstream: api, limits: [one]}, {name: api, match: {path: /*}, upstream: api}]\n",
    )
}

/// The head of a POST whose client waits for leave to send `length` bytes.
fn waits(stream: u32, path: &str, length: &str, expect: &str) -> Vec<u8> {
    let fields = [pseudo("POST", path), vec![("content-length", length), ("expect", expect)]].concat();
    frame(HEADERS, END_HEADERS, stream, &block(&fields))
}

/// The status of a head: digits as they are, or in the code of RFC 7541.
fn is_status(frame: &Frame, status: &[u8; 3]) -> bool {
    let coded: &[u8] = match status {
        b"100" => &[0x08, 0x00],
        _ => &[0x08, 0x0c],
    };
    frame.kind == HEADERS
        && (frame.payload.windows(3).any(|part| part == status)
            || frame.payload.windows(2).any(|part| part == coded))
}

/// Over HTTP/2 a client that waits for leave gets it when its body is wanted, once, and then its answer.
#[test]
fn continue_over_http2() {
    let upstream = Upstream::echoing();
    let gateway = gateway(&upstream);
    let mut h2 = H2::connect(gateway.edge);
    h2.send(waits(1, "/", "4", "100-continue"));
    let leave = h2.until(deadline(), |frame| frame.stream == 1).expect("leave");
    assert!(is_status(&leave, b"100") && leave.flags & END == 0, "{leave:?}");
    h2.send(frame(DATA, END, 1, b"body"));
    assert_eq!(h2.end(1), End::Status(200));
    let body = h2.until(deadline(), |frame| frame.kind == DATA).expect("the answer");
    assert_eq!(body.payload, b"body");
    // Who does not wait is not told.
    h2.send([waits(3, "/", "4", "100-Continue"), frame(DATA, END, 3, b"more")].concat());
    assert_eq!(h2.end(3), End::Status(200));
}

/// What is refused is refused without leave, and other expectations are not met.
#[test]
fn refused_requests_get_no_continue() {
    let upstream = Upstream::echoing();
    let gateway = gateway(&upstream);
    let mut h2 = H2::connect(gateway.edge);
    h2.send(get(1, "/one"));
    assert_eq!(h2.end(1), End::Status(200));
    h2.send(waits(3, "/one", "4", "100-continue"));
    assert_eq!(h2.end(3), End::Status(429));
    h2.send(waits(5, "/", "4", "miracles"));
    assert_eq!(h2.end(5), End::Status(417));
    assert_eq!(upstream.seen().len(), 1);
}

/// Early hints reach clients before the answer, without what was meant for the gateway's connection.
#[test]
fn early_hints_are_passed_on() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 100 Continue\r\n\r\n");
        exchange.write(HINT);
        if exchange.seen.target == "/together" {
            exchange.write([HINT, "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone"].concat());
        } else {
            exchange.silence();
        }
    });
    let gateway = gateway(&upstream);

    let mut h2 = H2::connect(gateway.edge);
    h2.send(get(1, "/waits"));
    let hint = h2.until(deadline(), |frame| frame.stream == 1).expect("a hint before the answer");
    assert!(is_status(&hint, b"103") && hint.flags & END == 0, "{hint:?}");
    assert!(hint.payload.windows(10).any(|part| part == b"/style.css"));
    assert!(!hint.payload.windows(5).any(|part| part == b"x-hop"));

    let mut h2 = H2::connect(gateway.edge);
    h2.send(get(1, "/together"));
    let mut heads = Vec::new();
    h2.until(deadline(), |frame| {
        heads.extend((frame.kind == HEADERS).then(|| is_status(frame, b"103")));
        frame.stream == 1 && frame.flags & END != 0
    });
    assert_eq!(heads, [true, true, false]);

    let mut client = gateway.client();
    client.request("GET", "/waits", &[]);
    let mut read = vec![0; "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n".len()];
    client.writer().read_exact(&mut read).unwrap();
    assert_eq!(
        String::from_utf8_lossy(&read),
        "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n"
    );

    let mut client = gateway.client();
    client.send("GET /together HTTP/1.0\r\nhost: api.test\r\n\r\n");
    assert_eq!(client.response().status, 200, "HTTP/1.0 has no interim answers");
}
