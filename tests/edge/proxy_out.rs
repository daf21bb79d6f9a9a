//! The PROXY protocol to servers: each connection begins with the address of its client and serves no other client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use crate::harness::authority::Authority;
use crate::harness::{Gateway, Setup, deadline};

/// A server that reads the header of each connection, and answers every request on it.
struct Behind {
    address: SocketAddr,
    headers: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Behind {
    fn start(length: impl Fn(&[u8]) -> Option<usize> + Send + Copy + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let headers = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&headers);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, noted) = (stream.unwrap(), Arc::clone(&noted));
                std::thread::spawn(move || {
                    stream.set_read_timeout(Some(deadline())).unwrap();
                    let (mut read, mut piece) = (Vec::new(), [0; 4096]);
                    let mut header = None;
                    while let Ok(count @ 1..) = stream.read(&mut piece) {
                        read.extend_from_slice(&piece[..count]);
                        if header.is_none() {
                            header = length(&read);
                            let Some(header) = header else { continue };
                            noted.lock().unwrap().push(read.drain(..header).collect());
                        }
                        if read.windows(4).any(|window| window == b"\r\n\r\n") && !read.ends_with(b"half") {
                            read.clear();
                            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone").unwrap();
                        }
                    }
                });
            }
        });
        Self { address, headers }
    }

    fn headers(&self) -> Vec<Vec<u8>> {
        self.headers.lock().unwrap().clone()
    }
}

fn line(read: &[u8]) -> Option<usize> {
    read.windows(2).position(|window| window == b"\r\n").map(|at| at + 2)
}

fn binary(read: &[u8]) -> Option<usize> {
    let length = u16::from_be_bytes([*read.get(14)?, *read.get(15)?]);
    Some(16 + usize::from(length)).filter(|length| read.len() >= *length)
}

fn before(behind: &Behind, version: &str) -> Gateway {
    Setup::default().value("behind", behind.address).value("version", version).workers(1).start(
        "client_ip: {trusted_proxies: [127.0.0.1]}\n\
         upstreams: {api: {servers: [\"http://{behind}\"], proxy_protocol: {version}}}\n\
         routes: [{name: api, match: {path: /*}, upstream: api}]\n",
    )
}

/// Version 1 is a line of text with the client's own address and port.
#[test]
fn a_connection_begins_with_a_header_of_version_1() {
    let behind = Behind::start(line);
    let gateway = before(&behind, "v1");
    let mut client = gateway.client();
    let from = client.reader.stream.local_addr().unwrap();
    assert_eq!(client.get("/").status, 200);
    assert_eq!(client.post("/", &[], b"body").status, 200);
    let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", from.port(), gateway.edge.port());
    let expected = expected.as_bytes();
    assert_eq!(behind.headers(), [expected, expected]);
}

/// The client is the one that a trusted proxy names; each has a connection of its own, whatever came before.
#[test]
fn each_client_has_its_own_connection() {
    let behind = Behind::start(line);
    let gateway = before(&behind, "v1");
    let mut client = gateway.client();
    let shown = ["203.0.113.1", "203.0.113.2", "2001:db8::1", "203.0.113.1"];
    for address in shown {
        assert_eq!(client.ask("GET", "/", &[("x-forwarded-for", address)]).status, 200);
    }
    let port = gateway.edge.port();
    let lines: Vec<String> =
        behind.headers().into_iter().map(|header| String::from_utf8(header).unwrap()).collect();
    assert_eq!(
        lines,
        [
            format!("PROXY TCP4 203.0.113.1 127.0.0.1 0 {port}\r\n"),
            format!("PROXY TCP4 203.0.113.2 127.0.0.1 0 {port}\r\n"),
            format!("PROXY TCP6 2001:db8::1 ::ffff:127.0.0.1 0 {port}\r\n"),
            format!("PROXY TCP4 203.0.113.1 127.0.0.1 0 {port}\r\n"),
        ]
    );
}

/// Version 2 says the same in binary.
#[test]
fn a_connection_begins_with_a_header_of_version_2() {
    let behind = Behind::start(binary);
    let gateway = before(&behind, "v2");
    assert_eq!(gateway.ask("GET", "/", &[("x-forwarded-for", "203.0.113.1")]).status, 200);
    let port = gateway.edge.port().to_be_bytes();
    let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    expected.extend_from_slice(&[203, 0, 113, 1, 127, 0, 0, 1, 0, 0]);
    expected.extend_from_slice(&port);
    assert_eq!(behind.headers(), [expected]);
}

/// With TLS the header comes before the handshake.
#[test]
fn the_header_comes_before_the_handshake() {
    let authority = Authority::new();
    let config = authority.server(&["127.0.0.1"], &["http/1.1"], None);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(deadline())).unwrap();
        let mut header = Vec::new();
        while !header.ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            header.push(byte[0]);
        }
        let mut stream = rustls::StreamOwned::new(rustls::ServerConnection::new(config).unwrap(), stream);
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone").unwrap();
        stream.flush().unwrap();
        header
    });
    let gateway = Setup::default().file("ca.pem", &authority.pem()).value("port", address.port()).start(
        "upstreams: {api: {servers: [\"https://127.0.0.1:{port}\"], tls: {ca: ca.pem}, proxy_protocol: v1}}\n\
         routes: [{name: api, match: {path: /*}, upstream: api}]\n",
    );
    let mut client = gateway.client();
    let from = client.reader.stream.local_addr().unwrap();
    assert_eq!(client.get("/").text(), "done");
    let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", from.port(), gateway.edge.port());
    assert_eq!(server.join().unwrap(), expected.as_bytes());
}
