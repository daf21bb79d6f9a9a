//! The load with which budgets are measured: the same request over one connection, and an upstream that answers it.
//! Neither allocates in the steady state.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const REQUEST: &str = "Host: api.example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36\r\n\
    Accept: application/json\r\nAccept-Language: en-GB,en;q=0.9\r\nAccept-Encoding: gzip, br\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef\r\nReferer: https://www.example.com/items\r\n\
    X-Api-Key: key-1\r\n\r\n";
/// The kinds of requests that have a budget.
pub const KINDS: [Kind; 3] = [
    Kind { name: "forwarded", target: "/v1/items", body: 0, status: "200" },
    Kind { name: "refused", target: "/v0/items", body: 0, status: "429" },
    Kind { name: "posted", target: "/v1/items", body: 1_024, status: "200" },
];

/// A kind of request: with a body it is a POST.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub target: &'static str,
    /// The bytes of its body.
    pub body: usize,
    pub status: &'static str,
}

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 102\r\n\r\n\
    {\"items\":[\"0123456789\",\"0123456789\",\"0123456789\",\"0123456789\",\"0123456789\",\"0123456789\",\"012345678\"]}\n";

/// The configuration of both budgets: `/v1/items` is forwarded, `/v0/items` is refused. `{edge}` and `{upstream}` are
/// replaced by addresses.
pub const RULES: &str = "
listen: ['{edge}']
access_log: off
limits:
  plenty: {key: api_key | ip, rate: 1000000000/s, burst: 1000000000}
  scarce: {key: api_key | ip, rate: 1/30d, burst: 1}
upstreams: {api: {servers: ['http://{upstream}']}}
routes:
  - {name: forwarded, match: {path: /v1/*}, upstream: api, limits: [plenty]}
  - {name: refused, match: {path: /v0/*}, upstream: api, limits: [scarce]}
";

/// Answers every request of the first connection in a thread that first calls `begun`. A second connection is refused: a gateway that
/// does not use the first one again fails.
pub fn upstream(begun: fn()) -> SocketAddr {
    let listener = super::ReservedPort::new().listen();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        begun();
        let mut link = Connection::new(listener.accept().unwrap().0);
        drop(listener);
        while link.message().is_some() && link.stream.write_all(ANSWER.as_bytes()).is_ok() {}
    });
    address
}

/// A connection with its read buffer.
pub struct Connection {
    stream: TcpStream,
    buffer: [u8; 4096],
    filled: usize,
}

impl Connection {
    /// Connects as a client, and retries until the server listens.
    pub fn connect(address: SocketAddr, patience: Duration) -> Self {
        let stream = super::within(patience, || TcpStream::connect(address).ok());
        Self::new(stream.unwrap_or_else(|| panic!("nobody listens on {address}")))
    }

    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: [0; 4096], filled: 0 }
    }

    /// Sends `times` requests of this kind. Asserts that all answers have its status.
    pub fn ask(&mut self, kind: Kind, times: usize) {
        let Kind { target, body, status, .. } = kind;
        let request = match body {
            0 => format!("GET {target} HTTP/1.1\r\n{REQUEST}"),
            _ => format!("POST {target} HTTP/1.1\r\nContent-Length: {body}\r\n{REQUEST}{}", "x".repeat(body)),
        };
        self.stream.set_read_timeout(Some(super::deadline())).unwrap();
        for _ in 0..times {
            self.stream.write_all(request.as_bytes()).unwrap();
            let (head, body) = self.message().expect("the answer is cut short");
            let text = std::str::from_utf8(&self.buffer[..head]).unwrap();
            assert_eq!(text.get(9..12), Some(status), "{text}");
            assert_eq!(self.filled, head + body);
        }
    }

    /// Reads the next message. Returns the lengths of its head and its body; `None` at the end of the connection.
    fn message(&mut self) -> Option<(usize, usize)> {
        let head = Some(self.head()).filter(|head| *head > 0)?;
        let text = std::str::from_utf8(&self.buffer[..head]).unwrap();
        let lengths = text.lines().filter_map(|line| line.split_once(": "));
        let mut lengths = lengths.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let body: usize = lengths.next().map_or(0, |(_, length)| length.parse().unwrap());
        while self.filled < head + body {
            if self.read() == 0 {
                return None;
            }
        }
        Some((head, body))
    }

    /// Clears the buffer and reads the next head. Returns its length, zero at the end of the connection.
    fn head(&mut self) -> usize {
        self.filled = 0;
        loop {
            if let Some(at) = self.buffer[..self.filled].windows(4).position(|four| four == b"\r\n\r\n") {
                return at + 4;
            }
            if self.read() == 0 {
                return 0;
            }
        }
    }

    fn read(&mut self) -> usize {
        let read = self.stream.read(&mut self.buffer[self.filled..]).unwrap_or(0);
        self.filled += read;
        read
    }
}
