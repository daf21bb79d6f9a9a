//! Floods of HTTP/2 frames that cost their sender nothing: the connection is closed within a few hundred
//! frames, and other clients are served meanwhile. Honest clients that send many of the same frames are not affected.

use std::time::Duration;

use crate::harness::h2::{
    CALM, CONTINUATION, DATA, END, END_HEADERS, End, GOAWAY, H2, HEADERS, PADDED, PING, PRIORITY, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, block, frame, get, number, post, pseudo, stream,
};
use crate::harness::{Gateway, Upstream, deadline, gated_upstream, until, within};

/// Frames that are written before what came back is looked at.
const BATCH: usize = 20;
/// How long is waited for that.
const LOOK: Duration = Duration::from_millis(20);
/// The frames after which a connection is cut off at the latest. The budgets are smaller; what the gateway gives back with
/// time, and what is sent before it has read the last of them, comes on top.
const MOST: usize = 500;

fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::before(
        upstream,
        "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{name: api, match: {path: /*}, upstream: api}]\n",
    )
}

/// Sends what `flood` makes of 0, 1, 2 … until the connection is cut off; how many frames that took, and with what
/// error. `each` is the number of frames in one of them.
fn flood(gateway: &Gateway, h2: &mut H2, each: usize, mut flood: impl FnMut(u32) -> Vec<u8>) -> (usize, End) {
    let mut sent = 0;
    let mut number_of = 0;
    while sent < 2_000 {
        let mut batch = Vec::new();
        for _ in 0..BATCH.div_ceil(each) {
            batch.extend(flood(number_of));
            number_of += 1;
            sent += each;
        }
        h2.try_send(batch);
        let mut other = gateway.client();
        assert_eq!(other.get("/").status, 200, "another client is served");
        if let Some(end @ (End::GoAway(_) | End::Closed)) = h2.end_of(u32::MAX, LOOK) {
            return (sent, end);
        }
    }
    panic!("not cut off after {sent} frames");
}

#[track_caller]
fn is_cut(gateway: &Gateway, each: usize, reason: &str, with: impl FnMut(u32) -> Vec<u8>) {
    let mut h2 = H2::connect(gateway.edge);
    is_cut_on(gateway, &mut h2, each, reason, with);
}

#[track_caller]
fn is_cut_on(gateway: &Gateway, h2: &mut H2, each: usize, reason: &str, with: impl FnMut(u32) -> Vec<u8>) {
    let cut = || gateway.metric("sluicegate_h2_cut_total", &[("reason", reason)]);
    let before = cut();
    let (frames, end) = flood(gateway, h2, each, with);
    assert!(frames <= MOST, "{reason}: cut off after {frames} frames");
    assert_eq!(end, End::GoAway(CALM), "{reason} after {frames} frames");
    assert!(h2.is_closed(), "{reason}: the connection is closed");
    until("the cut is counted", || (cut() > before).then_some(()));
}

/// Requests that are taken back at once (CVE-2023-44487).
#[test]
fn rapid_resets() {
    let upstream = Upstream::answering("done");
    let gateway = gateway(&upstream);
    let both = |at| [get(stream(at), "/"), frame(RST_STREAM, 0, stream(at), &8_u32.to_be_bytes())].concat();
    let mut h2 = H2::connect(gateway.edge);
    let (frames, end) = flood(&gateway, &mut h2, 2, both);
    assert!(frames <= MOST, "{frames}");
    assert_eq!(end, End::GoAway(CALM));
}

