//! A stream with or without TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

/// A stream with or without TLS.
#[derive(Debug)]
pub enum MaybeTls<P, T> {
    /// Without TLS.
    Plain(P),
    /// With TLS. Boxed, because the state of rustls is large.
    Tls(Box<T>),
}

/// A connection of a client.
impl<S> MaybeTls<S, TlsStream<S>> {
    /// The stream below TLS.
    pub fn socket(&self) -> &S {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// The stream below TLS, to register it with the runtime.
    pub fn socket_mut(&mut self) -> &mut S {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.get_mut().0,
        }
    }
}

/// Calls the same method of either stream.
macro_rules! either {
    ($self:ident.$method:ident($($argument:ident),*)) => {
        match $self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Self::Tls(stream) => Pin::new(&mut **stream).$method($($argument),*),
        }
    };
}

impl<P: AsyncRead + Unpin, T: AsyncRead + Unpin> AsyncRead for MaybeTls<P, T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self.poll_read(cx, buf))
    }
}

impl<P: AsyncWrite + Unpin, T: AsyncWrite + Unpin> AsyncWrite for MaybeTls<P, T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match pieces {
            [only] => either!(self.poll_write(cx, only)), // cheaper
            pieces => either!(self.poll_write_vectored(cx, pieces)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.poll_shutdown(cx))
    }
}
