//! The requirements of RFC 9113 on a server, frame by frame: stream errors end the stream, connection errors end the
//! connection, and unknown frames are ignored.

use crate::harness::h2::{
    COMPRESSION_ERROR, CONTINUATION, DATA, END, END_HEADERS, End, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR,
    GOAWAY, H2, HEADERS, PADDED, PING, PREFACE, PRIORITY, PRIORITY_FLAG, PROTOCOL_ERROR, PUSH_PROMISE,
    RST_STREAM, SETTINGS, STREAM_CLOSED, WINDOW_UPDATE, block, frame, get, number, post, pseudo,
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

/// What a connection that says this ends with.
#[track_caller]
fn connection_error(gateway: &Gateway, what: &str, errors: &[u32], bytes: &[&[u8]]) {
    let mut h2 = H2::connect(gateway.edge);
    h2.send(bytes.concat());
    match h2.end_of(u32::MAX, deadline()) {
        Some(End::Closed) => {}
        // A mistake that has an error of its own may be called by the general one.
        Some(End::GoAway(error)) if errors.contains(&error) || error == PROTOCOL_ERROR => {}
        other => panic!("{what}: {other:?}"),
    }
    assert!(h2.is_closed(), "{what}: the connection is closed");
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

fn u(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&id.to_be_bytes()[..], &u(value)].concat())
}

/// §3.4: what begins otherwise is no HTTP/2, and the connection ends.
#[test]
fn an_invalid_preface() {
    let (_upstream, gateway) = echo();
    for bytes in [&b"INVALID CONNECTION PREFACE\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"] {
        let mut h2 = H2::silent(gateway.edge);
        h2.send(bytes);
        assert!(h2.is_closed(), "{bytes:?}");
    }
    // The first frame is SETTINGS.
    let mut h2 = H2::silent(gateway.edge);
    h2.send([PREFACE, &frame(HEADERS, 0, 1, b"")].concat());
    h2.send(frame(DATA, 0, 0, b""));
    assert!(matches!(h2.end_of(u32::MAX, deadline()), Some(End::GoAway(_) | End::Closed)));
}

/// The preface may come byte by byte, and the first request with it.
#[test]
fn a_preface_in_pieces() {
    let (_upstream, gateway) = echo();
    let mut h2 = H2::silent(gateway.edge);
    for byte in [PREFACE, &setting(1, 0), &get(1, "/")].concat() {
        h2.send([byte]);
    }
    assert_eq!(h2.end(1), End::Status(200));
}

/// §4.1, §5.5: frames, flags and bits that are unknown are ignored.
#[test]
fn unknown_frames_are_ignored() {
    let (_upstream, gateway) = echo();
    let mut h2 = H2::connect(gateway.edge);
    h2.send(frame(0x16, 0xff, 0, &[0; 8])).send(frame(0x16, 0, 7, b""));
    h2.send(setting(0xff, 1)).send(setting(0x0a0a, u32::MAX));
    h2.send(frame(PING, 0x16, 0, b"12345678"));
    h2.send(frame(WINDOW_UPDATE, 0xff, 0x8000_0000, &[0x80, 0, 0, 1]));
    h2.send(frame(HEADERS, 0x10 | END | END_HEADERS, 1, &block(&pseudo("GET", "/"))));
    assert_eq!(h2.end(1), End::Status(200));
    // In the middle of a head they are an error.
    let open = frame(HEADERS, END, 1, &block(&pseudo("GET", "/")));
    connection_error(&gateway, "unknown in a head", &[PROTOCOL_ERROR], &[&open, &frame(0x16, 0, 0, b"")]);
}

/// §4.2: sizes of frames.
#[test]
fn sizes_of_frames() {
    let (_upstream, gateway) = echo();
    let large = vec![0; 16_385];
    let sizes = &[FRAME_SIZE_ERROR];
    connection_error(&gateway, "a large DATA", sizes, &[&post(1, "/"), &frame(DATA, END, 1, &large)]);
    connection_error(&gateway, "a large HEADERS", sizes, &[&frame(HEADERS, END | END_HEADERS, 1, &large)]);
    connection_error(&gateway, "a long PING", sizes, &[&frame(PING, 0, 0, b"123456789")]);
    connection_error(&gateway, "a short PING", sizes, &[&frame(PING, 0, 0, b"1234567")]);
    connection_error(&gateway, "an odd SETTINGS", sizes, &[&frame(SETTINGS, 0, 0, b"12345")]);
    connection_error(&gateway, "SETTINGS that agree and ask", sizes, &[&frame(SETTINGS, END, 0, &[0; 6])]);
    connection_error(
        &gateway,
        "a short RST_STREAM",
        sizes,
        &[&post(1, "/"), &frame(RST_STREAM, 0, 1, b"123")],
    );
    connection_error(&gateway, "a short WINDOW_UPDATE", sizes, &[&frame(WINDOW_UPDATE, 0, 0, b"123")]);
    // The largest that is allowed is read.
    let mut h2 = H2::connect(gateway.edge);
    h2.send(post(1, "/")).send(frame(DATA, END, 1, &large[1..]));
    assert_eq!(h2.end(1), End::Status(200));
}

