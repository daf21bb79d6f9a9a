//! Timeouts of HTTP/2 connections and streams: each ends in time, with GOAWAY or RST_STREAM, and does not affect
//! others. The clock of the gateway runs twenty times as fast as that of the tests.

use std::time::Duration;

use crate::harness::h2::{
    CALM, DATA, END, End, GOAWAY, H2, HEADERS, PING, PREFACE, SETTINGS, block, frame, get, number, post,
    pseudo,
};
use crate::harness::{Gateway, Setup, Stopwatch, Upstream, deadline, faketime, in_parallel, until};

/// How much faster the gateway's clock runs.
const FASTER: u32 = 20;
/// An upstream has more time than any test takes.
const PATIENT: &str = "timeouts: {connect: 1h, response: 1h, idle: 1h}";

fn fast() -> Setup {
    Setup::default().env("LD_PRELOAD", &faketime()).env("FAKETIME", &format!("+0 x{FASTER}"))
}

/// A gateway with these timeouts of clients. Those that a test does not mean are an hour.
fn before(upstream: &Upstream, timeouts: &str) -> Gateway {
    fast().upstream(upstream).start(&format!(
        "timeouts: {{{timeouts}}}\nupstreams: {{api: {{servers: [\"http://{{upstream}}\"], {PATIENT}}}}}\n\
         routes: [{{name: api, match: {{path: /*}}, upstream: api}}]\n"
    ))
}

/// Whether so much of the gateway's time has passed, and little more.
#[track_caller]
fn passed(watch: &Stopwatch, seconds: u64) {
    let passed = watch.elapsed() * FASTER;
    // Its timers are late by what real time they take, twenty times.
    let (least, most) = (Duration::from_secs(seconds * 9 / 10), Duration::from_secs(seconds + 200));
    assert!((least..most).contains(&passed), "{passed:?} instead of {seconds} s");
}

/// Whoever begins something and does not end it is cut off in ten seconds.
#[test]
fn unfinished_requests_time_out() {
    let upstream = Upstream::answering("done");
    let gateway = before(&upstream, "body: 1h, idle: 1h, write: 1h");
    let settings = frame(SETTINGS, 0, 0, b"");
    let open = frame(HEADERS, END, 1, &block(&pseudo("GET", "/")));
    let starts: [(&[u8], &[Option<u32>]); 5] = [
        (&PREFACE[..10], &[None]),
        (PREFACE, &[Some(0)]),
        (&[PREFACE, &settings[..5]].concat(), &[Some(0), Some(CALM)]),
        (&[PREFACE, &settings, &open].concat(), &[Some(CALM)]),
        (&[PREFACE, &settings, &open[..20]].concat(), &[Some(CALM)]),
    ];
    in_parallel(starts.len(), |at| {
        let watch = Stopwatch::start();
        let mut h2 = H2::silent(gateway.edge);
        h2.send(starts[at].0);
        let last = h2.until(deadline(), |frame| frame.kind == GOAWAY);
        let last = last.map(|last| number(&last.payload[4..]));
        assert!(starts[at].1.contains(&last), "case {at}: {last:?}");
        assert!(h2.is_closed());
        passed(&watch, 10);
    });
}

/// A connection without requests ends after 75 seconds, with GOAWAY.
#[test]
fn an_idle_connection_gets_goaway() {
    let upstream = Upstream::answering("done");
    let gateway = before(&upstream, "body: 1h, head: 1h, write: 1h");
    in_parallel(2, |requests| {
        let watch = Stopwatch::start();
        let mut h2 = H2::connect(gateway.edge);
        assert!(requests == 0 || h2.serves(1));
        let last = h2.until(deadline(), |frame| frame.kind == GOAWAY).expect("GOAWAY");
        assert_eq!(number(&last.payload[4..]), 0, "it is no mistake");
        assert!(h2.is_closed());
        passed(&watch, 75);
    });
}

/// A client that does not answer whether it lives is gone, whatever it waits for.
#[test]
fn a_client_that_is_gone_is_noticed() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        while exchange.write("1\r\nx\r\n") {
            exchange.pause(Duration::from_millis(500));
        }
    });
    let gateway = before(&upstream, "body: 1h, head: 1h, idle: 1h, write: 1h");
    let mut h2 = H2::connect(gateway.edge);
    let watch = Stopwatch::start();
    h2.send(get(1, "/"));
    let asked = loop {
        match h2.next(deadline()) {
            Some(frame) if frame.kind == PING => break true,
            Some(frame) if frame.kind == GOAWAY => break false,
            Some(_) => {}
            None => panic!("nothing came"),
        }
    };
    assert!(asked, "it is asked first");
    while h2.next(deadline()).is_some() {}
    assert!(h2.is_closed());
    passed(&watch, 65);
    until("its request ends", || (upstream.open() == 0).then_some(()));
}

