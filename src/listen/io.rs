//! The socket of a connection as hyper sees it: with deadlines, and with our own words where hyper would answer
//! a malformed request by itself.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Connection;
use super::stream::ClientStream;
use crate::respond;

/// From the connection to its first byte, and from the first byte of a head to its last.
pub(super) const HEAD: Duration = Duration::from_secs(10);
/// Between two requests of a connection.
pub(super) const IDLE: Duration = Duration::from_secs(75);
/// hyper's own answers are shorter than this: a status, a date and two headers.
const HYPERS_ANSWER: usize = 160;
/// For the system to have room for more of an answer, as a client takes it.
const WRITE: Duration = Duration::from_secs(60);

/// What the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The first byte of a request.
    Idle,
    /// The rest of its head.
    Head,
    /// The end of the exchange.
    Exchange,
}

/// A socket with deadlines.
pub(super) struct Io {
    stream: ClientStream,
    link: Rc<Connection>,
    /// What was read to tell the protocols apart.
    prefix: Bytes,
    /// Our own answer to a malformed head, on its way out.
    answer: Option<Bytes>,
    /// Whether the client takes nothing of what is written.
    blocked: Cell<bool>,
}

impl Io {
    pub(super) fn new(stream: ClientStream, link: Rc<Connection>, prefix: Bytes) -> Self {
        if !link.shared {
            link.enter(Phase::Head, HEAD);
        }
        Self { stream, link, prefix, answer: None, blocked: Cell::new(false) }
    }

    fn timed_out(&mut self) -> Option<io::Error> {
        if !self.link.deadline.socket_passed() {
            return None;
        }
        if self.link.phase.get() == Phase::Head && !self.blocked.get() {
            // Best effort: the client is slow, not gone. The socket is closed either way.
            self.stream.write_now(&respond::bare(http::StatusCode::REQUEST_TIMEOUT, &self.link.worker));
        }
        Some(io::ErrorKind::TimedOut.into())
    }

    /// Our own answer, where hyper is about to answer a head that it cannot read by itself: it then closes, and
    /// says nothing but the status.
    fn own_answer(&self, bytes: &[u8]) -> Option<Bytes> {
        let says = |words: &[u8]| bytes.windows(words.len()).any(|window| window == words);
        if self.link.phase.get() != Phase::Head
            || bytes.len() > HYPERS_ANSWER
            || !bytes.starts_with(b"HTTP/1.1 4")
            || !says(b"content-length: 0\r\n")
            || !says(b"connection: close\r\n")
        {
            return None;
        }
        let status = http::StatusCode::from_bytes(bytes.get(9..12)?).ok()?;
        Some(respond::bare(status, &self.link.worker))
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(answer) = self.answer.as_mut().filter(|answer| answer.has_remaining()) {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, answer))?;
            answer.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// While there is no room for more of an answer there is a deadline; with any room it is put off.
    fn note_write<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_pending() != self.blocked.get() {
            self.blocked.set(result.is_pending());
            let at = result.is_pending().then(|| self.link.worker.deadlines.after(WRITE));
            if self.link.phase.get() == Phase::Exchange {
                self.link.deadline.set_socket(at);
            }
        }
        if result.is_pending() && self.link.deadline.socket_passed() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        result
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.prefix.is_empty() {
            let length = self.prefix.len().min(buf.remaining());
            buf.put_slice(&self.prefix.split_to(length));
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = self.timed_out() {
            return Poll::Ready(Err(error));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buf))?;
        // What comes behind an early answer may be the rest of the body that it answered.
        let head = self.link.phase.get() == Phase::Idle && !self.link.shared && !self.link.reads_body();
        if buf.filled().len() > before && head {
            self.link.enter(Phase::Head, HEAD);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.answer.is_none() {
            self.answer = self.own_answer(bytes);
        }
        if self.answer.is_some() {
            ready!(self.poll_answer(context))?;
            return Poll::Ready(Ok(bytes.len()));
        }
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note_write(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