/// §4.3, RFC 7541: blocks that cannot be read end the connection, as nobody knows the table any more.
#[test]
fn undecodable_header_blocks() {
    let (_upstream, gateway) = echo();
    for (what, bytes) in [
        ("an index of nothing", &[0xff, 0xff, 0x7f][..]),
        ("index zero", &[0x80]),
        ("a table that is too large", &[0x3f, 0xe1, 0xff, 0x7f]),
        ("a string that is cut short", &[0, 5, b'x']),
        ("padding of ones that is too long", &[0, 0x82, 0xff, 0xff, 1, b'x']),
        ("an endless number", &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
    ] {
        let head = frame(HEADERS, END | END_HEADERS, 1, bytes);
        connection_error(&gateway, what, &[COMPRESSION_ERROR], &[&head]);
    }
    let late = [block(&pseudo("GET", "/")), vec![0x20]].concat();
    let late = frame(HEADERS, END | END_HEADERS, 1, &late);
    connection_error(&gateway, "a size of the table behind fields", &[COMPRESSION_ERROR], &[&late]);
}

/// §5.1: frames on streams that are not open.
#[test]
fn states_of_streams() {
    let (_upstream, gateway) = echo();
    let [protocol, closed] = [&[PROTOCOL_ERROR][..], &[STREAM_CLOSED, PROTOCOL_ERROR]];
    connection_error(&gateway, "DATA while idle", protocol, &[&frame(DATA, END, 1, b"x")]);
    connection_error(&gateway, "RST_STREAM while idle", protocol, &[&frame(RST_STREAM, 0, 1, &u(8))]);
    connection_error(&gateway, "WINDOW_UPDATE while idle", protocol, &[&frame(WINDOW_UPDATE, 0, 1, &u(100))]);
    connection_error(
        &gateway,
        "CONTINUATION while idle",
        protocol,
        &[&frame(CONTINUATION, END_HEADERS, 1, b"")],
    );
    // Half-closed: only the stream fails.
    for late in [frame(DATA, END, 1, b"x"), get(1, "/")] {
        let mut h2 = H2::connect(gateway.edge);
        h2.send([get(1, "/"), late].concat());
        assert_eq!(h2.end_of(1, deadline()), Some(End::Reset(STREAM_CLOSED)));
        assert!(h2.serves(3));
    }
    let rest = frame(CONTINUATION, END_HEADERS, 1, b"");
    connection_error(&gateway, "CONTINUATION when half closed", closed, &[&get(1, "/"), &rest]);
    let reset = frame(RST_STREAM, 0, 1, &u(8));
    connection_error(&gateway, "HEADERS on a reset stream", closed, &[&post(1, "/"), &reset, &post(1, "/")]);
    // DATA and HEADERS on a stream that has ended on both sides.
    for late in [frame(DATA, END, 1, b"x"), get(1, "/")] {
        let mut h2 = H2::connect(gateway.edge);
        assert!(h2.serves(1));
        h2.send(late);
        let end = h2.end_of(1, deadline());
        assert!(
            matches!(
                end,
                Some(End::Reset(STREAM_CLOSED) | End::GoAway(STREAM_CLOSED | PROTOCOL_ERROR) | End::Closed)
            ),
            "{end:?}"
        );
    }
    // These may come late.
    let mut h2 = H2::connect(gateway.edge);
    assert!(h2.serves(1));
    h2.send(frame(WINDOW_UPDATE, 0, 1, &u(10))).send(frame(RST_STREAM, 0, 1, &u(8)));
    h2.send(frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 7]));
    assert!(h2.serves(3));
}