/// The same, one by one, each when it is already forwarded.
#[test]
fn resets_of_requests_that_are_forwarded() {
    let (upstream, gate) = gated_upstream();
    let gateway = gateway(&upstream);
    let mut h2 = H2::connect(gateway.edge);
    let is_cut = |h2: &mut H2| {
        let end = h2.end_of(u32::MAX, Duration::from_millis(2));
        end.filter(|end| matches!(end, End::GoAway(_) | End::Closed))
    };
    let mut sent = 0;
    let end = loop {
        h2.send(get(stream(sent), "/slow"));
        // The GOAWAY for the last reset may arrive after this request was sent. It is looked for only when nothing was
        // forwarded for a while: a reset counts if it comes soon after its request.
        let end = until("the request is forwarded or the connection is cut", || {
            let is_forwarded = || (upstream.seen().len() > sent as usize).then_some(());
            if within(LOOK, is_forwarded).is_some() { Some(None) } else { is_cut(&mut h2).map(Some) }
        });
        h2.send(frame(RST_STREAM, 0, stream(sent), &8_u32.to_be_bytes()));
        sent += 1;
        if let Some(end) = end.or_else(|| is_cut(&mut h2)) {
            break end;
        }
        assert!(sent <= 400, "not cut off after {sent} resets"); // some may come too late to count
    };
    assert_eq!(end, End::GoAway(CALM));
    gate.open();
}

/// Resets of one stream that is long gone.
#[test]
fn resets_of_idle_streams() {
    let upstream = Upstream::answering("done");
    let gateway = gateway(&upstream);
    let mut h2 = H2::connect(gateway.edge);
    assert!(h2.serves(1));
    is_cut_on(&gateway, &mut h2, 1, "resets", |_| frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes()));
}

/// Requests that the gateway has to reset for their mistakes (CVE-2025-8671).
#[test]
fn made_you_reset() {
    let upstream = Upstream::answering("done");
    let gateway = gateway(&upstream);
    // More data than the request announced.
    let fields = [pseudo("POST", "/"), vec![("content-length", "1")]].concat();
    is_cut(&gateway, 2, "errors", |at| {
        let head = frame(HEADERS, END_HEADERS, stream(at), &block(&fields));
        [head, frame(DATA, 0, stream(at), b"more")].concat()
    });
    // A window that overflows.
    is_cut(&gateway, 2, "errors", |at| {
        [post(stream(at), "/"), frame(WINDOW_UPDATE, 0, stream(at), &0x7fff_ffff_u32.to_be_bytes())].concat()
    });
}

/// A head that never ends (CVE-2024-24549 and its like).
#[test]
fn continuations() {
    let upstream = Upstream::answering("done");
    let gateway = gateway(&upstream);
    let mut h2 = H2::connect(gateway.edge);
    h2.send(frame(HEADERS, END, 1, &block(&pseudo("GET", "/"))));
    let more = block(&[("x-more", "x")]);
    let (frames, end) = flood(&gateway, &mut h2, 1, |_| frame(CONTINUATION, 0, 1, &more));
    assert!(frames <= MOST && end == End::GoAway(CALM), "{frames} {end:?}");
    let mut h2 = H2::connect(gateway.edge);
    h2.send(frame(HEADERS, END, 1, &block(&pseudo("GET", "/"))));
    let (frames, end) = flood(&gateway, &mut h2, 1, |_| frame(CONTINUATION, 0, 1, b""));
    assert!(frames <= MOST && end == End::GoAway(CALM), "{frames} {end:?}");
}

#[test]
fn settings() {
    let upstream = Upstream::answering("done");
    let gateway = gateway(&upstream);
    is_cut(&gateway, 1, "settings", |_| frame(SETTINGS, 0, 0, b""));
    is_cut(&gateway, 1, "settings", |at| {
        frame(SETTINGS, 0, 0, &[&[0, 4][..], &(at + 1).to_be_bytes()].concat())
    });
}

#[test]
fn pings() {
    let upstream = Upstream::answering("done");
    let gateway = gateway(&upstream);
    is_cut(&gateway, 1, "pings", |_| frame(PING, 0, 0, b"12345678"));
    is_cut(&gateway, 1, "pings", |_| frame(PING, END, 0, b"12345678"));
}

/// Data with nothing in it, with padding or without.
#[test]
fn empty_data() {
    let (upstream, gate) = gated_upstream();
    let gateway = gateway(&upstream);
    for (flags, payload) in [(0, &b""[..]), (PADDED, &[3, 0, 0, 0])] {
        let mut h2 = H2::connect(gateway.edge);
        h2.send(post(1, "/slow"));
        is_cut_on(&gateway, &mut h2, 1, "empty_data", |_| frame(DATA, flags, 1, payload));
    }
    gate.open();
}

