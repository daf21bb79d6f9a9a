//! Cancelled requests over HTTP/2: honest clients may cancel as often as they like, and floods are cut off without
//! harm to answers in progress.

use std::time::Duration;

use crate::harness::h2::{CALM, DATA, END, GOAWAY, H2, HEADERS, RST_STREAM, frame, get, number, stream};
use crate::harness::{Gate, Gateway, Upstream, deadline, gated_upstream, sleep};

const REFUSED_STREAM: u32 = 7;
const CANCEL: [u8; 4] = [0, 0, 0, 8];

fn gateway(upstream: &Upstream, more: &str) -> Gateway {
    let yaml = "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{name: api, match: {path: /*}, upstream: api}]\n";
    Gateway::before(upstream, &format!("{more}{yaml}"))
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &CANCEL)
}

/// An upstream that begins a download, and ends it when the gate is open; all else waits until it closes.
fn downloads() -> (Upstream, Gate) {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::scripted(move |exchange| match exchange.seen.target.as_str() {
        "/download" => {
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf");
            waits.wait();
            exchange.write("done");
        }
        "/" => exchange.answer(200, &[], b"done"),
        _ => waits.wait(),
    });
    (upstream, gate)
}

/// Reads the rest of an answer; its bytes, if it comes whole.
fn rest(h2: &mut H2, stream: u32) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    let last = h2.until(deadline(), |frame| {
        if frame.kind == DATA && frame.stream == stream {
            body.extend(&frame.payload);
        }
        frame.stream == stream && (frame.kind == RST_STREAM || frame.flags & END != 0)
    });
    last.filter(|last| last.kind == DATA).map(|_| body)
}

/// Calls with a deadline to an upstream that hangs, hundreds a second and none of them answered.
#[test]
fn a_storm_of_deadlines_is_no_flood() {
    let (upstream, gate) = gated_upstream();
    let gateway = gateway(&upstream, "");
    let mut h2 = H2::connect(gateway.edge);
    for turn in 0..20 {
        let ids = || (turn * 90..turn * 90 + 90).map(stream);
        h2.send(ids().flat_map(|id| get(id, "/slow")).collect::<Vec<u8>>());
        upstream.wait_for((turn as usize + 1) * 90);
        sleep(Duration::from_millis(100));
        h2.send(ids().flat_map(reset).collect::<Vec<u8>>());
    }
    let end = h2.until(Duration::from_millis(100), |frame| frame.kind == GOAWAY || frame.kind == RST_STREAM);
    assert_eq!(end, None);
    assert!(h2.serves(stream(20 * 90)));
    gate.open();
}

/// A page that is left: what hangs is taken back, and the download beside it goes on.
#[test]
fn a_download_survives_cancelled_requests() {
    let (upstream, gate) = downloads();
    let gateway = gateway(&upstream, "");
    let mut h2 = H2::connect(gateway.edge);
    h2.send(get(1, "/download"));
    h2.send((1..=60).flat_map(|at| get(stream(at), "/hangs")).collect::<Vec<u8>>());
    upstream.wait_for(61);
    sleep(Duration::from_millis(400));
    h2.send((1..=60).flat_map(|at| reset(stream(at))).collect::<Vec<u8>>());
    assert!(h2.serves(stream(61)));
    gate.open();
    assert_eq!(rest(&mut h2, 1).as_deref(), Some(&b"done"[..]));
}

/// Half of the requests are raced against the other half, and lose at once.
#[test]
fn cancelling_half_of_the_requests_is_no_flood() {
    let upstream = Upstream::answering("done");
    let gateway = gateway(&upstream, "");
    let mut h2 = H2::connect(gateway.edge);
    for turn in 0..600 {
        let (raced, kept) = (stream(2 * turn), stream(2 * turn + 1));
        h2.send([get(raced, "/"), reset(raced), get(kept, "/")].concat());
        let end = h2.until(deadline(), |frame| frame.kind == GOAWAY || frame.stream == kept);
        assert_eq!(end.map(|end| end.kind), Some(HEADERS), "in turn {turn}");
    }
}

