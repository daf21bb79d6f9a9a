//! The memory of a waiting connection: idle connections must not exhaust the memory of a machine.
#![allow(missing_docs, clippy::unwrap_used)]

mod harness;

use std::io::Read;
use std::net::TcpListener;
use std::sync::{Arc, mpsc};

use harness::h2::{self, End, H2};
use harness::tls::{Authority, TlsClient};
use harness::{Gateway, Setup, deadline};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const KIB: usize = 1 << 10;
/// Connections that are opened before the measurement: the first ones allocate memory that all share.
const FIRST: usize = 200;
const MORE: usize = 1_000;

const RULES: &str = "
limits: {l: {key: ip, rate: 100000/s}}
routes: [{limits: [l], respond: {status: 200, body: here}}]
";

/// By how many bytes the gateway grows with each connection that `open` makes and returns.
fn growth<T>(gateway: &Gateway, mut open: impl FnMut() -> T) -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let _first: Vec<T> = (0..FIRST).map(|_| open()).collect();
    let before = gateway.memory();
    let _more: Vec<T> = (0..MORE).map(|_| open()).collect();
    let after = gateway.memory();
    let held = gateway.admin_get("/status").json()["connections"].as_u64().unwrap();
    assert!(held >= (FIRST + MORE) as u64, "{held} connections are open");
    after.saturating_sub(before) / MORE
}

fn with_tls(authority: &Authority) -> Gateway {
    let pair = authority.sign(&["api.test"]);
    let listen =
        "listen: [{name: edge, address: \"{edge}\", tls: {certificates: [{cert: c.pem, key: k.pem}]}}]";
    let setup = Setup::default().workers(1).file("c.pem", &pair.cert).file("k.pem", &pair.key);
    setup.start(&format!("{listen}\n{RULES}"))
}

#[test]
fn an_idle_connection() {
    let gateway = Setup::default().workers(1).start(RULES);
    let grown = growth(&gateway, || {
        let mut client = gateway.client();
        assert_eq!(client.get("/").status, 200);
        client
    });
    assert!(grown <= 4 * KIB, "{grown} bytes");
}

#[test]
fn an_idle_connection_with_tls() {
    let authority = Authority::new();
    let gateway = with_tls(&authority);
    let config = Arc::new(authority.client(None));
    let grown = growth(&gateway, || {
        let mut client = TlsClient::connect(&config, gateway.edge, "api.test", b"").unwrap();
        assert_eq!(client.ask("/", &[("host", "api.test")]).unwrap().0, 200);
        client
    });
    assert!(grown <= 16 * KIB, "{grown} bytes");
}

/// An idle connection keeps no buffer.
#[test]
fn an_idle_connection_of_http2() {
    let gateway = Setup::default().workers(1).start(RULES);
    let grown = growth(&gateway, || {
        let mut client = H2::connect(gateway.edge);
        client.send(h2::get(1, "/"));
        assert!(matches!(client.end(1), End::Status(200)));
        client
    });
    assert!(grown <= 8 * KIB, "{grown} bytes");
}

/// A request in flight: a connection to the client and one to the server.
#[test]
fn a_busy_pair() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let (asks, asked) = mpsc::channel();
    // Runs until the process exits.
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in silent.incoming() {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(deadline())).unwrap();
            assert!(stream.read(&mut [0; 4 << 10]).unwrap() > 0);
            held.push(stream);
            asks.send(()).unwrap();
        }
    });
    let gateway = Setup::default()
        .workers(1)
        .value("silent", address)
        .start("upstreams: {u: {servers: [http://{silent}]}}\nroutes: [{upstream: u}]\n");
    let grown = growth(&gateway, || {
        let mut client = gateway.client();
        client.request("GET", "/", &[]);
        asked.recv_timeout(deadline()).unwrap();
        client
    });
    assert!(grown <= 8 * KIB, "{grown} bytes");
}
