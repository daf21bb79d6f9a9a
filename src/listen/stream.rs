//! What a client's bytes come through.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A connection of a client, with TLS or without.
#[derive(Debug)]
pub(super) enum ClientStream {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS; most of it is memory of rustls, which is large.
    Tls(Box<TlsStream<TcpStream>>),
}

impl ClientStream {
    /// Writes what can be written without waiting: a last word to a client that is not waited for. Behind other bytes
    /// that still wait it is lost.
    pub(super) fn write_now(&mut self, bytes: &[u8]) {
        match self {
            Self::Plain(socket) => _ = socket.try_write(bytes),
            Self::Tls(stream) => {
                let mut context = Context::from_waker(Waker::noop());
                let mut stream = Pin::new(stream);
                if stream.as_mut().poll_write(&mut context, bytes).is_ready() {
                    let _ = stream.poll_flush(&mut context); // it has gone as far as the system takes it
                }
            }
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
