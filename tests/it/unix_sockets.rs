//! Unix sockets in the place of TCP: servers of an upstream.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use crate::harness::h2_upstream::H2Upstream;
use crate::harness::{Gateway, Setup, Upstream, until};

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
    assert_eq!(upstream.last().head.one("host"), Some("api.test"));
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
