//! An HTTP/1.1 connection to a server, driven by the task that serves the request. For requests without a body,
//! which most are: nothing is handed to another task and back. Requests with a body go through hyper's client.

use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::request::Parts as RequestParts;
use http::response::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, Version, header};
use smallvec::SmallVec;
use tokio::io::AsyncReadExt;

use super::connect::ServerStream;
use super::framing::Framing;
use super::tunnel::switched;

/// The longest head of an answer.
const MAX_HEAD: usize = 64 << 10;
/// Headers of an answer: nearly all fit the first number, none may be above the second.
const HEADERS: (usize, usize) = (32, 256);
/// Headers that clients are told of limits, for which there is room.
const TOLD: usize = 5;
/// What is read at once while a head is expected, and while a body is.
pub(super) const READ: (usize, usize) = (4 << 10, 16 << 10);

/// A connection to a server.
pub(super) struct Wire {
    stream: ServerStream,
    /// What was read and not used yet.
    pub(super) read: BytesMut,
}

/// The head of an answer, how its body comes, and whether the connection can be used again behind it.
pub(super) struct Answer {
    pub(super) head: Parts,
    pub(super) framing: Framing,
    pub(super) keeps: bool,
    /// The server speaks another protocol from here on.
    pub(super) switched: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    /// The connection ended before any byte of an answer.
    #[error("the connection ended before an answer")]
    Nothing(#[source] io::Error),
    /// What came is no answer.
    #[error("{0}")]
    NoAnswer(&'static str),
}

impl Wire {
    /// A connection that nothing was said on yet.
    pub(super) fn new(stream: ServerStream) -> Self {
        Self { stream, read: BytesMut::new() }
    }

    /// Whether a kept connection is as it was left: open, and silent. What a server says unasked is no answer to
    /// the next request.
    pub(super) fn is_silent(&mut self) -> bool {
        self.stream.is_silent()
    }

    /// The connection itself.
    pub(super) fn stream(&mut self) -> &mut ServerStream {
        &mut self.stream
    }

    /// Sends a request without a body and waits for the head of its answer. The protocol that it asks to switch to is
    /// the one `wanted`.
    pub(super) async fn ask(
        &mut self,
        request: &RequestParts,
        wanted: Option<&HeaderValue>,
    ) -> Result<Answer, WireError> {
        let head = write_head(request);
        self.stream.send(&head).await.map_err(WireError::Nothing)?;
        loop {
            match self.parse(&request.method, wanted)? {
                Parsed::Answer(answer) => return Ok(answer),
                Parsed::Interim => continue, // 1xx: the answer is still to come
                Parsed::Partial => {}
            }
            if self.read.len() >= MAX_HEAD {
                return Err(WireError::NoAnswer("the head of the answer is too long"));
            }
            let read = poll_fn(|context| self.poll_fill(context, READ.0)).await;
            match read {
                Ok(0) if self.read.is_empty() => {
                    return Err(WireError::Nothing(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(0) => return Err(WireError::NoAnswer("the connection ended in the head of the answer")),
                Ok(_) => {}
                Err(error) if self.read.is_empty() => return Err(WireError::Nothing(error)),
                Err(_) => return Err(WireError::NoAnswer("the connection broke in the head of the answer")),
            }
        }
    }

    /// Reads some more; zero at the end.
    pub(super) fn poll_fill(&mut self, context: &mut Context<'_>, room: usize) -> Poll<io::Result<usize>> {
        self.read.reserve(room);
        // A read keeps nothing between polls, so a new one each time loses nothing.
        pin!(self.stream.read_buf(&mut self.read)).poll(context)
    }

    /// Takes the head that was read, if it is whole.
    fn parse(&mut self, method: &Method, wanted: Option<&HeaderValue>) -> Result<Parsed, WireError> {
        if self.read.is_empty() {
            return Ok(Parsed::Partial);
        }
        match self.parse_with::<{ HEADERS.0 }>(method, wanted) {
            Err(WireError::NoAnswer(TOO_MANY)) => self.parse_with::<{ HEADERS.1 }>(method, wanted),
            other => other,
        }
    }

    fn parse_with<const N: usize>(
        &mut self,
        method: &Method,
        wanted: Option<&HeaderValue>,
    ) -> Result<Parsed, WireError> {
        let mut headers = [httparse::EMPTY_HEADER; N];
        let mut parsed = httparse::Response::new(&mut headers);
        let length = match parsed.parse(&self.read) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(Parsed::Partial),
            Err(httparse::Error::TooManyHeaders) => return Err(WireError::NoAnswer(TOO_MANY)),
            Err(_) => return Err(WireError::NoAnswer("what came is not HTTP/1.1")),
        };
        let old = parsed.version == Some(0);
        let status =
            StatusCode::from_u16(parsed.code.unwrap_or(0)).map_err(|_| WireError::NoAnswer("no status"))?;
        // Names and places of the values, which are then cut from the head as it was read, without a copy.
        let start = self.read.as_ptr().addr();
        let mut lines: SmallVec<[(HeaderName, Range<usize>); 16]> = SmallVec::new();
        for line in parsed.headers.iter() {
            let name = HeaderName::from_bytes(line.name.as_bytes());
            let name = name.map_err(|_| WireError::NoAnswer("a bad header name"))?;
            let from = line.value.as_ptr().addr() - start;
            lines.push((name, if line.value.is_empty() { 0..0 } else { from..from + line.value.len() }));
        }
        let bytes = self.read.split_to(length).freeze();
        if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Parsed::Interim);
        }
        answer(status, old, lines, &bytes, (method, wanted)).map(Parsed::Answer)
    }
}

/// What a head that was read is.
#[allow(clippy::large_enum_variant, reason = "the large one is what nearly always comes")]
enum Parsed {
    Partial,
    Interim,
    Answer(Answer),
}

const TOO_MANY: &str = "the answer has too many headers";

fn answer(
    status: StatusCode,
    old: bool,
    lines: SmallVec<[(HeaderName, Range<usize>); 16]>,
    bytes: &Bytes,
    (method, wanted): (&Method, Option<&HeaderValue>),
) -> Result<Answer, WireError> {
    let mut head = Response::new(()).into_parts().0;
    head.status = status;
    head.version = if old { Version::HTTP_10 } else { Version::HTTP_11 };
    head.headers.reserve(lines.len() + TOLD);
    for (name, place) in lines {
        let value = HeaderValue::from_maybe_shared(bytes.slice(place));
        head.headers.append(name, value.map_err(|_| WireError::NoAnswer("a bad header value"))?);
    }
    if status == StatusCode::SWITCHING_PROTOCOLS {
        if !wanted.is_some_and(|wanted| switched(&head.headers, wanted)) {
            return Err(WireError::NoAnswer("the protocol was switched unasked"));
        }
        return Ok(Answer { head, framing: Framing::Ended, keeps: false, switched: true });
    }
    let framing = Framing::of(&mut head, method).map_err(WireError::NoAnswer)?;
    let says = |word: &str| {
        let lines = head.headers.get_all(header::CONNECTION).iter();
        let mut words = lines.flat_map(|line| line.as_bytes().split(|b| *b == b',')).map(<[u8]>::trim_ascii);
        words.any(|said| said.eq_ignore_ascii_case(word.as_bytes()))
    };
    let keeps = !framing.ends_with_connection() && !says("close") && (!old || says("keep-alive"));
    Ok(Answer { head, framing, keeps, switched: false })
}

fn write_head(request: &RequestParts) -> Vec<u8> {
    let target = request.uri.path_and_query().map_or("/", |target| target.as_str());
    let lines: usize =
        request.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let mut head = Vec::with_capacity(request.method.as_str().len() + target.len() + lines + 16);
    head.extend_from_slice(request.method.as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(target.as_bytes());
    head.extend_from_slice(b" HTTP/1.1\r\n");
    for (name, value) in &request.headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}
