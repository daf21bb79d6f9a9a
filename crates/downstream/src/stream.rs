//! The byte stream of a client: TCP or TLS.

use tokio_rustls::server::TlsStream;

use super::tcp_stream::LazyTcpStream;
use sluicegate_base::tls::MaybeTls;

/// A connection of a client, with TLS or without.
pub type ClientStream = MaybeTls<LazyTcpStream, TlsStream<LazyTcpStream>>;
