//! A connection to a server on which another protocol is spoken from now on (RFC 9110 §7.8), such as WebSocket.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Version, header};
use tokio::io::AsyncWrite;

use super::exchange::Exchange;
use super::wire::Wire;

/// The server's side of a tunnel. It is one exchange, which ends with it.
pub struct Tunnel {
    pub(super) wire: Wire,
    pub(super) exchange: Exchange,
    pub(super) idle: Duration,
}

impl Tunnel {
    /// How long nothing may move.
    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    /// What the server says; nothing at its end.
    pub(crate) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let bytes = if self.wire.read.is_empty() {
            let buffers = &self.exchange.connection().worker.buffers;
            ready!(buffers.poll_read(self.wire.stream(), context))?.freeze()
        } else {
            self.wire.read.split().freeze()
        };
        self.exchange.sent(bytes.len());
        Poll::Ready(Ok(bytes))
    }

    /// Tells the server.
    pub(crate) fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.wire.stream()).poll_write(context, bytes)
    }

    /// Sends what is under way to it.
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.wire.stream()).poll_flush(context)
    }

    /// Tells it that nothing more comes.
    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.wire.stream()).poll_shutdown(context)
    }
}

/// The protocol that a request without a body asks to switch to. HTTP/2 is never switched to: who speaks it begins with
/// it.
pub(super) fn wanted(parts: &Parts) -> Option<HeaderValue> {
    let mut lines = parts.headers.get_all(header::UPGRADE).iter();
    let protocol = lines.next().filter(|_| lines.next().is_none() && parts.version == Version::HTTP_11)?;
    let word = protocol.as_bytes();
    let token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(b);
    let is_one = !word.is_empty() && word.iter().all(token) && !word.to_ascii_lowercase().starts_with(b"h2c");
    (is_one && names_upgrade(&parts.headers)).then(|| protocol.clone())
}

/// Whether a server has switched to the protocol that it was asked for.
pub(super) fn switched(headers: &HeaderMap, wanted: &HeaderValue) -> bool {
    let mut lines = headers.get_all(header::UPGRADE).iter();
    let said = lines.next().filter(|_| lines.next().is_none());
    said.is_some_and(|said| said.as_bytes().eq_ignore_ascii_case(wanted.as_bytes())) && names_upgrade(headers)
}

fn names_upgrade(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::CONNECTION).iter();
    let mut words = lines.flat_map(|line| line.as_bytes().split(|b| *b == b','));
    words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
}

/// Says, for one connection, that the protocol is to be switched, or is.
pub(super) fn say(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
}
