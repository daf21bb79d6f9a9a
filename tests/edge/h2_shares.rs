//! What the requests of one HTTP/2 connection share: its streams, its window and its memory. None takes them from the
//! others.

use crate::harness::h2::{
    DATA, END, END_HEADERS, End, GOAWAY, H2, HEADERS, RST_STREAM, block, frame, get, number, post, pseudo,
    stream,
};
use crate::harness::{Gateway, Upstream, deadline, gated_upstream, until};

/// A hundred uploads that are refused and never end take no place of the requests behind them.
#[test]
fn refused_uploads_free_their_streams() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(
        &upstream,
        "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nlimits: {one: {key: ip, rate: 1/h}}\n\
         routes: [{name: one, match: {path: /one}, upstream: api, limits: [one]}, {name: api, match: {path: /*}, upstream: api}]\n",
    );
    let mut h2 = H2::connect(gateway.edge);
    h2.send(get(1, "/one"));
    assert_eq!(h2.end(1), End::Status(200));
    h2.send((1..=100).flat_map(|at| post(stream(at), "/one")).collect::<Vec<u8>>());
    let mut refused = 0;
    h2.until(deadline(), |frame| {
        refused += u32::from(frame.kind == HEADERS);
        refused == 100
    })
    .expect("all are refused");
    h2.send((101..=200).flat_map(|at| get(stream(at), "/")).collect::<Vec<u8>>());
    let mut answered = 0;
    h2.until(deadline(), |frame| {
        assert_ne!(frame.kind, GOAWAY);
        assert!(frame.kind != RST_STREAM || number(&frame.payload) == 0, "{frame:?}");
        answered += u32::from(frame.kind == HEADERS && frame.stream > stream(100));
        answered == 100
    })
    .expect("all are answered");
}

/// Uploads that the upstream does not take fill their own windows; another goes through beside them.
#[test]
fn stalled_uploads_do_not_block_another() {
    let (upstream, gate) = gated_upstream();
    let fast = Upstream::scripted(|exchange| {
        if let Ok(body) = exchange.body() {
            exchange.answer(200, &[], body.len().to_string().as_bytes());
        }
    });
    let gateway = Gateway::before(
        &upstream,
        &format!(
            "limits: {{slow: {{key: global, algorithm: leaky_bucket, rate: 1/h, burst: 90}}}}\n\
             upstreams: {{api: {{servers: [\"http://{{upstream}}\"]}}, fast: {{servers: [\"http://{}\"]}}}}\n\
             routes: [{{name: fast, match: {{path: /fast}}, upstream: fast}}, {{name: slow, match: {{path: /slow}}, upstream: api, limits: [slow]}}]\n",
            fast.address
        ),
    );
    let mut h2 = H2::connect(gateway.edge);
    let mut window = 65_535_i64;
    let piece = vec![b'x'; 16 << 10];
    let mut send = |h2: &mut H2, stream: u32, pieces: usize, last: u8| {
        for at in 1..=pieces {
            while window < piece.len() as i64 {
                let more = h2.until(deadline(), |frame| frame.kind == 8 && frame.stream == 0);
                window += i64::from(number(&more.expect("more of the window").payload));
            }
            h2.send(frame(DATA, if at == pieces { last } else { 0 }, stream, &piece));
            window -= piece.len() as i64;
        }
    };
    for at in 0..60 {
        h2.send(post(stream(at), "/slow"));
        send(&mut h2, stream(at), 4, 0);
    }
    h2.send(post(stream(60), "/fast"));
    send(&mut h2, stream(60), 4, END);
    assert_eq!(h2.end(stream(60)), End::Status(200));
    gate.open();
}

/// Trailers that would say something else of the answer are left out, and lengths of bodies that do not come.
#[test]
fn connection_headers_are_not_sent() {
    let upstream = Upstream::scripted(|exchange| {
        let target = exchange.seen.target.clone();
        exchange.write(match target.as_str() {
            "/204" => "HTTP/1.1 204 No Content\r\ncontent-length: 7\r\n\r\n",
            "/304" => "HTTP/1.1 304 Not Modified\r\ncontent-length: 77\r\n\r\n",
            "/bad" => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\ncontent-length: 77\r\n\r\n",
            _ => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\ncontent-length: 77\r\nx-sum: 1\r\n\r\n",
        });
    });
    let gateway = Gateway::before(
        &upstream,
        "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{name: api, match: {path: /*}, upstream: api}]\n",
    );
    let mut h2 = H2::connect(gateway.edge);
    for (stream, path, heads) in [(1, "/204", 1), (3, "/304", 1), (5, "/bad", 1), (7, "/trailers", 2)] {
        let fields = [pseudo("GET", path), vec![("te", "trailers")]].concat();
        h2.send(frame(HEADERS, END | END_HEADERS, stream, &block(&fields)));
        let mut seen = Vec::new();
        h2.until(deadline(), |frame| {
            seen.extend((frame.kind == HEADERS).then(|| frame.payload.clone()));
            frame.stream == stream && frame.flags & END != 0
        })
        .expect("the end");
        assert_eq!(seen.len(), heads, "{path}");
        // `content-length` is number 28 of the static table: 0x5c, 0x0f 0x0d or 0x1f 0x0d.
        let has_length = |head: &Vec<u8>| head[0] == 0x5c || head.windows(2).any(|two| two == [0x0f, 0x0d]);
        assert!(!seen.iter().any(has_length), "{path}: {seen:x?}");
        assert!(heads < 2 || seen[1].windows(5).any(|part| part == b"x-sum"), "{path}");
    }
}

/// The memory of the gateway when it has no more to do: while its worker serves others, it does not grow.
fn settled(gateway: &Gateway) -> usize {
    let mut seen = Vec::new();
    until("its memory grows no more", || {
        assert_eq!(gateway.get("/").status, 200);
        seen.push(gateway.memory());
        let last = seen.last_chunk::<100>()?;
        last.iter().all(|memory| *memory <= last[0] + (64 << 10)).then_some(last[99])
    })
}

/// A client that takes nothing: the gateway does not fetch more answers for it than it can hold.
#[test]
fn answers_for_a_client_that_does_not_read_are_not_buffered() {
    let value = "x".repeat(28 << 10);
    let upstream = Upstream::scripted(move |exchange| {
        exchange.answer(200, &[("x-large", &value)], b"done");
    });
    let gateway = Gateway::before(
        &upstream,
        "workers: 1\nupstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{name: api, match: {path: /*}, upstream: api}]\n",
    );
    let all: Vec<u8> = (0..100).flat_map(|at| get(stream(at), "/")).collect();
    let connect = |_| {
        let mut client = H2::small(gateway.edge);
        client.send(&all);
        client
    };
    let mut clients: Vec<H2> = (0..5).map(connect).collect();
    upstream.wait_for(500);
    let before = settled(&gateway); // with what is needed once
    let seen = upstream.seen().len();
    clients.extend((0..5).map(connect));
    upstream.wait_for(seen + 500);
    let held = settled(&gateway).saturating_sub(before) / 5;
    assert!(held < 3 << 19, "{held} bytes a connection, its hundred requests included");
    for mut client in clients {
        let mut whole = 0;
        client
            .until(deadline(), |frame| {
                whole += u32::from(frame.kind == DATA && frame.flags & END != 0);
                whole == 100
            })
            .expect("who takes them has them all");
    }
}