#[test]
fn empty_heads() {
    let upstream = Upstream::answering("done");
    let gateway = gateway(&upstream);
    is_cut(&gateway, 1, "errors", |at| frame(HEADERS, END | END_HEADERS, stream(at), b""));
    is_cut(&gateway, 1, "errors", |at| frame(HEADERS, END_HEADERS, stream(at), b""));
}

/// One large value in the table, and thousands of references to it.
#[test]
fn header_table_bomb() {
    let upstream = Upstream::answering("done");
    let gateway = gateway(&upstream);
    let mut h2 = H2::connect(gateway.edge);
    let large = "x".repeat(3_900);
    let mut first = block(&pseudo("GET", "/"));
    first.extend([0x40, 1, b'x', 127, 0xbd, 0x1d]); // 3,900 bytes, to be remembered
    first.extend(large.as_bytes());
    h2.send(frame(HEADERS, END | END_HEADERS, 1, &first));
    assert_eq!(h2.end(1), End::Status(200));
    let bomb = [block(&pseudo("GET", "/")), vec![0x80 | 62; 4_000]].concat();
    let (frames, end) =
        flood(&gateway, &mut h2, 1, |at| frame(HEADERS, END | END_HEADERS, stream(at + 1), &bomb));
    assert!(frames <= MOST && end == End::GoAway(CALM), "{frames} {end:?}");
}

/// More requests at once than are allowed.
#[test]
fn streams_over_the_limit() {
    let (upstream, gate) = gated_upstream();
    let gateway = gateway(&upstream);
    let mut h2 = H2::connect(gateway.edge);
    let all: Vec<u8> = (0..100).flat_map(|at| get(stream(at), "/slow")).collect();
    h2.send(all);
    upstream.wait_for(100);
    is_cut_on(&gateway, &mut h2, 1, "errors", |at| get(stream(100 + at), "/slow"));
    gate.open();
}

/// Heads that unpack to more than is allowed, but not to so much more that they are a bomb.
#[test]
fn large_heads_in_few_bytes() {
    let upstream = Upstream::answering("done");
    let gateway = gateway(&upstream);
    let mut h2 = H2::connect(gateway.edge);
    let mut first = block(&pseudo("GET", "/"));
    first.extend([0x40, 1, b'x', 127, 0xbd, 0x1d]); // 3,900 bytes, to be remembered
    first.extend([b'x'; 3_900]);
    h2.send(frame(HEADERS, END | END_HEADERS, 1, &first));
    assert_eq!(h2.end(1), End::Status(200));
    let large = [block(&pseudo("GET", "/")), vec![0x80 | 62; 15]].concat();
    h2.send(frame(HEADERS, END | END_HEADERS, 3, &large));
    assert_eq!(h2.end(3), End::Status(431));
    is_cut_on(&gateway, &mut h2, 1, "large_heads", |at| {
        frame(HEADERS, END | END_HEADERS, stream(at + 2), &large)
    });
}

/// Heads that are too large: each is refused, and a flood of them cut off.
#[test]
fn large_heads() {
    let upstream = Upstream::answering("done");
    let gateway = gateway(&upstream);
    let value = "x".repeat(16_000);
    let large =
        block(&[pseudo("GET", "/"), vec![("x-a", &value), ("x-b", &value), ("x-c", &value)]].concat());
    let parts: Vec<&[u8]> = large.chunks(16_384).collect();
    is_cut(&gateway, parts.len(), "large_heads", |at| {
        let mut bytes = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let (kind, first) = if index == 0 { (HEADERS, END) } else { (CONTINUATION, 0) };
            let last = if index + 1 == parts.len() { END_HEADERS } else { 0 };
            bytes.extend(frame(kind, first | last, stream(at), part));
        }
        bytes
    });
}

#[test]
fn priorities() {
    let upstream = Upstream::answering("done");
    let gateway = gateway(&upstream);
    is_cut(&gateway, 1, "priorities", |at| frame(PRIORITY, 0, stream(at), &[0, 0, 0, 0, 5]));
    is_cut(&gateway, 1, "priorities", |at| {
        frame(16, 0, 0, &[&stream(at).to_be_bytes()[..], b"u=1"].concat())
    });
}

