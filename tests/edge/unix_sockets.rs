//! Unix sockets in the place of TCP: servers of an upstream, and listeners.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use crate::harness::h2_upstream::H2Upstream;
use crate::harness::{Gateway, Setup, Upstream, deadline, until};

/// Passes the connections to a Unix socket on to a server.
fn relay(path: &Path, to: SocketAddr) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(to).unwrap();
            let (from, back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || copy(from, server));
            std::thread::spawn(move || copy_back(back, client));
        }
    });
}

fn copy(mut from: UnixStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to); // either side may close
    let _ = to.shutdown(Shutdown::Write);
}

fn copy_back(mut from: TcpStream, mut to: UnixStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// A gateway before servers on Unix sockets in this folder.
fn before(folder: &Path, fields: &str) -> Gateway {
    let folder = folder.display();
    let fields = fields.replace("SOCKET", &format!("unix:{folder}/app.sock"));
    Setup::default()
        .workers(1)
        .start(&format!("upstreams: {{api: {{{fields}}}}}\nroutes: [{{name: api, upstream: api}}]\n"))
}

#[test]
fn requests_are_forwarded_to_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::echoing();
    relay(&folder.path().join("app.sock"), upstream.address);
    let gateway = before(folder.path(), "servers: [SOCKET], health: {path: /health, every: 1s}");
    let mut client = gateway.client();
    for size in [0, 3, 300_000] {
        let body = vec![b'x'; size];
        client.send(format!("POST /items?a=1 HTTP/1.1\r\nHost: api.test\r\nContent-Length: {size}\r\n\r\n"));
        client.send(&body);
        let answer = client.response();
        assert_eq!((answer.status, answer.body.len()), (200, size));
    }
    let forwarded: Vec<_> = upstream.seen().into_iter().filter(|seen| seen.target == "/items?a=1").collect();
    assert_eq!(forwarded.iter().map(|seen| seen.head.one("host")).collect::<Vec<_>>(), [Some("api.test"); 3]);
    let probe = until("a health check", || upstream.seen().into_iter().find(|seen| seen.target == "/health"));
    assert_eq!(probe.head.one("host"), Some("localhost"));
    let status = gateway.admin_get("/status").json();
    let server = &status["upstreams"][0]["servers"][0];
    let shown = format!("unix:{}/app.sock", folder.path().display());
    assert_eq!(
        (&server["server"], &server["addresses"][0]["address"]),
        (&shown.clone().into(), &shown.into())
    );
}

#[test]
fn http2_is_spoken_over_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = H2Upstream::answering("done");
    relay(&folder.path().join("app.sock"), upstream.address);
    let gateway = before(folder.path(), "servers: [SOCKET], protocol: http2");
    assert_eq!([(); 3].map(|()| gateway.get("/").text()), ["done"; 3]);
    assert_eq!(upstream.connections(), 1);
}

/// A server that has not been started yet, or is gone, is one that cannot be reached; a new one at the path is found.
#[test]
fn a_unix_socket_may_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = before(folder.path(), "servers: [SOCKET], ejection: off");
    assert_eq!(gateway.get("/").status, 502);
    let upstream = Upstream::scripted(|exchange| {
        exchange.answer(200, &[("connection", "close")], b"done");
        exchange.close();
    });
    let path = folder.path().join("app.sock");
    relay(&path, upstream.address);
    assert_eq!(gateway.get("/").status, 200);
    std::fs::remove_file(&path).unwrap();
    let second = Upstream::answering("second");
    relay(&path, second.address);
    assert_eq!(gateway.get("/").text(), "second");
}

const LIMITED: &str = "client_ip: {trusted_proxies: [127.0.0.1]}\n\
                       limits: {per-client: {key: ip, rate: 100/day}}\n\
                       routes: [{name: all, respond: {status: 200, body: ok}, limits: [per-client]}]\n";

/// A gateway that listens on a Unix socket too, and its configuration.
fn listening(path: &Path, setup: Setup) -> (Gateway, String) {
    let text =
        format!("listen: [\"{{edge}}\", {{name: local, address: \"unix:{}\"}}]\n{LIMITED}", path.display());
    (setup.start(&text), text)
}

/// The whole answer to a request on a connection of its own.
fn get(path: &Path, headers: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(deadline()))?;
    stream.write_all(
        format!("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n{headers}\r\n").as_bytes(),
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn serves(path: &Path) -> bool {
    get(path, "").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 "))
}

/// Clients on a Unix socket have the address 127.0.0.1, so that a proxy there can be trusted.
#[test]
fn a_listener_can_be_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edge.sock");
    let (mut gateway, text) = listening(&path, Setup::default().workers(3));
    assert!((0..30).all(|_| serves(&path)));
    assert_eq!(gateway.remaining("per-client", "127.0.0.1"), 70);
    get(&path, "X-Forwarded-For: 192.0.2.1\r\n").unwrap();
    assert_eq!(gateway.remaining("per-client", "192.0.2.1"), 99);
    let kept = UnixStream::connect(&path).unwrap();
    let open =
        |count| (gateway.metric("sluicegate_connections", &[("listener", "local")]) == count).then_some(());
    until("a connection is open", || open(1.0));
    drop(kept);
    until("it is closed", || open(0.0));

    gateway.reload(LIMITED);
    until("the file is removed", || (!path.exists()).then_some(()));
    gateway.reload(&text);
    until("it listens again", || serves(&path).then_some(()));
    gateway.signal("TERM");
    assert_eq!(gateway.ended(deadline()).code(), Some(0));
    assert!(!path.exists(), "it cleans up");
}

/// The socket of a dead process is replaced; one that is in use, and a file that is none, are not touched.
#[test]
fn only_a_socket_that_nobody_has_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edge.sock");
    drop(UnixListener::bind(&path).unwrap());
    let (gateway, text) = listening(&path, Setup::default());
    assert!(serves(&path));
    gateway.write_file("rival.yaml", &text.replace("\"{edge}\", ", ""));
    let (code, said) = gateway.rival("rival.yaml", &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains(&format!("cannot listen on unix:{}: another process listens there", path.display())),
        "{said}"
    );
    let file = folder.path().join("precious");
    std::fs::write(&file, "precious").unwrap();
    let other = text.replace("\"{edge}\", ", "").replace("edge.sock", "precious");
    gateway.write_file("rival.yaml", &other);
    let (code, said) = gateway.rival("rival.yaml", &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("the file there is not a socket"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    assert!(serves(&path));
}

/// A successor takes the socket over, and the end of the old process does not take its file away; if the successor ends early,
/// the old process serves on it again.
#[test]
fn a_unix_socket_is_handed_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edge.sock");
    let (mut old, _) = listening(&path, Setup::default().handover());
    let mut next = old.successor();
    assert_eq!(old.ended(deadline()).code(), Some(0));
    assert!((0..10).all(|_| serves(&path)));
    let mut dying = next.successor();
    dying.signal("KILL");
    dying.ended(deadline());
    assert!((0..10).all(|_| serves(&path)));
    next.signal("TERM");
    assert_eq!(next.ended(deadline()).code(), Some(0));
    assert!(!path.exists());
}
