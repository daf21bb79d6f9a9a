//! Answers and tunnels that outlast the configuration that they began under.

use crate::harness::client::head;
use crate::harness::h2::{self, H2};
use crate::harness::{Client, Exchange, Setup, Upstream, deadline, until, within};

const RELOADS: usize = 16;
/// What all of them together may add to the memory. Each configuration takes some seven megabytes, and a few may be
/// there at a time.
const GROWTH: usize = 60 << 20;
const SOCKET: [(&str, &str); 4] = [
    ("upgrade", "websocket"),
    ("connection", "Upgrade"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-version", "13"),
];

/// A configuration with 2,000 routes, another one each time.
fn configuration(turn: usize) -> String {
    let route = |n| {
        format!(
            "  - {{name: route-{n}, match: {{host: h{n}.test, path: /v1/{n}/*}}, limits: [all], \
             respond: {{status: 200, body: '{turn}'}}}}\n"
        )
    };
    format!(
        "access_log: access.log\nlimits: {{all: {{key: ip, rate: 100/s}}}}\n\
         upstreams: {{api: {{servers: [\"http://{{upstream}}\"], timeouts: {{idle: 1h}}}}}}\n\
         routes:\n{}  - {{name: long, match: {{path: /long/*}}, upstream: api}}\n",
        (0..2_000).map(route).collect::<String>()
    )
}

/// Accepts a WebSocket, or begins a stream of events. Both last until the client leaves.
fn endless(exchange: &mut Exchange<'_>) {
    exchange.write(match exchange.seen.target.as_str() {
        "/long/socket" => {
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
        }
        _ => "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n",
    });
    exchange.echo(|_| None);
}

/// A tunnel and answers that go on keep only what they need of their configuration, not all of it.
#[test]
fn long_answers_do_not_keep_old_configurations() {
    let upstream = Upstream::scripted(endless);
    let gateway = Setup::default().workers(1).upstream(&upstream).start(&configuration(0));
    let mut open = Vec::new();
    let mut begin = |turn: usize| {
        let mut socket = gateway.client();
        socket.send(head("GET", "/long/socket", &SOCKET));
        assert_eq!(socket.response().status, 101);
        let mut events = Client::connect(gateway.edge);
        events.send(head("GET", "/long/events", &[]));
        let mut streams = H2::connect(gateway.edge);
        streams.send(h2::get(1, "/long/events"));
        open.push((socket, events, streams));
        // The gateway closes a connection whose client is silent for 45 s and does not answer its PING then.
        for (_, _, streams) in &mut open {
            streams.send(h2::frame(h2::PING, 0, 0, &[0; 8]));
        }
        let begun = within(deadline(), || (upstream.open() == 3 * (turn + 1)).then_some(()));
        assert!(begun.is_some(), "{} are open in turn {turn}", upstream.open());
    };
    // The first ones fill what is allocated once.
    for turn in 1..=3 {
        begin(turn - 1);
        gateway.reload(&configuration(turn));
    }
    let before = gateway.memory();
    for turn in 4..4 + RELOADS {
        begin(turn - 1);
        gateway.reload(&configuration(turn));
    }
    until("old configurations are given back", || {
        gateway.get("/none"); // from now on the worker has the last one
        (gateway.memory().saturating_sub(before) < GROWTH).then_some(())
    });
    drop(open);
    let lines = || std::fs::read_to_string(gateway.path("access.log")).unwrap_or_default();
    let logged = || lines().matches(r#""route":"long","outcome":"admitted","upstream":"api""#).count();
    until("all are logged", || (logged() == 3 * (RELOADS + 3)).then_some(()));
}
