//! A client of HTTP/2 (RFC 9113) that sends arbitrary frames and reads frames without interpreting them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::deadline;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// END_STREAM of DATA and HEADERS; ACK of SETTINGS and PING.
pub const END: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const PRIORITY_FLAG: u8 = 32;

pub const PROTOCOL_ERROR: u32 = 1;
pub const FLOW_CONTROL_ERROR: u32 = 3;
pub const STREAM_CLOSED: u32 = 5;
pub const FRAME_SIZE_ERROR: u32 = 6;
pub const COMPRESSION_ERROR: u32 = 9;
pub const CALM: u32 = 11;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// How a stream or a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It answered with this status.
    Status(u16),
    /// It reset the stream with this error.
    Reset(u32),
    /// It ended the connection with GOAWAY and this error.
    GoAway(u32),
    /// It closed the connection without GOAWAY.
    Closed,
}

/// One connection.
pub struct H2 {
    stream: TcpStream,
    read: Vec<u8>,
    closed: bool,
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header block (RFC 7541) of literals without indexing.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            let mut length = text.len();
            if length < 127 {
                block.push(length as u8);
            } else {
                block.push(127);
                length -= 127;
                while length >= 128 {
                    block.push((length % 128) as u8 | 128);
                    length /= 128;
                }
                block.push(length as u8);
            }
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// The pseudo headers of a request.
pub fn pseudo<'t>(method: &'t str, path: &'t str) -> Vec<(&'t str, &'t str)> {
    vec![(":method", method), (":scheme", "http"), (":authority", "api.test"), (":path", path)]
}

/// The id of the client's stream number `at`, from 0.
pub fn stream(at: u32) -> u32 {
    at * 2 + 1
}

/// The bytes of a request without a body.
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END | END_HEADERS, stream, &block(&pseudo("GET", path)))
}

/// The bytes of the head of a request with a body.
pub fn post(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block(&pseudo("POST", path)))
}

impl H2 {
    /// A connection after the exchange of SETTINGS. The size of the header table is zero.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self::with_settings(address, &[])
    }

    /// The same with more settings of the client.
    #[track_caller]
    pub fn with_settings(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        let mut h2 = Self::silent(address);
        let all: Vec<u8> = [(1, 0)]
            .iter()
            .chain(settings)
            .flat_map(|(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        h2.send([PREFACE, &frame(SETTINGS, 0, 0, &all)].concat());
        let settings = h2.until(deadline(), |frame| frame.kind == SETTINGS && frame.flags & END == 0);
        assert!(settings.is_some(), "the gateway's settings");
        h2.send(frame(SETTINGS, END, 0, b""));
        h2
    }

    /// A connection on which nothing was sent.
    #[track_caller]
    pub fn silent(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, deadline()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_write_timeout(Some(deadline())).unwrap();
        Self { stream, read: Vec::new(), closed: false }
    }

    /// A connection whose client has a tiny receive buffer. SETTINGS are acknowledged without being read.
    #[track_caller]
    pub fn small(address: SocketAddr) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        socket.connect(&address.into()).unwrap();
        let mut h2 = Self { stream: socket.into(), read: Vec::new(), closed: false };
        h2.send([PREFACE, &frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0])].concat());
        h2
    }

    /// Sends bytes; whether they could be sent.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.try_send(bytes);
        self
    }

    /// The next frame, if one arrives in time. Sets `closed` at the end of the connection.
    pub fn next(&mut self, within: Duration) -> Option<Frame> {
        let begun = Instant::now();
        loop {
            if let Some(frame) = self.take() {
                return Some(frame);
            }
            let left = within.checked_sub(begun.elapsed()).filter(|left| !left.is_zero());
            let left = left.filter(|_| !self.closed)?;
            self.stream.set_read_timeout(Some(left)).unwrap();
            let mut buffer = [0; 16 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => self.closed = true,
                Ok(read) => self.read.extend_from_slice(&buffer[..read]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => self.closed = true,
            }
        }
    }

    fn take(&mut self) -> Option<Frame> {
        let [a, b, c, kind, flags, d, e, f, g] = *self.read.first_chunk()?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let payload = self.read.get(9..9 + length)?.to_vec();
        self.read.drain(..9 + length);
        Some(Frame { kind, flags, stream: u32::from_be_bytes([d, e, f, g]), payload })
    }

    /// The first frame for which `wanted` is true. Others are dropped, and PINGs are acknowledged.
    pub fn until(&mut self, within: Duration, mut wanted: impl FnMut(&Frame) -> bool) -> Option<Frame> {
        let begun = Instant::now();
        loop {
            let frame = self.next(within.saturating_sub(begun.elapsed()))?;
            if frame.kind == PING && frame.flags & END == 0 {
                self.send(super::h2::frame(PING, END, 0, &frame.payload));
            }
            if wanted(&frame) {
                return Some(frame);
            }
        }
    }

    /// Whether the connection is closed; waits for it.
    pub fn is_closed(&mut self) -> bool {
        self.until(deadline(), |_| false);
        self.closed
    }

    /// How a stream ends, or the connection with it; `None` if neither does in time.
    pub fn end_of(&mut self, stream: u32, within: Duration) -> Option<End> {
        let mut end = None;
        self.until(within, |frame| {
            end = match frame.kind {
                HEADERS if frame.stream == stream => Some(End::Status(status(&frame.payload))),
                RST_STREAM if frame.stream == stream => Some(End::Reset(number(&frame.payload))),
                GOAWAY if number(&frame.payload[4..]) != 0 => Some(End::GoAway(number(&frame.payload[4..]))),
                _ => None,
            };
            end.is_some()
        });
        end.or(self.closed.then_some(End::Closed))
    }

    /// How a stream ends.
    #[track_caller]
    pub fn end(&mut self, stream: u32) -> End {
        self.end_of(stream, deadline()).unwrap_or_else(|| panic!("nothing became of stream {stream}"))
    }

    /// Whether the connection still serves: a request on `stream` is answered.
    pub fn serves(&mut self, stream: u32) -> bool {
        self.send(get(stream, "/"));
        matches!(self.end_of(stream, deadline()), Some(End::Status(_)))
    }
}

/// A number of 32 bits.
pub fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(*bytes.first_chunk().unwrap())
}

/// The status in a header block that was encoded without a table: it is the first field.
fn status(block: &[u8]) -> u16 {
    let mut block = block;
    while block[0] & 0xe0 == 0x20 {
        block = &block[1..]; // dynamic table size update
    }
    match block[0] {
        0x88 => 200,
        0x89 => 204,
        0x8a => 206,
        0x8b => 304,
        0x8c => 400,
        0x8d => 404,
        0x8e => 500,
        first => {
            assert_eq!(first & 0x0f, 8, "a literal under the name :status in {block:x?}");
            let length = usize::from(block[1] & 0x7f);
            let value = &block[2..2 + length];
            if block[1] & 0x80 == 0 {
                std::str::from_utf8(value).unwrap().parse().unwrap()
            } else {
                digits(value)
            }
        }
    }
}

/// Three digits in the code of RFC 7541, appendix B.
fn digits(bytes: &[u8]) -> u16 {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)).collect();
    let (mut at, mut number) = (0, 0);
    for _ in 0..3 {
        let code =
            |length: usize| bits[at..at + length].iter().fold(0_u16, |code, bit| code << 1 | u16::from(*bit));
        let (digit, length) = match code(5) {
            digit @ 0..=2 => (digit, 5),
            _ => (code(6) - 0x19 + 3, 6),
        };
        number = number * 10 + digit;
        at += length;
    }
    number
}
