//! The byte stream of a client: TCP or TLS.

use tokio_rustls::server::TlsStream;

use super::tcp_stream::LazyTcpStream;
use crate::tls::MaybeTls;

/// A connection of a client, with TLS or without.
pub(crate) type ClientStream = MaybeTls<LazyTcpStream, TlsStream<LazyTcpStream>>;

impl ClientStream {
    /// The TCP stream below it.
    pub(crate) fn socket(&self) -> &LazyTcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// The TCP stream below it, to register it with the runtime.
    pub(crate) fn socket_mut(&mut self) -> &mut LazyTcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.get_mut().0,
        }
    }
}
