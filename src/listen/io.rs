//! The socket of an HTTP/2 connection as hyper sees it: with deadlines.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Connection;
use super::stream::ClientStream;

/// For the system to have room for more of an answer, as a client takes it.
const WRITE: Duration = Duration::from_secs(60);

/// What the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A request.
    Idle,
    /// The end of the exchange.
    Exchange,
}

/// A socket with deadlines.
pub(super) struct Io {
    stream: ClientStream,
    link: Rc<Connection>,
    /// What was read to tell the protocols apart.
    prefix: Bytes,
    /// Whether the client takes nothing of what is written.
    blocked: Cell<bool>,
}

impl Io {
    pub(super) fn new(stream: ClientStream, link: Rc<Connection>, prefix: Bytes) -> Self {
        Self { stream, link, prefix, blocked: Cell::new(false) }
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
        if self.link.deadline.socket_passed() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
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
