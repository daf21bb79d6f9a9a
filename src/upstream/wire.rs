//! An HTTP/1.1 connection to a server, driven by the task that serves the request: nothing is handed to another task
//! and back. The body of a request is sent whenever the answer is polled, so that both go at the same time.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use http::{Method, StatusCode, header};
use tokio::io::AsyncReadExt;

use super::connect::{IdleState, ServerStream};
use super::framing;
use super::headers::strip_hop_by_hop;
use super::outgoing::Outgoing;
use super::sending::{Sending, Unfinished};
use super::tunnel::switched;
use crate::fields::{self, Fields, place};
use crate::framing::Framing;
use crate::message::RequestHead;
use crate::server::{Buffers, Connection};

/// The longest head of an answer.
const MAX_HEAD: usize = 64 << 10;
const TOO_LONG: &str = "the head of the answer is too long";
/// Headers of an answer.
const HEADERS: usize = 256;
/// What is read at once behind something that is there already.
const MORE: usize = 16 << 10;

/// A connection to a server.
pub(super) struct Wire {
    stream: ServerStream,
    /// What was read and not used yet.
    pub(super) read: BytesMut,
    upload: UploadState,
}

/// How far the request is sent.
enum UploadState {
    /// To its end.
    Sent,
    /// There is more of its body to be sent.
    Going(Box<Sending>),
    /// The server took nothing more, though there was more. Its answer may still come.
    Cut,
}

/// The head of an answer, how its body comes, and whether the connection can be used again behind it.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: Fields,
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
    /// The client's body did not come whole.
    #[error("the request's body did not come whole")]
    Upload,
}

impl Wire {
    /// A connection that nothing was said on yet.
    pub(super) fn new(stream: ServerStream) -> Self {
        Self { stream, read: BytesMut::new(), upload: UploadState::Sent }
    }

    /// Whether a kept connection is as it was left. What a server says unasked is no answer to the next request.
    pub(super) fn idle_state(&mut self) -> IdleState {
        self.stream.idle_state()
    }

    /// The connection itself.
    pub(super) fn stream(&mut self) -> &mut ServerStream {
        &mut self.stream
    }

    /// Whether the request was sent to its end, so that another may follow it.
    pub(super) fn is_sent(&self) -> bool {
        matches!(self.upload, UploadState::Sent)
    }

