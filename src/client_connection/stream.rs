//! The byte stream of a client: TCP or TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use super::tcp_stream::LazyTcpStream;

/// A connection of a client, with TLS or without.
#[derive(Debug)]
pub(crate) enum ClientStream {
    /// Without TLS.
    Plain(LazyTcpStream),
    /// With TLS. Boxed, because the state of rustls is large.
    Tls(Box<TlsStream<LazyTcpStream>>),
}

impl ClientStream {
    /// The socket under it.
    pub(crate) fn socket(&self) -> &LazyTcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// The socket under it, to register it with the runtime.
    pub(crate) fn socket_mut(&mut self) -> &mut LazyTcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.get_mut().0,
        }
    }

    /// Whether an orderly end sends something (`close_notify`) before the socket is closed.
    pub(crate) fn has_farewell(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(_) => true,
        }
    }
}

/// The same call on whichever it is.
macro_rules! either {
    ($stream:expr, $inside:ident => $call:expr) => {
        match $stream.get_mut() {
            Self::Plain(socket) => {
                let $inside = Pin::new(socket);
                $call
            }
            Self::Tls(stream) => {
                let $inside = Pin::new(stream.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, inside => inside.poll_read(context, buf))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, inside => inside.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, inside => inside.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, inside => inside.poll_shutdown(context))
    }
}