/// The answer that runs comes whole; requests behind the cut are not answered, and then the connection ends.
#[test]
fn a_flood_is_cut_off_and_answers_in_progress_end() {
    let (upstream, gate) = downloads();
    let gateway = gateway(&upstream, "");
    let mut h2 = H2::connect(gateway.edge);
    h2.send(get(1, "/download"));
    h2.until(deadline(), |frame| frame.kind == DATA).expect("the download has begun");
    h2.send((1..=45).flat_map(|at| [get(stream(at), "/"), reset(stream(at))].concat()).collect::<Vec<u8>>());
    let last = h2.until(deadline(), |frame| frame.kind == GOAWAY).expect("it is cut off");
    assert_eq!(number(&last.payload[4..]), CALM);
    assert!(number(&last.payload) < stream(45), "the last requests are refused");
    h2.send(get(stream(50), "/"));
    gate.open();
    let mut behind = 0;
    let mut body = Vec::new();
    h2.until(deadline(), |frame| {
        behind += u32::from(frame.stream > number(&last.payload));
        if frame.kind == DATA {
            body.extend(&frame.payload);
        }
        frame.stream == 1 && frame.flags & END != 0
    })
    .expect("the download ends");
    assert_eq!((&body[..], behind), (&b"done"[..], 0));
    assert!(h2.is_closed());
    assert_eq!(gateway.metric("sluicegate_h2_cut_total", &[("reason", "resets")]), 1.0);
}

/// Whoever goes on behind the cut loses what runs as well.
#[test]
fn a_flood_that_goes_on_is_closed() {
    let (upstream, gate) = downloads();
    let gateway = gateway(&upstream, "");
    let mut h2 = H2::connect(gateway.edge);
    h2.send(get(1, "/download"));
    h2.until(deadline(), |frame| frame.kind == DATA).expect("the download has begun");
    h2.send((1..=150).flat_map(|at| [get(stream(at), "/"), reset(stream(at))].concat()).collect::<Vec<u8>>());
    assert!(h2.is_closed());
    gate.open();
}

/// A hundred requests at once are served. Who cannot know that yet has the others refused, and may send them again.
#[test]
fn a_burst_before_the_settings_are_known() {
    let (upstream, gate) = gated_upstream();
    let gateway = gateway(&upstream, "");
    let mut h2 = H2::silent(gateway.edge);
    let settings = frame(4, 0, 0, &[0, 1, 0, 0, 0, 0]);
    let burst: Vec<u8> = (0..135).flat_map(|at| get(stream(at), "/slow")).collect();
    h2.send([crate::harness::h2::PREFACE, &settings, &burst].concat());
    upstream.wait_for(100);
    gate.open();
    let (mut answered, mut refused) = (0, 0);
    h2.until(deadline(), |frame| {
        assert_ne!(frame.kind, GOAWAY);
        answered += u32::from(frame.kind == HEADERS);
        if frame.kind == RST_STREAM {
            assert_eq!(number(&frame.payload), REFUSED_STREAM);
            refused += 1;
        }
        answered + refused == 135
    })
    .expect("something becomes of each");
    assert_eq!((answered, refused), (100, 35));
    assert!(h2.serves(stream(135)));
}

/// The budgets are those of the file.
#[test]
fn budgets_are_configurable() {
    let upstream = Upstream::answering("done");
    for (resets, cut) in [(5, true), (200, false)] {
        let gateway = gateway(&upstream, &format!("h2: {{resets: {resets}}}\n"));
        let mut h2 = H2::connect(gateway.edge);
        let pair = |at| [get(stream(at), "/"), reset(stream(at))].concat();
        h2.send((0..60).flat_map(pair).collect::<Vec<u8>>());
        assert_eq!(!h2.serves(stream(60)), cut, "{resets}");
    }
}
