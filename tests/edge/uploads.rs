//! Requests with a body to HTTP/1.1 servers: body and answer may be sent at the same time, and a connection whose
//! upload was not completed serves no further request.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use crate::harness::client::head;
use crate::harness::h2::{DATA, END, END_HEADERS, End, H2, HEADERS, RST_STREAM, block, frame, pseudo};
use crate::harness::{Client, FORWARD_ALL, Gate, Gateway, Setup, Upstream, deadline, until};

/// An API that answers without a look at the upload leaves some of it unsent: whatever its length, the next POST is not
/// put behind it. It is answered, or given up in its time where the sockets had room for all of the upload, so that the
/// connection could be kept.
#[test]
fn an_upload_that_is_not_read_blocks_no_other() {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::scripted(move |exchange| match exchange.seen.target.as_str() {
        "/early" => {
            exchange.pause(Duration::from_millis(100)); // until the upload has filled what is between
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            waits.wait(); // and reads nothing
            exchange.close();
        }
        _ => exchange.answer(200, &[], b"done"),
    });
    let next = "routes: [{name: next, match: {path: /next}, upstream: api, timeout: 300ms}, ";
    let file = FORWARD_ALL.replace("routes: [", next);
    let gateway = Setup::default().upstream(&upstream).workers(1).start(&file);
    let body = vec![b'x'; 16 << 20];
    // The lengths that the sockets do and do not have room for: those in between are the ones of which little is left.
    let (mut fits, mut too_long) = (0, body.len());
    while too_long - fits > 16 << 10 {
        let length = (fits + too_long) / 2;
        assert_eq!(gateway.client().post("/early", &[], &body[..length]).text(), "ok");
        let next = [&head("POST", "/next", &[("content-length", "1")])[..], b"x"].concat();
        match gateway.client().send(next).response().status {
            200 => too_long = length,
            504 => fits = length,
            status => panic!("{status} behind {length} bytes"),
        }
    }
    assert!(too_long < body.len(), "no upload was left unsent");
    gate.open();
}

/// A server that speaks raw bytes, one connection after the other.
fn raw(serve: impl Fn(TcpStream) + Send + 'static) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    address
}

fn before(address: std::net::SocketAddr) -> Gateway {
    Setup::default().workers(1).start(&FORWARD_ALL.replace("{upstream}", &address.to_string()))
}

/// Reads until what was read ends with `end`.
fn read_to(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        read.push(byte[0]);
    }
    read
}

/// The answer may begin before the body has ended, and both go on at the same time.
#[test]
fn body_and_answer_are_sent_at_the_same_time() {
    let address = raw(|mut stream| {
        stream.set_read_timeout(Some(deadline())).unwrap();
        read_to(&mut stream, b"\r\n\r\n");
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n")
            .unwrap();
        for word in ["one", "two", "six"] {
            read_to(&mut stream, format!("3\r\n{word}\r\n").as_bytes());
            stream.write_all(format!("5\r\n<{word}>\r\n").as_bytes()).unwrap();
        }
        read_to(&mut stream, b"0\r\n\r\n");
        stream.write_all(b"0\r\n\r\n").unwrap();
    });
    let gateway = before(address);
    let mut client = gateway.client();
    client.request("POST", "/", &[("transfer-encoding", "chunked")]);
    client.reader.head().unwrap().unwrap();
    for word in ["one", "two", "six"] {
        client.send(format!("3\r\n{word}\r\n"));
        assert_eq!(client.reader.exactly(10).unwrap(), format!("5\r\n<{word}>\r\n").as_bytes());
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.reader.exactly(5).unwrap(), b"0\r\n\r\n");

    let mut h2 = H2::connect(gateway.edge);
    h2.send(frame(HEADERS, END_HEADERS, 1, &block(&pseudo("POST", "/"))));
    assert!(h2.until(deadline(), |frame| frame.kind == HEADERS).is_some());
    for word in ["one", "two", "six"] {
        h2.send(frame(DATA, if word == "six" { END } else { 0 }, 1, word.as_bytes()));
        let echoed = h2.until(deadline(), |frame| frame.kind == DATA).unwrap();
        assert_eq!(echoed.payload, format!("<{word}>").as_bytes());
    }
    assert!(h2.until(deadline(), |frame| frame.flags & END != 0).is_some());
}

/// A client that reads its answer only when it has sent everything gets on with sending, also while the answer is more
/// than fits between both.
#[test]
fn an_upload_continues_while_the_answer_is_not_read() {
    const LENGTH: usize = 24 << 20;
    let address = raw(|mut stream| {
        read_to(&mut stream, b"\r\n\r\n");
        let mut writer = stream.try_clone().unwrap();
        let answer = std::thread::spawn(move || {
            write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n").unwrap();
            writer.write_all(&vec![b'a'; LENGTH]).unwrap();
        });
        let mut piece = vec![0; 1 << 20];
        let mut read = 0;
        while read < LENGTH {
            match stream.read(&mut piece) {
                Ok(length @ 1..) => read += length,
                _ => break,
            }
        }
        answer.join().unwrap();
    });
    let gateway = before(address);
    let mut client = gateway.client();
    client.request("POST", "/", &[("content-length", &LENGTH.to_string())]);
    client.writer().write_all(&vec![b'b'; LENGTH]).unwrap();
    assert_eq!(client.response().body.len(), LENGTH);
}