    /// Sends what has come of the request's body. It never waits: the task is woken when there is more to do.
    ///
    /// # Errors
    /// When the client's body does not come whole. What was sent of it cannot be completed.
    pub(super) fn poll_upload(
        &mut self,
        context: &mut Context<'_>,
        buffers: Option<&Buffers>,
    ) -> Result<(), WireError> {
        let UploadState::Going(sending) = &mut self.upload else { return Ok(()) };
        match sending.poll(&mut self.stream, context) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(out)) => {
                self.upload = UploadState::Sent;
                if let Some(buffers) = buffers {
                    buffers.give_back(out);
                }
            }
            Poll::Ready(Err(Unfinished::Server)) => self.upload = UploadState::Cut,
            Poll::Ready(Err(Unfinished::Client)) => return Err(WireError::Upload),
        }
        Ok(())
    }

    /// Sends a request and waits for the head of its answer; interim answers are passed on to `client`. A body is taken out
    /// of `outgoing`; if the answer begins before it is sent, the rest is sent by [`poll_upload`](Self::poll_upload).
    pub(super) async fn ask(
        &mut self,
        outgoing: &mut Outgoing<'_>,
        client: Option<&Connection>,
    ) -> Result<Answer, WireError> {
        let buffers = client.map(|client| &client.worker.buffers);
        let mut head = buffers.map_or_else(Vec::new, Buffers::take_out);
        let request = outgoing.head;
        write_head(&mut head, request);
        match outgoing.body.take() {
            Some((body, upload)) => {
                self.upload = UploadState::Going(Box::new(Sending::new(head, body, upload)));
            }
            None => {
                head.extend_from_slice(b"\r\n");
                let sent = self.stream.send(&head).await;
                if let Some(buffers) = buffers {
                    buffers.give_back(head);
                }
                sent.map_err(WireError::Nothing)?;
            }
        }
        loop {
            match self.parse(&request.method, outgoing.wanted.as_deref())? {
                Parsed::Answer(answer) => return Ok(answer),
                Parsed::Interim(status, mut headers) => {
                    // Clients have leave to send their bodies from the gateway itself.
                    if let Some(client) = client.filter(|_| status != StatusCode::CONTINUE) {
                        strip_hop_by_hop(&mut headers);
                        headers.remove(header::CONTENT_LENGTH);
                        client.pass_on((status, headers));
                    }
                    continue; // the answer is still to come
                }
                Parsed::Partial => {}
            }
            if self.read.len() >= MAX_HEAD {
                return Err(WireError::NoAnswer(TOO_LONG));
            }
            let read = poll_fn(|context| match self.poll_upload(context, buffers) {
                Ok(()) => self.poll_fill(context, buffers).map(Ok),
                Err(error) => Poll::Ready(Err(error)),
            });
            match read.await? {
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

    /// Reads some more, into the worker's memory if it is at hand; zero at the end.
    pub(super) fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        buffers: Option<&Buffers>,
    ) -> Poll<io::Result<usize>> {
        if let Some(buffers) = buffers.filter(|_| self.read.is_empty()) {
            self.read = BytesMut::new(); // whoever waits keeps none
            let read = buffers.poll_read(&mut self.stream, context, MORE);
            return read.map_ok(|read| {
                self.read = read;
                self.read.len()
            });
        }
        self.read.reserve(MORE);
        // A read keeps nothing between polls, so a new one each time loses nothing.
        pin!(self.stream.read_buf(&mut self.read)).poll(context)
    }

    /// Takes the head that was read, if it is whole.
    fn parse(&mut self, method: &Method, wanted: Option<&[u8]>) -> Result<Parsed, WireError> {
        if self.read.is_empty() {
            return Ok(Parsed::Partial);
        }
        let usual = fields::read::response(&self.read, HEADERS);
        let Some((code, old, headers, length)) =
            usual.map_or_else(|| self.parse_unusual(), |usual| Ok(Some(usual)))?
        else {
            return Ok(Parsed::Partial);
        };
        if length > MAX_HEAD {
            return Err(WireError::NoAnswer(TOO_LONG));
        }
        let status = framing::status(code).map_err(WireError::NoAnswer)?;
        self.read.advance(length);
        if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Parsed::Interim(status, headers));
        }
        answer(status, old, headers, method, wanted).map(Parsed::Answer)
    }

    /// Reads a head that is not whole, or not written as most are: its status, whether the version is 1.0, its fields
    /// and its length.
    #[cold]
    #[inline(never)]
    fn parse_unusual(&self) -> Result<Option<(u16, bool, Fields, usize)>, WireError> {
        let mut lines = [const { MaybeUninit::uninit() }; HEADERS];
        let mut parsed = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let length = match config.parse_response_with_uninit_headers(&mut parsed, &self.read, &mut lines) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => {
                return Err(WireError::NoAnswer("the answer has too many headers"));
            }
            Err(_) => return Err(WireError::NoAnswer("what came is not HTTP/1.1")),
        };
        let mut headers = Fields::of_head(&self.read[..length]);
        for line in parsed.headers.iter() {
            let told = headers.tell(place(&self.read, line.name.as_bytes()), place(&self.read, line.value));
            told.map_err(|_| WireError::NoAnswer("a bad header name"))?;
        }
        Ok(Some((parsed.code.unwrap_or(0), parsed.version == Some(0), headers, length)))
    }
}

/// What a head that was read is.
#[allow(clippy::large_enum_variant, reason = "the large one is what nearly always comes")]
enum Parsed {
    Partial,
    Interim(StatusCode, Fields),
    Answer(Answer),
}

fn answer(
    status: StatusCode,
    old: bool,
    mut headers: Fields,
    method: &Method,
    wanted: Option<&[u8]>,
) -> Result<Answer, WireError> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        if !wanted.is_some_and(|wanted| switched(&headers, wanted)) {
            return Err(WireError::NoAnswer("the protocol was switched unasked"));
        }
        return Ok(Answer { status, headers, framing: Framing::Ended, keeps: false, switched: true });
    }
    let framing = framing::of(status, old, &mut headers, method).map_err(WireError::NoAnswer)?;
    let (mut closes, mut keeps) = (false, !old);
    for word in headers.get_all("connection").flat_map(|line| line.split(|b| *b == b',')) {
        closes |= word.trim_ascii().eq_ignore_ascii_case(b"close");
        keeps |= word.trim_ascii().eq_ignore_ascii_case(b"keep-alive");
    }
    let keeps = keeps && !closes && framing != Framing::UntilClose;
    Ok(Answer { status, headers, framing, keeps, switched: false })
}

/// Writes the head of a request, but for its framing and the empty line behind it.
fn write_head(out: &mut Vec<u8>, request: &RequestHead) {
    let target = request.target.path_and_query();
    out.reserve(request.method.as_str().len() + target.len() + request.headers.written() + 16);
    out.extend_from_slice(request.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    request.headers.write(out);
}
