//! What a client's bytes come through.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection of a client, with TLS or without.
#[derive(Debug)]
pub(super) enum ClientStream {
    /// Without TLS.
    Plain(TcpStream),
}

impl ClientStream {
    /// The socket under it.
    pub(super) fn socket(&self) -> &TcpStream {
        let Self::Plain(socket) = self;
        socket
    }

    /// Whether an orderly end is more than to close the socket.
    pub(super) fn has_farewell(&self) -> bool {
        match self {
            Self::Plain(_) => false,
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self::Plain(socket) = self.get_mut();
        Pin::new(socket).poll_read(context, buf)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self::Plain(socket) = self.get_mut();
        Pin::new(socket).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self::Plain(socket) = self.get_mut();
        Pin::new(socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self::Plain(socket) = self.get_mut();
        Pin::new(socket).poll_shutdown(context)
    }
}
