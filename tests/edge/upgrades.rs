//! Upgrades (RFC 9110 §7.8): WebSocket works as if the client were connected to the API, other protocols are refused,
//! and a tunnel counts as one request.

use std::net::Shutdown;
use std::time::Duration;

use crate::harness::client::head;
use crate::harness::{Client, Exchange, Gateway, Setup, Stopwatch, Upstream, measure, patience, until};

const ALL: &str = "limits: {l: {key: global, max: 1, algorithm: concurrency}}\n\
                   upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
                   routes: [{name: api, match: {path: /*}, upstream: api, limits: [l]}]\n";

/// The headers of a WebSocket handshake (RFC 6455 §4.1), with the key of its §1.3.
const HANDSHAKE: [(&str, &str); 5] = [
    ("upgrade", "websocket"),
    ("connection", "keep-alive, Upgrade"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-version", "13"),
    ("sec-websocket-protocol", "chat"),
];
const ACCEPTED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A frame of a client (RFC 6455 §5.2): text, masked.
fn text(payload: &[u8]) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let mut frame = vec![0x81, 0x80 | payload.len() as u8];
    frame.extend(mask);
    frame.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
    frame
}

/// Answers frames with the same text, unmasked, until it is told to end.
fn chat(exchange: &mut Exchange<'_>) {
    exchange.write(ACCEPTED);
    exchange.echo(|bytes| {
        let length = usize::from(bytes.get(1)? & 0x7f);
        let whole = bytes.get(..6 + length)?;
        let payload = whole[6..].iter().enumerate().map(|(at, byte)| byte ^ whole[2 + at % 4]);
        Some((6 + length, [0x81, length as u8].into_iter().chain(payload).collect()))
    });
}

fn server() -> Upstream {
    Upstream::scripted(|exchange| match exchange.seen.target.as_str() {
        "/chat" => chat(exchange),
        "/other" => {
            exchange
                .write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n");
            exchange.close();
        }
        "/refused" => exchange.answer(403, &[], b"no"),
        _ => exchange.answer(200, &[], b"done"),
    })
}

#[track_caller]
fn switched(client: &mut Client) {
    let answer = client.response();
    assert_eq!(answer.status, 101, "{answer:?}");
    assert_eq!(answer.header("upgrade"), Some("websocket"));
    assert_eq!(answer.header("connection").map(str::to_ascii_lowercase), Some("upgrade".into()));
    assert_eq!(answer.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!((answer.header("content-length"), answer.header("transfer-encoding")), (None, None));
}

#[track_caller]
fn says(client: &mut Client, word: &[u8]) {
    client.send(text(word));
    let frame = client.reader.exactly(2 + word.len()).unwrap();
    assert_eq!((frame[0], usize::from(frame[1]), &frame[2..]), (0x81, word.len(), word));
}

/// The handshake arrives whole, frames pass both ways, and the end of one side is the end of the other.
#[test]
fn a_websocket_passes() {
    let upstream = server();
    let gateway = Gateway::before(&upstream, ALL);
    let mut client = gateway.client();
    client.request("GET", "/chat", &HANDSHAKE);
    switched(&mut client);
    let seen = upstream.last();
    for (name, value) in [
        ("upgrade", "websocket"),
        ("connection", "upgrade"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "chat"),
        ("x-forwarded-for", "127.0.0.1"),
    ] {
        assert_eq!(seen.head.one(name), Some(value), "{name}");
    }
    for word in [&b"hello"[..], b"", &[b'x'; 125]] {
        says(&mut client, word);
    }
    client.writer().shutdown(Shutdown::Write).unwrap();
    assert!(client.is_closed());
    until("the place is free", || (gateway.remaining("l", "any") == 1).then_some(()));
    until("it is counted", || {
        (gateway.metric("sluicegate_requests_total", &[("route", "api"), ("code", "101")]) == 1.0)
            .then_some(())
    });
}

/// What a client sends before it is told that the protocol is switched reaches the API after it has switched.
#[test]
fn early_bytes_are_sent_after_the_switch() {
    let upstream = server();
    let gateway = Gateway::before(&upstream, ALL);
    let mut client = gateway.client();
    client.send([head("GET", "/chat", &HANDSHAKE), text(b"early")].concat());
    switched(&mut client);
    assert_eq!(client.reader.exactly(7).unwrap(), b"\x81\x05early");
    drop(client);
    let mut client = gateway.client();
    until("the place is free", || (gateway.remaining("l", "any") == 1).then_some(()));
    client.send([head("GET", "/refused", &HANDSHAKE), head("GET", "/", &[])].concat());
    assert_eq!(
        [client.response().status, client.response().status],
        [403, 200],
        "it was a request after all"
    );
}

/// A tunnel is one request in flight until it ends, from whichever side, and survives a reload.
#[test]
fn a_tunnel_is_a_request_in_flight() {
    let upstream = server();
    let gateway = Gateway::before(&upstream, ALL);
    for resets in [false, true] {
        let mut client = gateway.client();
        client.request("GET", "/chat", &HANDSHAKE);
        switched(&mut client);
        assert_eq!(gateway.get("/").status, 429);
        gateway.reload(&format!("# again {resets}\n{ALL}"));
        says(&mut client, b"still here");
        assert_eq!(gateway.get("/").status, 429);
        if resets {
            socket2::SockRef::from(&client.reader.stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(client);
        until("the place is free", || (gateway.remaining("l", "any") == 1).then_some(()));
        until("the API has been told", || (upstream.open() == 0).then_some(()));
    }
}

/// A tunnel in which nothing moves ends after `timeouts.tunnel`, and lives for longer if something does.
#[test]
fn an_idle_tunnel_ends() {
    let upstream = server();
    let file = ALL.replace("\"]}", "\"], timeouts: {tunnel: 2500ms}}");
    let gateway = Gateway::before(&upstream, &file);
    let mut client = gateway.client();
    client.request("GET", "/chat", &HANDSHAKE);
    switched(&mut client);
    let (begun, mut last) = (Stopwatch::start(), Stopwatch::start());
    while begun.elapsed() < Duration::from_secs(3) {
        crate::harness::sleep(Duration::from_millis(100));
        last = Stopwatch::start();
        says(&mut client, b"x");
    }
    assert!(client.is_closed());
    let took = last.elapsed();
    assert!((Duration::from_millis(2_400)..patience(5)).contains(&took), "{took:?}");
}

/// A switch that was not asked for, or to something else, is no answer.
#[test]
fn an_unrequested_switch_is_502() {
    let upstream = server();
    let gateway = Gateway::before(&upstream, ALL);
    for target in ["/chat", "/other"] {
        assert_eq!(gateway.get(target).status, 502, "{target}");
        assert_eq!(gateway.client().post(target, &[], b"body").status, 502, "{target}");
    }
    assert_eq!(gateway.ask("GET", "/other", &HANDSHAKE).status, 502);
}

/// A request with a body may ask for a switch, as `docker exec` does: it is switched when the body has passed.
#[test]
fn a_request_with_a_body_is_switched() {
    const SWITCHED: &str = "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";
    let upstream = Upstream::scripted(|exchange| {
        let early = exchange.seen.target == "/early";
        if early {
            exchange.write(SWITCHED);
        }
        let body = exchange.body().unwrap();
        if !early {
            exchange.write(SWITCHED);
        }
        exchange.write(format!("{} bytes;", body.len()));
        exchange.echo(|bytes| Some((bytes.len(), bytes.to_ascii_uppercase())).filter(|_| !bytes.is_empty()));
    });
    let gateway = Gateway::before(&upstream, ALL);
    let large = "x".repeat(300_000);
    let chunked = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    for target in ["/", "/early"] {
        for (framing, sent, length) in [
            ("Content-Length: 2", "{}", 2),
            ("Content-Length: 0", "", 0),
            ("Content-Length: 300000", &large, 300_000),
            ("Transfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n", 2),
            ("Transfer-Encoding: chunked", "0\r\n\r\n", 0),
            ("Transfer-Encoding: chunked", &chunked, 300_000),
        ] {
            let mut client = gateway.client();
            client.send(format!(
                "POST {target} HTTP/1.1\r\nHost: a\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n{framing}\r\n\r\n{sent}early,"
            ));
            let answer = client.response();
            assert_eq!((answer.status, answer.header("upgrade")), (101, Some("tcp")), "{target} {framing}");
            let shown = format!("{length} bytes;EARLY,");
            assert_eq!(client.reader.exactly(shown.len()).unwrap(), shown.as_bytes(), "{target} {framing}");
            client.send("late");
            assert_eq!(client.reader.exactly(4).unwrap(), b"LATE", "{target} {framing}");
            drop(client);
            until("the place is free", || (gateway.remaining("l", "any") == 1).then_some(()));
        }
    }
}

/// HTTP/2 is never switched to, nor is anything for a request of HTTP/1.0, or that does not name it in
/// Connection: it is forwarded as any other.
#[test]
fn other_protocols_are_refused() {
    let upstream = server();
    let gateway = Setup::default().upstream(&upstream).start(ALL);
    let h2c = [
        ("upgrade", "h2c"),
        ("connection", "upgrade, http2-settings"),
        ("http2-settings", "AAMAAABkAAQAAP__"),
    ];
    let unnamed = [("upgrade", "websocket")];
    let two = [("upgrade", "websocket, h2c"), ("connection", "upgrade")];
    let twice = [("upgrade", "websocket"), ("upgrade", "x"), ("connection", "upgrade")];
    for headers in [&h2c[..], &unnamed, &two, &twice] {
        assert_eq!(gateway.ask("GET", "/", headers).status, 200, "{headers:?}");
        for name in ["upgrade", "connection", "http2-settings"] {
            assert_eq!(upstream.last().head.one(name), None, "{headers:?}");
        }
    }
    let mut old = gateway.client();
    old.send("GET / HTTP/1.0\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
    assert_eq!(old.response().status, 200);
    assert_eq!(upstream.last().head.one("upgrade"), None);
}

/// While the gateway drains, a tunnel lives on until its time is up.
#[test]
fn a_tunnel_ends_with_the_drain() {
    let upstream = server();
    let mut gateway = Gateway::before(&upstream, &format!("drain: 5s\n{ALL}"));
    let mut client = gateway.client();
    client.request("GET", "/chat", &HANDSHAKE);
    switched(&mut client);
    gateway.signal("TERM");
    until("it drains", || (gateway.admin_get("/readyz").status == 503).then_some(()));
    says(&mut client, b"still here");
    let (status, took) = measure(|| gateway.ended(crate::harness::deadline()));
    assert_eq!(status.code(), Some(0));
    assert!(took < patience(9), "less than the usual 30 s: {took:?}");
    assert!(client.is_closed());
}

/// A drained server keeps its tunnels, which count as requests in flight, and gets no new ones.
#[test]
fn a_tunnel_outlives_the_draining_of_its_server() {
    let upstream = server();
    let gateway = Setup::default().workers(1).upstream(&upstream).start(ALL);
    let state = |state: &str| {
        let path = format!("/upstreams/api/servers/{}/state", upstream.address);
        let answer = gateway.admin_put(&path, &format!(r#"{{"state": "{state}"}}"#));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["in_flight"].as_u64()
    };
    let mut client = gateway.client();
    client.request("GET", "/chat", &HANDSHAKE);
    switched(&mut client);
    assert_eq!(state("drain"), Some(1));
    for state_after in ["drain", "maintenance"] {
        says(&mut client, b"still");
        state(state_after);
    }
    assert_eq!(gateway.get("/").status, 429, "the tunnel keeps its place of the limit");
    drop(client);
    until("nothing is in flight", || (state("maintenance") == Some(0)).then_some(()));
    until("the place is free", || (gateway.get("/").status == 503).then_some(()));
    state("ready");
    assert_eq!(gateway.get("/").status, 200);
}