/// §5.1.1: streams of clients are odd, and each is higher than those before.
#[test]
fn numbers_of_streams() {
    let (_upstream, gateway) = echo();
    let protocol = &[PROTOCOL_ERROR, STREAM_CLOSED];
    connection_error(&gateway, "an even stream", protocol, &[&get(2, "/")]);
    connection_error(&gateway, "a lower stream", protocol, &[&get(5, "/"), &get(3, "/")]);
    connection_error(&gateway, "HEADERS on stream 0", protocol, &[&get(0, "/")]);
    connection_error(&gateway, "DATA on stream 0", protocol, &[&frame(DATA, 0, 0, b"x")]);
    connection_error(&gateway, "RST_STREAM on stream 0", protocol, &[&frame(RST_STREAM, 0, 0, &u(8))]);
    connection_error(&gateway, "PRIORITY on stream 0", protocol, &[&frame(PRIORITY, 0, 0, &[0; 5])]);
    connection_error(&gateway, "CONTINUATION on stream 0", protocol, &[&frame(CONTINUATION, 4, 0, b"")]);
    connection_error(&gateway, "SETTINGS on a stream", protocol, &[&frame(SETTINGS, 0, 1, b"")]);
    connection_error(&gateway, "PING on a stream", protocol, &[&frame(PING, 0, 1, &[0; 8])]);
    connection_error(&gateway, "GOAWAY on a stream", protocol, &[&frame(GOAWAY, 0, 1, &[0; 8])]);
    let push = frame(PUSH_PROMISE, END_HEADERS, 1, &[&u(2)[..], &block(&pseudo("GET", "/"))].concat());
    connection_error(&gateway, "PUSH_PROMISE", protocol, &[&post(1, "/"), &push]);
}

/// §5.3: a stream that depends on itself is a mistake; priorities are ignored otherwise.
#[test]
fn priorities() {
    let (_upstream, gateway) = echo();
    // In the head of a request.
    let own = [&[0, 0, 0, 1, 9][..], &block(&pseudo("GET", "/"))].concat();
    let head = frame(HEADERS, END | END_HEADERS | PRIORITY_FLAG, 1, &own);
    let mut h2 = H2::connect(gateway.edge);
    h2.send(head);
    assert!(matches!(h2.end(1), End::Reset(PROTOCOL_ERROR) | End::GoAway(PROTOCOL_ERROR)));
    let mut h2 = H2::connect(gateway.edge);
    h2.send(frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 9]));
    assert!(matches!(h2.end(1), End::Reset(PROTOCOL_ERROR) | End::GoAway(PROTOCOL_ERROR)));
    let other = [&[0, 0, 0, 3, 9][..], &block(&pseudo("GET", "/"))].concat();
    let mut h2 = H2::connect(gateway.edge);
    h2.send(frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 9]));
    h2.send(frame(HEADERS, END | END_HEADERS | PRIORITY_FLAG, 1, &other));
    assert_eq!(h2.end(1), End::Status(200));
}

/// §6.1, §6.2: padding that is longer than the frame.
#[test]
fn padding() {
    let (_upstream, gateway) = echo();
    let protocol = &[PROTOCOL_ERROR];
    let data = frame(DATA, END | PADDED, 1, &[6, b'x', 0, 0]);
    connection_error(&gateway, "padding of DATA", protocol, &[&post(1, "/"), &data]);
    let head = [&[200][..], &block(&pseudo("GET", "/"))].concat();
    let head = frame(HEADERS, END | END_HEADERS | PADDED, 1, &head);
    connection_error(&gateway, "padding of HEADERS", protocol, &[&head]);
    let mut h2 = H2::connect(gateway.edge);
    let head = [&[2][..], &block(&pseudo("POST", "/")), &[0, 0]].concat();
    h2.send(frame(HEADERS, END_HEADERS | PADDED, 1, &head));
    h2.send(frame(DATA, END | PADDED, 1, &[2, b'x', 0, 0]));
    assert_eq!(h2.end(1), End::Status(200));
}

/// §6.5.2: values of settings.
#[test]
fn values_of_settings() {
    let (_upstream, gateway) = echo();
    let protocol = &[PROTOCOL_ERROR];
    connection_error(&gateway, "ENABLE_PUSH 2", protocol, &[&setting(2, 2)]);
    connection_error(&gateway, "a window of 2^31", &[FLOW_CONTROL_ERROR], &[&setting(4, 1 << 31)]);
    connection_error(&gateway, "a frame of 16383", protocol, &[&setting(5, 16_383)]);
    connection_error(&gateway, "a frame of 2^24", protocol, &[&setting(5, 1 << 24)]);
    let mut h2 = H2::connect(gateway.edge);
    h2.send(setting(3, 100));
    let agreed = h2.until(deadline(), |frame| frame.kind == SETTINGS && frame.flags & END != 0);
    assert!(agreed.unwrap().payload.is_empty(), "SETTINGS are agreed to");
}

/// §6.7: PING is answered with the same bytes, and an answer is not.
#[test]
fn pings() {
    let (_upstream, gateway) = echo();
    let mut h2 = H2::connect(gateway.edge);
    h2.send(frame(PING, END, 0, b"no ping!")).send(frame(PING, 0, 0, b"sluices!"));
    let pong = h2.until(deadline(), |frame| frame.kind == PING).unwrap();
    assert_eq!((pong.flags, pong.payload.as_slice()), (END, &b"sluices!"[..]));
}

