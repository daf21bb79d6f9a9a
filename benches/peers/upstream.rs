//! The server behind the gateways that `benches/peers` compares: one thread, one epoll, every answer made beforehand.
//!
//!     cargo run --profile dist --example light-upstream -- 100 10240 100@30000 websocket
//!
//! Each argument is a listener on a free port: the bytes of its answers' bodies, and behind an `@` the milliseconds for
//! which it leaves requests waiting. It prints the ports, one a line. It answers any request over HTTP/1.1 with 200, after
//! its body if its method is POST, and keeps connections open; nothing else is understood. `websocket` is a listener that
//! takes any request for an upgrade with the key of RFC 6455 §1.3, and sends all messages back as they arrive. It shares a
//! core with the load, so what it costs is what the load lacks.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // it reads clocks, and a test tool may end in a panic

mod frames;
mod requests;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Socket, Type};

use frames::Frames;
use requests::{Body, heads};

/// The answer to an upgrade: what belongs to the key is a constant, as the key is.
const SWITCHED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                          Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// One address, and what it answers.
struct Listener {
    socket: TcpListener,
    answer: Vec<u8>,
    delay: Duration,
    websocket: bool,
}

/// A connection of a gateway.
struct Connection {
    socket: TcpStream,
    listener: usize,
    /// What was read of a head that has not ended.
    begun: Vec<u8>,
    /// What is to come of the body of a POST.
    body: Body,
    /// What is to come of a message, once it is upgraded.
    frames: Option<Frames>,
    /// What the socket did not take at once.
    unsent: Vec<u8>,
}

fn listener(spec: &str) -> Listener {
    let (size, delay) = spec.split_once('@').unwrap_or((spec, "0"));
    let websocket = size == "websocket";
    let answer = if websocket { Vec::new() } else { answer(size.parse().expect("a number of bytes")) };
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    // mio's own has room for 128 connections that are not accepted yet: a thousand at once would wait a second for their
    // next try, and gateways give them up.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&address.into()).expect("a free port");
    socket.listen(16 << 10).unwrap();
    socket.set_nonblocking(true).unwrap();
    Listener {
        socket: TcpListener::from_std(socket.into()),
        answer,
        delay: Duration::from_millis(delay.parse().expect("a number of milliseconds")),
        websocket,
    }
}

fn answer(size: usize) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: light\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
         Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    );
    [head.as_bytes(), &vec![b'x'; size]].concat()
}

impl Connection {
    /// Reads what there is: how many requests came to an end, or none if the connection did.
    fn requests(&mut self, buffer: &mut [u8], closing: bool) -> Option<usize> {
        let mut count = 0;
        loop {
            let read = match self.socket.read(buffer) {
                Ok(0) => return None,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return None,
            };
            let posts = self.begun.first().or(buffer.first()) == Some(&b'P');
            if posts || !matches!(self.body, Body::None) {
                count += self.posts(&buffer[..read]);
            } else if self.begun.is_empty() {
                let (more, end) = heads(&buffer[..read]);
                count += more;
                self.begun.extend_from_slice(&buffer[end..read]);
            } else {
                self.begun.extend_from_slice(&buffer[..read]);
                let (more, end) = heads(&self.begun);
                count += more;
                self.begun.drain(..end);
            }
            if read < buffer.len() && !closing {
                return Some(count); // the socket is empty, and epoll tells when more comes
            }
        }
    }

    /// How many requests with bodies came to an end in these bytes.
    fn posts(&mut self, mut bytes: &[u8]) -> usize {
        let mut count = 0;
        while !bytes.is_empty() {
            if !matches!(self.body, Body::None) {
                bytes = &bytes[self.body.take(bytes)..];
                count += usize::from(matches!(self.body, Body::None));
                continue;
            }
            let before = self.begun.len();
            self.begun.extend_from_slice(bytes);
            let from = before.saturating_sub(3);
            let Some(end) = self.begun[from..].windows(4).position(|four| four == b"\r\n\r\n") else { break };
            let end = from + end + 4;
            self.body = Body::of(&self.begun[..end]);
            count += usize::from(matches!(self.body, Body::None));
            self.begun.clear();
            bytes = &bytes[end - before..];
        }
        count
    }