/// An answer before the end of the upload is passed on, and its connection serves no further request.
#[test]
fn a_connection_that_was_answered_early_is_not_used_again() {
    let upstream = Upstream::scripted(|exchange| match exchange.seen.target.as_str() {
        "/early" => {
            exchange.write("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno");
            let _ = exchange.body();
            exchange.close();
        }
        "/bare" => {
            exchange.write("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
            let _ = exchange.body();
            exchange.close();
        }
        _ => exchange.answer(200, &[], b"done"),
    });
    let gateway = Setup::default().upstream(&upstream).workers(1).start(FORWARD_ALL);
    for (target, body) in [("/early", "no"), ("/bare", "")] {
        for framing in [("content-length", "10"), ("transfer-encoding", "chunked")] {
            let mut client = gateway.client();
            client.request("POST", target, &[framing]).send("5\r\nhe");
            let answer = client.response();
            assert_eq!((answer.status, answer.text().as_str()), (403, body));
            client.send("llo\r\n0\r\n\r\n".get(..if framing.1 == "10" { 5 } else { 10 }).unwrap());
            assert_eq!(gateway.client().post("/", &[], b"x").text(), "done");
            assert_eq!(gateway.client().get("/").text(), "done");
        }
    }
    until("the connections of the early answers are closed", || (upstream.open() <= 1).then_some(()));
    for seen in upstream.seen().iter().filter(|seen| seen.target != "/") {
        assert!(seen.body.is_empty(), "{} was presented as complete", seen.target);
    }
    // Requests with and without a body share one connection.
    let before = upstream.connections();
    for _ in 0..5 {
        assert_eq!(gateway.client().post("/", &[], b"x").text(), "done");
        assert_eq!(gateway.client().get("/").text(), "done");
    }
    assert_eq!(upstream.connections(), before);
}

/// An API that answers and closes without a look at the rest: its answer counts, not the upload that broke.
#[test]
fn an_answer_takes_precedence_over_a_broken_upload() {
    let address = raw(|mut stream| {
        read_to(&mut stream, b"\r\n\r\n");
        stream
            .write_all(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig")
            .unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // The rest is refused with a reset.
    });
    let gateway = before(address);
    for _ in 0..20 {
        let answer = gateway.client().post("/", &[], &vec![b'x'; 2 << 20]);
        assert_eq!((answer.status, answer.text().as_str()), (413, "big"));
    }
}

/// A small body goes with its head, framed as it came, also to a server that was asked before.
#[test]
fn bodies_keep_their_framing() {
    let upstream = Upstream::echoing();
    let gateway = Setup::default().upstream(&upstream).workers(1).start(FORWARD_ALL);
    let mut client = gateway.client();
    for method in ["POST", "PUT", "GET", "DELETE"] {
        client.request(method, "/", &[("content-length", "5")]).send("hello");
        assert_eq!(client.response().text(), "hello");
        let seen = upstream.last().head;
        assert_eq!((seen.one("content-length"), seen.one("transfer-encoding")), (Some("5"), None));
        client.request(method, "/", &[("transfer-encoding", "chunked")]).send("5\r\nhello\r\n0\r\n\r\n");
        assert_eq!(client.response().text(), "hello");
        let seen = upstream.last().head;
        assert_eq!((seen.one("content-length"), seen.one("transfer-encoding")), (None, Some("chunked")));
    }
    // Pieces that are written from where they are, between small ones.
    let large: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let mut writer = client.writer();
    client.request("POST", "/", &[("transfer-encoding", "chunked")]);
    let chunks = large
        .chunks(999_990)
        .map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    let chunks = chunks.chain([b"0\r\n\r\n".to_vec()]).collect::<Vec<_>>().concat();
    let upload = std::thread::spawn(move || writer.write_all(&chunks).unwrap());
    assert!(client.response().body == large);
    upload.join().unwrap();
    assert!(client.post("/", &[], &large).body == large);
    let mut h2 = H2::connect(gateway.edge);
    for (stream, length) in [(1, Some("4")), (3, None)] {
        let fields =
            [pseudo("POST", "/"), length.map(|length| ("content-length", length)).into_iter().collect()];
        h2.send(frame(HEADERS, END_HEADERS, stream, &block(&fields.concat())));
        h2.send([frame(DATA, 0, stream, b"bo"), frame(DATA, END, stream, b"dy")].concat());
        let body = h2.until(deadline(), |frame| frame.kind == DATA).unwrap();
        assert_eq!(body.payload, b"body");
        assert_eq!(upstream.last().head.one("content-length"), length);
    }
    // A body of no bytes is at its end for the server before the client says so.
    let fields = [pseudo("POST", "/"), vec![("content-length", "0")]].concat();
    h2.send(frame(HEADERS, END_HEADERS, 5, &block(&fields)));
    assert_eq!(h2.end(5), End::Status(200));
    assert_eq!(upstream.connections(), 1);
}

/// Uploads of lengths around those at which they are cut, in one piece or in chunks, come through as they are.
#[test]
fn uploads_of_any_length_come_whole() {
    let upstream = Upstream::echoing();
    let gateway = Setup::default().upstream(&upstream).workers(1).start(FORWARD_ALL);
    let all: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
    let mut client = gateway.client();
    let edges = [1, 255, 4 << 10, 16 << 10, 32 << 10, 48 << 10, 64 << 10, 128 << 10];
    for length in edges.iter().flat_map(|edge| [edge - 1, *edge, edge + 1]) {
        let body = &all[..length];
        assert!(client.post("/", &[], body).body == body, "{length}");
        for size in [length.max(1), 16 << 10, 1_000, 40_000] {
            let chunk = |chunk: &[u8]| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
            let chunks = body.chunks(size).map(chunk).chain([b"0\r\n\r\n".to_vec()]);
            client
                .request("PUT", "/", &[("transfer-encoding", "chunked")])
                .send(chunks.collect::<Vec<_>>().concat());
            assert!(client.response().body == body, "{length} in chunks of {size}");
        }
    }
    assert_eq!(upstream.connections(), 1);
}

/// An API that takes nothing of an upload and says nothing is given up in its time, and nothing is left of it.
#[test]
fn an_api_that_takes_no_upload_is_504() {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::scripted(move |exchange| {
        waits.wait();
        exchange.close();
    });
    let file = FORWARD_ALL.replace("\"]}", "\"], timeouts: {response: 500ms}}");
    let gateway = Setup::default().upstream(&upstream).workers(1).start(&file);
    let mut client = gateway.client();
    let mut writer = client.writer();
    client.request("POST", "/", &[("content-length", &(64 << 20).to_string())]);
    let upload = std::thread::spawn(move || while writer.write_all(&[b'x'; 64 << 10]).is_ok() {});
    assert_eq!(client.response().status, 504);
    drop(client);
    gate.open();
    until("the upstream connection is closed", || (upstream.open() == 0).then_some(()));
    upload.join().unwrap();
}

/// What an API says before its answer reaches clients that upload.
#[test]
fn hints_reach_clients_that_upload() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n");
        exchange.answer(200, &[], b"done");
    });
    let gateway = Setup::default().upstream(&upstream).workers(1).start(FORWARD_ALL);
    let mut client = gateway.client();
    client.request("POST", "/", &[("content-length", "4")]);
    let hint = client.response();
    assert_eq!((hint.status, hint.header("link")), (103, Some("</a.css>")));
    client.send("body");
    assert_eq!(client.response().text(), "done");

    let mut h2 = H2::connect(gateway.edge);
    h2.send(frame(HEADERS, END_HEADERS, 1, &block(&pseudo("POST", "/"))));
    let hint = h2.until(deadline(), |frame| frame.kind == HEADERS).unwrap();
    assert!(hint.payload.windows(6).any(|part| part == b"/a.css") && hint.flags & END == 0);
    h2.send(frame(DATA, END, 1, b"body"));
    let body = h2.until(deadline(), |frame| frame.kind == DATA).unwrap();
    assert_eq!(body.payload, b"done");
}