/// §6.8: what is under way when the client says GOAWAY is answered.
#[test]
fn goaway_of_the_client() {
    let (_upstream, gateway) = echo();
    let mut h2 = H2::connect(gateway.edge);
    h2.send(get(1, "/")).send(frame(GOAWAY, 0, 0, &[0; 8]));
    assert_eq!(h2.end(1), End::Status(200));
    assert!(h2.is_closed());
}

/// §6.9: windows.
#[test]
fn windows() {
    let (_upstream, gateway) = echo();
    let flow = &[FLOW_CONTROL_ERROR];
    let zero = |stream| frame(WINDOW_UPDATE, 0, stream, &u(0));
    let most = |stream| frame(WINDOW_UPDATE, 0, stream, &u(0x7fff_ffff));
    connection_error(&gateway, "an increment of 0", &[PROTOCOL_ERROR], &[&zero(0)]);
    let mut h2 = H2::connect(gateway.edge);
    h2.send(post(1, "/")).send(zero(1));
    assert!(matches!(h2.end(1), End::Reset(PROTOCOL_ERROR) | End::GoAway(PROTOCOL_ERROR)));
    connection_error(&gateway, "a window of the connection that overflows", flow, &[&most(0), &most(0)]);
    stream_error(&gateway, "a window of a stream that overflows", flow, &[&post(1, "/"), &most(1), &most(1)]);
    let some = frame(WINDOW_UPDATE, 0, 1, &u(1 << 20));
    connection_error(
        &gateway,
        "windows that overflow",
        flow,
        &[&post(1, "/"), &some, &setting(4, 0x7fff_ffff)],
    );

    // Nothing is sent that there is no window for, and what is left comes with the window, also through SETTINGS.
    for more in [frame(WINDOW_UPDATE, 0, 1, &u(1)), setting(4, 4)] {
        let mut h2 = H2::with_settings(gateway.edge, &[(4, 3)]);
        h2.send(post(1, "/")).send(frame(DATA, END, 1, b"abcd"));
        let data = h2.until(deadline(), |frame| frame.kind == DATA).unwrap();
        assert_eq!((data.payload.as_slice(), data.flags & END), (&b"abc"[..], 0));
        h2.send(more);
        let data = h2.until(deadline(), |frame| frame.kind == DATA).unwrap();
        assert_eq!((data.payload.as_slice(), data.flags & END), (&b"d"[..], END));
    }
    // A window may become negative.
    let mut h2 = H2::with_settings(gateway.edge, &[(4, 3)]);
    h2.send(post(1, "/")).send(frame(DATA, END, 1, b"abcd"));
    h2.until(deadline(), |frame| frame.kind == DATA).unwrap();
    h2.send([setting(4, 0), frame(WINDOW_UPDATE, 0, 1, &u(4))].concat());
    let data = h2.until(deadline(), |frame| frame.kind == DATA).unwrap();
    assert_eq!(data.payload, b"d");
}

/// §6.10: a head is one piece.
#[test]
fn heads_in_pieces() {
    let (_upstream, gateway) = echo();
    let protocol = &[PROTOCOL_ERROR];
    let head = block(&pseudo("GET", "/"));
    let (first, second) = head.split_at(10);
    let open = frame(HEADERS, END, 1, first);
    for (what, between) in [
        ("DATA", frame(DATA, 0, 1, b"x")),
        ("HEADERS", get(3, "/")),
        ("CONTINUATION of another", frame(CONTINUATION, END_HEADERS, 3, second)),
        ("PING", frame(PING, 0, 0, &[0; 8])),
        ("SETTINGS", frame(SETTINGS, 0, 0, b"")),
        ("PRIORITY", frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 7])),
    ] {
        connection_error(&gateway, what, protocol, &[&open, &between]);
    }
    let mut h2 = H2::connect(gateway.edge);
    let (second, third) = second.split_at(5);
    h2.send(open).send(frame(CONTINUATION, 0, 1, second)).send(frame(CONTINUATION, END_HEADERS, 1, third));
    assert_eq!(h2.end(1), End::Status(200));
}

/// What the gateway agrees to: a hundred requests at once, frames of 16 KiB, no push.
#[test]
fn settings_of_the_gateway() {
    let (_upstream, gateway) = echo();
    let mut h2 = H2::silent(gateway.edge);
    h2.send([PREFACE, &frame(SETTINGS, 0, 0, b"")].concat());
    let settings = h2.until(deadline(), |frame| frame.kind == SETTINGS && frame.flags & END == 0).unwrap();
    let value = |id: u16| {
        settings
            .payload
            .chunks(6)
            .find(|entry| entry[..2] == id.to_be_bytes())
            .map(|entry| number(&entry[2..]))
    };
    assert_eq!(value(3), Some(100), "requests at once");
    assert_eq!(value(4), Some(64 << 10), "the window of a request");
    assert!(value(5).is_none_or(|size| size == 16_384), "frames");
    assert_eq!(value(6), Some(32 << 10), "heads");
}
