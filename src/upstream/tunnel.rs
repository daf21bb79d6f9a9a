//! A connection to a server that has switched to another protocol (RFC 9110 §7.8), such as WebSocket.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Version, header};
use tokio::io::AsyncWrite;

use super::h1_connection::H1Connection;
use crate::worker_state::Buffers;
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;
use sluicegate_wire::h1::names_upgrade;

/// Bytes of one read.
const PIECE: usize = 4 << 10;

/// The server's side of a tunnel.
pub struct Tunnel {
    pub(super) h1_connection: H1Connection,
    pub(super) idle: Duration,
}

impl Tunnel {
    /// The idle timeout.
    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    /// Reads from the server; nothing at its end.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffers: &Buffers,
    ) -> Poll<io::Result<Bytes>> {
        let bytes = if self.h1_connection.read.is_empty() {
            ready!(buffers.poll_read(self.h1_connection.stream(), context, PIECE))?.freeze()
        } else {
            self.h1_connection.read.split().freeze()
        };
        Poll::Ready(Ok(bytes))
    }

    /// Writes to the server.
    pub(crate) fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.h1_connection.stream()).poll_write(context, bytes)
    }

    /// Flushes what was written.
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.h1_connection.stream()).poll_flush(context)
    }

    /// Tells the server that nothing more is written.
    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.h1_connection.stream()).poll_shutdown(context)
    }
}

/// The protocol that a request without a body asks to switch to. HTTP/2 is never switched to: who speaks it begins with
/// it.
pub(super) fn requested_upgrade(parts: &RequestHead) -> Option<Vec<u8>> {
    let word = parts.headers.only(header::UPGRADE).filter(|_| parts.version == Version::HTTP_11)?;
    let token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(b);
    let is_one = !word.is_empty() && word.iter().all(token) && !word.to_ascii_lowercase().starts_with(b"h2c");
    (is_one && names_upgrade(&parts.headers)).then(|| word.to_vec())
}

/// Says, for one connection, that the protocol is to be switched, or is.
pub(super) fn set_upgrade(headers: &mut Headers, protocol: &[u8]) {
    headers.insert(header::CONNECTION, "upgrade");
    headers.insert(header::UPGRADE, protocol);
}
