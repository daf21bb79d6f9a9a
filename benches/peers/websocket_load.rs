//! Messages over WebSocket, each sent when the one before has come back.
//!
//!     cargo run --profile dist --example websocket-load -- 127.0.0.1:8080 BYTES CONNECTIONS SECONDS < REQUESTS
//!
//! Standard input is a list of upgrade requests with the key of RFC 6455 §1.3, each ending in an empty line; connections
//! take them in turn. One thread, one epoll: each connection sends a masked binary frame of BYTES, waits until the server
//! has sent the same message back, and sends it again. Whatever else comes back ends the program. Prints how many came back.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // it reads clocks, and a test tool may end in a panic

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

/// Longer than any gateway should need: what takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a server answers to the key of RFC 6455 §1.3.
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// An upgraded connection.
struct Connection {
    socket: TcpStream,
    /// How much of the message was sent.
    sent: usize,
    /// How much of it has come back.
    back: usize,
}

/// A final binary frame.
fn frame(payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let length = payload.len();
    let masked = if mask.is_some() { 0x80 } else { 0 };
    let mut frame = match length {
        0..126 => vec![0x82, masked | length as u8],
        126..0x1_0000 => [&[0x82, masked | 126][..], &(length as u16).to_be_bytes()].concat(),
        _ => [&[0x82, masked | 127][..], &(length as u64).to_be_bytes()].concat(),
    };
    frame.extend(mask.iter().flatten());
    frame.extend(payload.iter().zip(mask.unwrap_or_default().iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

fn upgraded(address: SocketAddr, request: &[u8]) -> Connection {
    let mut socket = std::net::TcpStream::connect(address).expect("a connection");
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(request).expect("room for a request");
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).expect("an answer");
        answer.extend(byte);
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 101 ") && answer.contains(ACCEPT), "not upgraded: {answer}");
    socket.set_nonblocking(true).unwrap();
    Connection { socket: TcpStream::from_std(socket), sent: 0, back: 0 }
}

impl Connection {
    fn send(&mut self, message: &[u8]) {
        while self.sent < message.len() {
            match self.socket.write(&message[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("sending: {error}"),
            }
        }
    }

    /// Reads what there is. Whether all of the message is back; then the next may be sent.
    fn receive(&mut self, echo: &[u8], buffer: &mut [u8]) -> bool {
        match self.socket.read(buffer) {
            Ok(0) => panic!("the gateway closed a connection"),
            Ok(read) => {
                let expected = echo.get(self.back..self.back + read);
                assert!(expected == Some(&buffer[..read]), "another message came back");
                self.back += read;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("reading: {error}"),
        }
        let whole = self.back == echo.len();
        if whole {
            (self.sent, self.back) = (0, 0);
        }
        whole
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, bytes, connections, seconds] = &arguments[..] else {
        panic!("what is needed: ADDRESS BYTES CONNECTIONS SECONDS");
    };
    let address: SocketAddr = address.parse().unwrap();
    let payload: Vec<u8> = (0..bytes.parse().unwrap()).map(|at: usize| (at % 251) as u8).collect();
    let (message, echo) = (frame(&payload, Some(MASK)), frame(&payload, None));
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).unwrap();
    let requests = text.split_inclusive("\r\n\r\n").map(str::as_bytes).cycle();

    let mut poll = Poll::new().unwrap();
    let mut connections: Vec<Connection> =
        requests.take(connections.parse().unwrap()).map(|request| upgraded(address, request)).collect();
    for (at, connection) in connections.iter_mut().enumerate() {
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut connection.socket, Token(at), interest).unwrap();
    }
    let mut events = Events::with_capacity(1024);
    let mut buffer = vec![0; echo.len() + 1]; // never full, so one read takes all that there is
    let (end, mut done) = (Instant::now() + Duration::from_secs_f64(seconds.parse().unwrap()), 0_u64);
    while Instant::now() < end {
        poll.poll(&mut events, Some(PATIENCE)).unwrap();
        assert!(!events.is_empty(), "no message came back in {PATIENCE:?}");
        for event in &events {
            let Token(at) = event.token();
            if event.is_readable() && connections[at].receive(&echo, &mut buffer) {
                done += 1;
            }
            connections[at].send(&message);
        }
    }
    println!("done {done} other 0");
}