/// A client that leaves in the middle of its upload, before or after the answer has begun, takes the connection along.
#[test]
fn a_client_that_leaves_aborts_its_upload() {
    let upstream = Upstream::scripted(|exchange| {
        if exchange.seen.target == "/begun" {
            exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n");
        }
        assert!(exchange.body().is_err(), "it was presented as complete");
        exchange.close();
    });
    let gateway = Setup::default().upstream(&upstream).workers(1).start(FORWARD_ALL);
    for target in ["/", "/begun"] {
        for framing in [("content-length", "10"), ("transfer-encoding", "chunked")] {
            let before = upstream.seen().len();
            let mut client: Client = gateway.client();
            client.request("POST", target, &[framing]).send("5\r\nhe");
            upstream.wait_for(before + 1);
            if target == "/begun" {
                client.reader.head().unwrap().unwrap();
            }
            drop(client);
            until("the upstream connection is closed", || (upstream.open() == 0).then_some(()));
        }
    }
    for fields in [vec![], vec![("content-length", "10")]] {
        let mut h2 = H2::connect(gateway.edge);
        h2.send(frame(HEADERS, END_HEADERS, 1, &block(&[pseudo("POST", "/begun"), fields].concat())));
        h2.send(frame(DATA, 0, 1, b"hello"));
        assert_eq!(h2.end(1), End::Status(200));
        h2.send(frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes()));
        until("the upstream connection is closed", || (upstream.open() == 0).then_some(()));
    }
    until("nobody is connected", || {
        (gateway.metric("sluicegate_connections", &[("listener", "edge")]) == 0.0).then_some(())
    });
}