#[test]
fn window_updates() {
    let upstream = Upstream::answering("done");
    let gateway = gateway(&upstream);
    is_cut(&gateway, 1, "window_updates", |_| frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()));
    let (upstream, gate) = gated_upstream();
    let gateway = self::gateway(&upstream);
    let mut h2 = H2::connect(gateway.edge);
    h2.send(get(1, "/slow"));
    is_cut_on(&gateway, &mut h2, 1, "window_updates", |_| frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()));
    gate.open();
}

/// Frames of kinds that nobody knows, and farewells without a parting.
#[test]
fn other_frames() {
    let upstream = Upstream::answering("done");
    let gateway = gateway(&upstream);
    is_cut(&gateway, 1, "others", |_| frame(0xbe, 0, 0, b"grease"));
    let (upstream, gate) = gated_upstream();
    let gateway = self::gateway(&upstream);
    let mut h2 = H2::connect(gateway.edge);
    h2.send(get(1, "/slow"));
    is_cut_on(&gateway, &mut h2, 1, "others", |_| frame(GOAWAY, 0, 0, &[0; 8]));
    gate.open();
}

/// A client that reads an answer in small steps, measures the path, and sends a PING with each frame is no flood.
#[test]
fn an_honest_client_is_not_cut_off() {
    const LENGTH: usize = 4 << 20;
    let upstream = Upstream::scripted(|exchange| {
        if exchange.body().is_ok() {
            exchange.answer(200, &[], &vec![b'x'; LENGTH]);
        }
    });
    let gateway = gateway(&upstream);
    let mut h2 = H2::connect(gateway.edge);
    h2.send(get(1, "/"));
    let (mut received, mut frames) = (0, 0_u32);
    while received < LENGTH {
        let data =
            h2.until(deadline(), |frame| frame.kind == DATA || frame.kind == GOAWAY).expect("more data");
        assert_eq!(data.kind, DATA, "GOAWAY after {received} bytes: {}", number(&data.payload[4..]));
        received += data.payload.len();
        frames += 1;
        let half = (data.payload.len() as u32).to_be_bytes();
        h2.send(
            [
                frame(WINDOW_UPDATE, 0, 0, &half),
                frame(WINDOW_UPDATE, 0, 1, &half),
                frame(PING, 0, 0, &[1; 8]),
            ]
            .concat(),
        );
    }
    assert!(frames > 200);
    assert!(h2.serves(3));
}

/// A browser that leaves a page takes back what it asked for long ago, and goes on.
#[test]
fn a_client_may_cancel_old_requests() {
    let (upstream, gate) = gated_upstream();
    let gateway = gateway(&upstream);
    let mut h2 = H2::connect(gateway.edge);
    let all: Vec<u8> = (0..99).flat_map(|at| get(stream(at), "/slow")).collect();
    h2.send(all);
    upstream.wait_for(99);
    crate::harness::sleep(Duration::from_millis(1_500));
    let all: Vec<u8> =
        (0..99).flat_map(|at| frame(RST_STREAM, 0, stream(at), &8_u32.to_be_bytes())).collect();
    h2.send(all);
    assert!(h2.serves(stream(100)));
    gate.open();
}

/// Ten thousand requests in a row over one connection, a hundred at once, are all answered.
#[test]
fn many_requests_in_a_row_are_answered() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, "routes: [{name: api, respond: {status: 204}}]\n");
    let mut h2 = H2::connect(gateway.edge);
    for turn in 0..100 {
        let all: Vec<u8> = (0..100).flat_map(|at| get(stream(turn * 100 + at), "/")).collect();
        h2.send(all);
        let mut answers = 0;
        h2.until(deadline(), |frame| {
            assert!(frame.kind != GOAWAY && frame.kind != RST_STREAM, "{frame:?} in turn {turn}");
            answers += u32::from(frame.kind == HEADERS);
            answers == 100
        })
        .expect("all are answered");
    }
}