/// A client that gives no window for an answer loses that answer, and nothing else.
#[test]
fn an_answer_that_is_not_read_is_reset() {
    let upstream = Upstream::scripted(|exchange| match exchange.seen.target.as_str() {
        "/large" => exchange.answer(200, &[], &vec![b'x'; 4 << 20]),
        _ => exchange.answer(200, &[], b"done"),
    });
    let gateway = before(&upstream, "body: 1h, head: 1h, idle: 1h");
    let mut h2 = H2::with_settings(gateway.edge, &[(4, 100)]);
    let watch = Stopwatch::start();
    h2.send(get(1, "/large"));
    assert_eq!(h2.end(1), End::Status(200));
    assert_eq!(h2.end(1), End::Reset(8), "CANCEL");
    passed(&watch, 60);
    assert!(h2.serves(3), "the connection lives on");
    until("its request ends", || (upstream.open() <= 1).then_some(()));
}

/// A body that stops is answered 408, and other requests of the connection go on.
#[test]
fn a_body_that_stops_is_408() {
    let upstream = Upstream::scripted(|exchange| {
        if exchange.seen.target == "/stops" && exchange.body().is_err() {
            return exchange.close();
        }
        exchange.answer(200, &[], b"done");
    });
    let gateway = before(&upstream, "head: 1h, idle: 1h, write: 1h");
    let mut h2 = H2::connect(gateway.edge);
    let watch = Stopwatch::start();
    h2.send(post(1, "/stops")).send(frame(DATA, 0, 1, b"some"));
    assert!(h2.serves(3));
    assert_eq!(h2.end(1), End::Status(408));
    passed(&watch, 30);
    assert!(h2.serves(5));
}

/// At the end of the gateway idle connections are told so before they are closed, also those without a request yet,
/// and also if their clients say nothing any more.
#[test]
fn idle_connections_get_goaway_when_the_gateway_ends() {
    let upstream = Upstream::answering("done");
    let yaml = "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{name: api, upstream: api}]\n";
    for answers in [true, false] {
        let mut gateway = Gateway::before(&upstream, yaml);
        let (mut fresh, mut idle) = (H2::connect(gateway.edge), H2::connect(gateway.edge));
        assert!(idle.serves(1));
        gateway.signal("TERM");
        for h2 in [&mut fresh, &mut idle] {
            let last = loop {
                let frame = if answers { h2.until(deadline(), |_| true) } else { h2.next(deadline()) };
                let frame = frame.expect("GOAWAY before the end");
                if frame.kind == GOAWAY {
                    break frame;
                }
            };
            assert_eq!(number(&last.payload[4..]), 0);
        }
        assert_eq!(gateway.ended(deadline()).code(), Some(0));
        assert!(fresh.is_closed() && idle.is_closed());
    }
}

/// Streams whose requests arrive in one segment behind a long response have deadlines of their own, not those of each other.
#[test]
fn streams_that_wait_for_their_turn_keep_their_own_deadlines() {
    let upstream = Upstream::scripted(|exchange| exchange.silence());
    let gateway = fast().upstream(&upstream).start(&format!(
        "upstreams: {{api: {{servers: [\"http://{{upstream}}\"], timeouts: {{connect: 1h, response: 20s}}, retries: 0}}}}\n\
         routes:\n  - {{name: big, match: {{path: /big}}, respond: {{status: 200, body: \"{}\"}}}}\n  \
         - {{name: api, upstream: api}}\n",
        "x".repeat(60_000)
    ));
    let mut h2 = H2::connect(gateway.edge);
    h2.send([get(1, "/big"), get(3, "/s0"), get(5, "/s1")].concat());
    let mut ended: Vec<u32> = Vec::new();
    h2.until(deadline(), |frame| {
        let ends = frame.kind == HEADERS && frame.stream > 1;
        ended.extend(ends.then_some(frame.stream));
        ended.len() == 2
    });
    ended.sort_unstable();
    assert_eq!(ended, [3, 5]);
}
