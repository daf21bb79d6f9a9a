//! Large heads and trailers of an HTTP/2 upstream fail their own request, and no other one on the same connection.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::harness::h2::{
    CONTINUATION, END, END_HEADERS, End, H2, HEADERS, PREFACE, RST_STREAM, SETTINGS, block, frame, get,
    number, stream,
};
use crate::harness::h2_upstream::{Call, H2Upstream, Speaks};
use crate::harness::{Gate, Gateway, Setup, deadline};

fn before(address: std::net::SocketAddr, more: &str) -> Gateway {
    Setup::default().value("upstream", address).workers(1).start(&format!(
        "upstreams: {{api: {{servers: [\"http://{{upstream}}\"], protocol: http2, retries: 0, timeouts: {{response: 1h}}{more}}}}}\n\
         routes: [{{name: api, match: {{path: /*}}, upstream: api}}]\n"
    ))
}

/// A hundred and twenty thousand bytes.
fn large() -> String {
    "x".repeat(120_000)
}

/// Answers begin at once and end when the gate opens, but for those that are asked for something large.
fn upstream(gate: &Gate) -> H2Upstream {
    let gate = gate.clone();
    H2Upstream::start(Speaks::default(), move |mut call: Call| {
        let gate = gate.clone();
        async move {
            match call.seen.uri.path() {
                "/trailers" => {
                    let mut answer = call.begin(200, &[("content-type", "application/grpc")]);
                    answer.trailers(&[("grpc-status", "13"), ("grpc-message", &large())]);
                }
                "/head" => call.only(200, &[("x-large", &large())]),
                "/huge" => call.only(200, &[("x-huge", &"x".repeat(2_000_000))]),
                // Above SETTINGS_MAX_HEADER_LIST_SIZE.
                "/largest" => call.only(200, &[("x-largest", &"x".repeat(5_000_000))]),
                // In more than 320 CONTINUATION frames.
                "/beyond" => call.only(200, &[("x-beyond", &"x".repeat(8_000_000))]),
                "/lines" => {
                    let lines: Vec<String> = (0..300).map(|at| format!("x-{at}")).collect();
                    let lines: Vec<(&str, &str)> = lines.iter().map(|name| (name.as_str(), "y")).collect();
                    call.only(200, &lines);
                }
                _ => {
                    let mut answer = call.begin(200, &[]);
                    answer.send("begun".into()).await;
                    tokio::task::spawn_blocking(move || gate.wait()).await.unwrap();
                    answer.end();
                }
            }
        }
    })
}

#[test]
fn a_large_head_fails_only_its_own_request() {
    let gate = Gate::default();
    let upstream = upstream(&gate);
    let gateway = before(upstream.address, "");
    let mut streams = H2::connect(gateway.edge);
    for at in 0..20 {
        streams.send(get(stream(at), "/"));
    }
    for at in 0..20 {
        assert_eq!(streams.end(stream(at)), End::Status(200));
    }
    let mut large = H2::connect(gateway.edge);
    for (at, target) in ["/head", "/huge", "/largest"].into_iter().enumerate() {
        large.send(get(stream(at as u32), target));
        assert_eq!(large.end(stream(at as u32)), End::Status(502), "{target}");
    }
    large.send(get(7, "/trailers"));
    let reset = large.until(deadline(), |frame| frame.kind == RST_STREAM && frame.stream == 7);
    assert_eq!(reset.map(|frame| number(&frame.payload)), Some(2), "INTERNAL_ERROR");
    assert_eq!(upstream.connections(), 1);
    gate.open();
    let mut ended = 0;
    streams.until(deadline(), |frame| {
        assert_ne!(frame.kind, RST_STREAM, "stream {}", frame.stream);
        ended += usize::from(frame.flags & END != 0 && frame.stream > 0);
        ended == 20
    });
    assert_eq!(ended, 20);
    assert_eq!(upstream.connections(), 1);
}

/// `max_head` of the upstream is the bound, and a larger one on top raises it.
#[test]
fn the_bound_is_configurable() {
    let upstream = upstream(&Gate::default());
    for (more, status) in [("", 502), (", max_head: 256KiB", 200), (", max_head: 100KiB", 502)] {
        assert_eq!(before(upstream.address, more).get("/head").status, status, "{more}");
    }
}

/// A head of more than 320 CONTINUATION frames ends its connection; the next request has another one.
#[test]
fn a_head_of_too_many_frames_ends_its_connection() {
    let upstream = upstream(&Gate::default());
    let gateway = before(upstream.address, "");
    assert_eq!((gateway.get("/lines").status, upstream.connections()), (200, 1));
    // It is idempotent, so it is sent again on a new connection.
    assert_eq!((gateway.get("/beyond").status, upstream.connections()), (502, 2));
    assert_eq!((gateway.get("/lines").status, upstream.connections()), (200, 3));
}

/// `max_headers` of the upstream is the bound for lines, as over HTTP/1.1.
#[test]
fn the_number_of_lines_is_configurable() {
    let upstream = upstream(&Gate::default());
    for (more, status) in [("", 200), (", max_headers: 299", 502), (", max_headers: 300", 200)] {
        assert_eq!(before(upstream.address, more).get("/lines").status, status, "{more}");
    }
}

/// A small head in many small frames is a head like any other.
#[test]
fn small_frames_of_a_small_head_are_accepted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client.write_all(&frame(SETTINGS, 0, 0, b"")).unwrap();
        let mut preface = vec![0; PREFACE.len()];
        client.read_exact(&mut preface).unwrap();
        loop {
            let mut head = [0; 9];
            client.read_exact(&mut head).unwrap();
            let length = number(&[&[0], &head[..3]].concat()) as usize;
            client.read_exact(&mut vec![0; length]).unwrap();
            if head[3] == HEADERS {
                break;
            }
        }
        let head = [&[0x88][..], &block(&[("x-padding", &"p".repeat(80))])].concat();
        let pieces: Vec<&[u8]> = head.chunks(head.len().div_ceil(8)).collect();
        assert_eq!(pieces.len(), 8);
        let mut all = frame(HEADERS, END, 1, pieces[0]);
        for (at, piece) in pieces.iter().enumerate().skip(1) {
            all.extend(frame(CONTINUATION, if at == 7 { END_HEADERS } else { 0 }, 1, piece));
        }
        client.write_all(&all).unwrap();
        let _ = client.read(&mut [0; 1]);
    });
    let answer = before(address, "").get("/");
    assert_eq!((answer.status, answer.header("x-padding").map(str::len)), (200, Some(80)));
}