    /// Reads what there is, upgrades the connection if it is not yet, and sends messages back. False if the connection is
    /// no more.
    fn echo(&mut self, buffer: &mut [u8], closing: bool) -> bool {
        loop {
            let read = match self.socket.read(buffer) {
                Ok(0) => return false,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            if let Some(frames) = &mut self.frames {
                frames.echo(&buffer[..read], &mut self.unsent);
            } else {
                // A client sends no message before it has the answer, so nothing follows the head.
                self.begun.extend_from_slice(&buffer[..read]);
                if self.begun.ends_with(b"\r\n\r\n") {
                    self.frames = Some(Frames::default());
                    self.unsent.extend_from_slice(SWITCHED);
                }
            }
            if !self.answer(&[], 0) {
                return false;
            }
            if read < buffer.len() && !closing {
                return true;
            }
        }
    }

    /// Sends answers, and what was left of the last ones first. False if the connection is no more.
    fn answer(&mut self, answer: &[u8], count: usize) -> bool {
        if count == 1 && self.unsent.is_empty() {
            match self.socket.write(answer) {
                Ok(sent) => self.unsent.extend_from_slice(&answer[sent..]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.unsent.extend_from_slice(answer),
                Err(_) => return false,
            }
            return true;
        }
        for _ in 0..count {
            self.unsent.extend_from_slice(answer);
        }
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

fn main() {
    let mut poll = Poll::new().unwrap();
    let mut listeners: Vec<Listener> = std::env::args().skip(1).map(|spec| listener(&spec)).collect();
    assert!(!listeners.is_empty(), "what to answer: a number of bytes, or several");
    for (at, listener) in listeners.iter_mut().enumerate() {
        poll.registry().register(&mut listener.socket, Token(at), Interest::READABLE).unwrap();
        println!("{}", listener.socket.local_addr().unwrap().port());
    }
    let mut connections: Vec<Option<Connection>> = Vec::new();
    // Requests that are left waiting, by when they are answered. The delays of two listeners may differ, so one behind the
    // other can be due first; what waits here is there to wait, not to be measured.
    let mut waiting: VecDeque<(Instant, usize, usize)> = VecDeque::new();
    let mut events = Events::with_capacity(1024);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let pause = waiting.front().map(|(due, ..)| due.saturating_duration_since(Instant::now()));
        match poll.poll(&mut events, pause) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            result => result.unwrap(),
        }
        for event in &events {
            let Token(token) = event.token();
            if let Some(listener) = listeners.get(token) {
                while let Ok((mut socket, _)) = listener.socket.accept() {
                    let at = connections.iter().position(Option::is_none).unwrap_or(connections.len());
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    let _ = socket.set_nodelay(true);
                    poll.registry().register(&mut socket, Token(listeners.len() + at), interest).unwrap();
                    let (begun, unsent) = (Vec::new(), Vec::new());
                    let (body, frames) = (Body::None, None);
                    let connection = Connection { socket, listener: token, begun, body, frames, unsent };
                    connections.resize_with(connections.len().max(at + 1), || None);
                    connections[at] = Some(connection);
                }
                continue;
            }
            let at = token - listeners.len();
            let Some(connection) = &mut connections[at] else { continue };
            let Listener { answer, delay, websocket, .. } = &listeners[connection.listener];
            let mut alive = true;
            if event.is_readable() && *websocket {
                alive = connection.echo(&mut buffer, event.is_read_closed());
            } else if event.is_readable() {
                match connection.requests(&mut buffer, event.is_read_closed()) {
                    None => alive = false,
                    Some(count) if delay.is_zero() => alive = count == 0 || connection.answer(answer, count),
                    Some(0) => {}
                    Some(count) => waiting.push_back((Instant::now() + *delay, at, count)),
                }
            }
            if alive && event.is_writable() && !connection.unsent.is_empty() {
                alive = connection.answer(answer, 0);
            }
            if !alive {
                connections[at] = None;
                waiting.retain(|(_, of, _)| *of != at);
            }
        }
        while waiting.front().is_some_and(|(due, ..)| *due <= Instant::now()) {
            let Some((_, at, count)) = waiting.pop_front() else { break };
            if let Some(connection) = &mut connections[at]
                && !connection.answer(&listeners[connection.listener].answer, count)
            {
                connections[at] = None;
            }
        }
    }
}
