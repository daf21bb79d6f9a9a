//! The server behind the gateways that `benches/peers` compares: one thread, one epoll, every answer made beforehand.
//!
//!     cargo run --profile dist --example light-upstream -- 100 10240 100@30000
//!
//! Each argument is a listener on a free port: the bytes of its answers' bodies, and behind an `@` the milliseconds for
//! which it leaves requests waiting. It prints the ports, one a line. It answers any request over HTTP/1.1 with 200, after
//! its body if its method is POST, and keeps connections open; nothing else is understood. It shares a core with the load,
//! so what it costs is what the load lacks.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // it reads clocks, and a test tool may end in a panic

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Socket, Type};

/// One address, and what it answers.
struct Listener {
    socket: TcpListener,
    answer: Vec<u8>,
    delay: Duration,
}

/// A connection of a gateway.
struct Connection {
    socket: TcpStream,
    listener: usize,
    /// What was read of a head that has not ended.
    begun: Vec<u8>,
    /// What is to come of the body of a POST.
    body: Body,
    /// What the socket did not take at once.
    unsent: Vec<u8>,
}

/// The rest of a body.
enum Body {
    None,
    /// So many bytes.
    Sized(usize),
    /// Chunks: of the present one so many bytes, with the line end behind it, are to come.
    Chunk(usize),
    /// The line with the size of the next chunk: the size so far, and whether the digits have ended.
    Size(usize, bool),
    /// The end of the last line, of two bytes.
    End(usize),
}

impl Body {
    /// The body that follows a head.
    fn of(head: &[u8]) -> Self {
        if !head.starts_with(b"POST") {
            return Self::None;
        }
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        let value = |name: &str| Some(head.split_once(name)?.1.split("\r\n").next()?.trim().to_owned());
        match value("\r\ncontent-length:").map(|length| length.parse().expect("a length")) {
            Some(0) => Self::None,
            Some(length) => Self::Sized(length),
            None if value("\r\ntransfer-encoding:").is_some() => Self::Size(0, false),
            None => Self::None,
        }
    }

    /// Takes what belongs to the body: the number of bytes.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            match self {
                Self::None => break,
                Self::Sized(left) | Self::Chunk(left) => {
                    let taken = (*left).min(bytes.len() - at);
                    (*left, at) = (*left - taken, at + taken);
                    if *left == 0 {
                        *self =
                            if matches!(self, Self::Sized(_)) { Self::None } else { Self::Size(0, false) };
                    }
                }
                Self::Size(size, ended) => {
                    match bytes[at] {
                        b'\n' if *size == 0 => *self = Self::End(2),
                        b'\n' => *self = Self::Chunk(*size + 2),
                        byte => match char::from(byte).to_digit(16) {
                            Some(digit) if !*ended => *size = *size * 16 + digit as usize,
                            _ => *ended = true,
                        },
                    }
                    at += 1;
                }
                Self::End(left) => {
                    (*left, at) = (*left - 1, at + 1);
                    if *left == 0 {
                        *self = Self::None;
                    }
                }
            }
        }
        at
    }
}

fn listener(spec: &str) -> Listener {
    let (size, delay) = spec.split_once('@').unwrap_or((spec, "0"));
    let size: usize = size.parse().expect("a number of bytes");
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: light\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
         Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    );
    // mio's own has room for 128 connections that are not accepted yet: a thousand at once would wait a second for their
    // next try, and gateways give them up.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&address.into()).expect("a free port");
    socket.listen(16 << 10).unwrap();
    socket.set_nonblocking(true).unwrap();
    Listener {
        socket: TcpListener::from_std(socket.into()),
        answer: [head.as_bytes(), &vec![b'x'; size]].concat(),
        delay: Duration::from_millis(delay.parse().expect("a number of milliseconds")),
    }
}

/// How many heads end in `bytes`, and where the last of them does.
fn heads(bytes: &[u8]) -> (usize, usize) {
    let (mut count, mut end, mut at) = (0, 0, 3);
    while at < bytes.len() {
        // The end is CR LF CR LF: a byte that is neither cannot be in it, nor can the end be in the three before it.
        match bytes[at] {
            b'\n' if bytes[at - 3..].starts_with(b"\r\n\r\n") => {
                (count, end) = (count + 1, at + 1);
                at += 4;
            }
            b'\r' | b'\n' => at += 1,
            _ => at += 4,
        }
    }
    (count, end)
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
                    let connection = Connection { socket, listener: token, begun, body: Body::None, unsent };
                    connections.resize_with(connections.len().max(at + 1), || None);
                    connections[at] = Some(connection);
                }
                continue;
            }
            let at = token - listeners.len();
            let Some(connection) = &mut connections[at] else { continue };
            let Listener { answer, delay, .. } = &listeners[connection.listener];
            let mut alive = true;
            if event.is_readable() {
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
