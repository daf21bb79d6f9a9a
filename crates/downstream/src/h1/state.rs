//! The state of an HTTP/1.1 connection: what is read, what is written, and which task waits.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::BytesMut;
use sluicegate_wire::h1::BodyDecoder;
use tokio::io::AsyncReadExt;

use super::interim::Interims;
use crate::ClientStream;
use crate::Connection;
use crate::body_rate::ReceiveRate;

/// Bytes of a read into a buffer that is not empty.
const MORE: usize = 4 << 10;
/// Bytes of a body that are read and discarded so that the client sees the response.
pub const MAX_DISCARD: u64 = 16 << 20;

/// The state of a connection.
pub(crate) struct State {
    /// `None` once the connection is closed.
    pub stream: Option<ClientStream>,
    /// Bytes that were read and are not decoded yet.
    pub(crate) read: BytesMut,
    /// The client has closed its side.
    pub(crate) half_closed: bool,
    /// Interim responses that are to be sent.
    pub(crate) interim: Interims,
    /// The number of the present request. Bodies of other requests get no bytes.
    pub(crate) number: u64,
    pub(crate) reading: Reading,
    pub(crate) writing: Writing,
    /// Bytes that may still be discarded.
    pub(crate) discard_left: u64,
    pub(crate) rate: ReceiveRate,
    /// The task of the connection, while the handler reads the body.
    pub(crate) waker: Option<Waker>,
}

/// What is read from the connection.
pub(crate) enum Reading {
    /// The body of the present request, or the rest of it.
    Body {
        decoder: BodyDecoder,
        reader: Reader,
        /// The client waits for `100 Continue` before it sends the body.
        expects_continue: bool,
    },
    /// The body is malformed, too slow or incomplete: nothing more can be decoded.
    Broken,
}

/// Who reads the body.
pub(crate) enum Reader {
    /// The handler of the request; with its task, while it waits.
    Handler(Option<Waker>),
    /// The connection, which discards it.
    Connection,
}

/// What is written to the connection.
#[derive(Clone, Copy)]
pub(crate) enum Writing {
    /// The response has not begun: interim responses may be sent, except over HTTP/1.0.
    Interim {
        is_http10: bool,
        /// The client has closed its side and was probed by a `100 Continue`.
        probed: bool,
    },
    /// The response.
    Response,
}

impl Reading {
    /// No body.
    pub(crate) const NOTHING: Self =
        Self::Body { decoder: BodyDecoder::Ended, reader: Reader::Connection, expects_continue: false };

    /// Whether the body has ended, so that a request may follow.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self, Self::Body { decoder: BodyDecoder::Ended, .. })
    }

    /// Whether nothing more can be decoded.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self, Self::Broken)
    }

    /// The bytes that are still to come, if that is known.
    pub(crate) fn remaining(&self) -> Option<u64> {
        match self {
            Self::Body { decoder, .. } => decoder.remaining(),
            Self::Broken => None,
        }
    }

    /// Leaves the rest of the body to the connection, and wakes the handler if it waits.
    pub(crate) fn take_back(&mut self) {
        if let Self::Body { reader, .. } = self
            && let Reader::Handler(Some(waker)) = std::mem::replace(reader, Reader::Connection)
        {
            waker.wake();
        }
    }
}

impl State {
    /// The state of a new connection from which `read` was read.
    pub(crate) fn new(stream: ClientStream, read: BytesMut) -> Self {
        Self {
            stream: Some(stream),
            read,
            half_closed: false,
            interim: Interims::default(),
            number: 0,
            reading: Reading::NOTHING,
            writing: Writing::Interim { is_http10: false, probed: false },
            discard_left: 0,
            rate: ReceiveRate::default(),
            waker: None,
        }
    }

    /// Reads some more. Zero at the end.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
    ) -> Poll<io::Result<usize>> {
        if !self.interim.is_empty() && self.poll_interim(cx)?.is_pending() {
            return Poll::Pending;
        }
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(0)) };
        if self.half_closed {
            return Poll::Ready(Ok(0));
        }
        let length = if self.read.is_empty() {
            self.read = BytesMut::new(); // a connection that waits holds no buffer
            self.read = ready!(connection.worker.buffers.poll_read(stream, cx, MORE))?;
            self.read.len()
        } else {
            self.read.reserve(MORE);
            ready!(pin!(stream.read_buf(&mut self.read)).poll(cx))?
        };
        self.half_closed = length == 0;
        Poll::Ready(Ok(length))
    }

    /// Whether bytes have arrived on a socket without TLS that is registered with the runtime. If not, the task is woken when
    /// they do.
    pub(crate) fn is_readable(&self, cx: &mut Context<'_>) -> bool {
        match &self.stream {
            Some(ClientStream::Plain(socket)) => socket.is_readable(cx),
            Some(ClientStream::Tls(_)) | None => false,
        }
    }

    /// Whether the socket is not registered with the runtime yet.
    pub(crate) fn is_new(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.socket().is_new())
    }

    /// Registers the socket with the runtime. Returns whether that could be done.
    pub(crate) fn register(&mut self) -> bool {
        self.stream.as_mut().is_some_and(|stream| stream.socket_mut().registered().is_ok())
    }

    /// Sends the rest of interim responses.
    pub(crate) fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.interim.poll_send(self.stream.as_mut(), cx)
    }

    /// Whether the client waits for `100 Continue` and may never send the body.
    pub(crate) fn awaits_continue(&self) -> bool {
        match &self.reading {
            Reading::Body { expects_continue: true, decoder, .. } => {
                self.read.is_empty() && *decoder != BodyDecoder::Ended
            }
            _ => false,
        }
    }

    /// Nothing more can be decoded.
    pub(crate) fn set_broken(&mut self) {
        self.reading = Reading::Broken;
        self.wake();
    }

    /// Wakes the task of the connection.
    pub(crate) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
