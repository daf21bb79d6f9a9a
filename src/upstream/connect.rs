//! A new connection to a server: the network, the PROXY protocol, TLS.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::ForwardError;
use super::upstream_state::UpstreamState;
use crate::client_connection::write_now;
use crate::tls::UpstreamTls;
use sluicegate_config::Protocol;

/// Sessions with servers that one worker remembers of one upstream, so that a handshake is a short one.
const SESSIONS: usize = 64;

/// How some servers say that they close a connection on which no request came.
const REQUEST_TIMEOUTS: [&[u8; 12]; 2] = [b"HTTP/1.1 408", b"HTTP/1.0 408"];

/// What a connection without a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleState {
    /// It is open, and nothing came.
    Silent,
    /// It was closed.
    Closed,
    /// Something came that nobody asked for.
    Unsolicited,
}

/// A connection to a server, with TLS or without.
#[derive(Debug)]
pub(super) enum ServerStream {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Where a server is, and how it is reached.
pub(super) struct Address {
    /// HOST:PORT
    pub(super) authority: String,
    at: SocketAddr,
    tls: Option<Tls>,
    within: Duration,
    /// What the file says of it.
    options: ConnectionOptions,
}

/// What is spoken to a server, as far as its connections depend on it.
type ConnectionOptions = (Protocol, bool, Option<UpstreamTls>, Duration);

struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
    protocol: Protocol,
}

/// A worker's own memory of the sessions with the servers of an upstream; `None` if none has TLS.
pub(super) fn connector(upstream: &UpstreamState) -> Option<TlsConnector> {
    let mut client = upstream.tls.as_ref()?.client();
    client.resumption = Resumption::in_memory_sessions(SESSIONS);
    Some(TlsConnector::from(Arc::new(client)))
}

fn options(authority: &str, upstream: &UpstreamState) -> ConnectionOptions {
    let config = &upstream.config;
    let tls = config.servers.iter().any(|server| server.tls && server.authority == authority);
    (config.protocol, tls, upstream.tls.clone().filter(|_| tls), config.connect)
}

impl Address {
    /// The way to one server of an upstream, by what the file calls it, at one of its addresses.
    pub(super) fn new(
        (authority, at): (&str, SocketAddr),
        upstream: &UpstreamState,
        connector: Option<&TlsConnector>,
    ) -> Self {
        let config = &upstream.config;
        let options = options(authority, upstream);
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let configured = upstream.tls.as_ref().and_then(|tls| tls.server_name.clone());
        let name = configured.or_else(|| ServerName::try_from(host.to_owned()).ok()).filter(|_| options.1);
        let tls = connector.zip(name).map(|(connector, name)| Tls {
            connector: connector.clone(),
            name,
            protocol: config.protocol,
        });
        Self { authority: authority.to_owned(), at, tls, within: config.connect, options }
    }

    /// Whether its connections are made as `upstream` says.
    pub(super) fn connects_as(&self, upstream: &UpstreamState) -> bool {
        self.options == options(&self.authority, upstream)
    }

    /// Whether it is https.
    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// A new connection that begins with `preamble`, within the time for connections.
    pub(super) async fn connect(&self, preamble: &[u8]) -> Result<ServerStream, ForwardError> {
        let connected = self.with_connect_timeout(async {
            let mut stream = TcpStream::connect(self.at).await.map_err(ForwardError::Connect)?;
            let _ = stream.set_nodelay(true); // a latency matter only
            if !preamble.is_empty() {
                stream.write_all(preamble).await.map_err(ForwardError::Connect)?;
            }
            match &self.tls {
                None => Ok(ServerStream::Plain(stream)),
                Some(tls) => {
                    tls.handshake(stream).await.map_err(|error| ForwardError::Handshake(error.into()))
                }
            }
        });
        let connected = connected.await;
        let (server, address) = (&self.authority, self.at);
        match &connected {
            Ok(_) => tracing::debug!(server, %address, tls = self.is_tls(), "upstream connection opened"),
            Err(error) => {
                tracing::debug!(server, %address, error = error.message(), "no upstream connection")
            }
        }
        connected
    }

    /// What belongs to the making of a connection, within the time for that.
    pub(super) async fn with_connect_timeout<T>(
        &self,
        connecting: impl Future<Output = Result<T, ForwardError>>,
    ) -> Result<T, ForwardError> {
        tokio::time::timeout(self.within, connecting).await.unwrap_or(Err(ForwardError::ConnectTimeout))
    }
}

impl Tls {
    async fn handshake(&self, stream: TcpStream) -> io::Result<ServerStream> {
        let stream = self.connector.connect(self.name.clone(), stream).await?;
        let agreed = stream.get_ref().1.alpn_protocol();
        if self.protocol == Protocol::Http2 && agreed != Some(Protocol::Http2.alpn()) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the server did not choose HTTP/2 (ALPN)",
            ));
        }
        Ok(ServerStream::Tls(Box::new(stream)))
    }
}

impl ServerStream {
    /// Whether it is open and nothing came that nobody asked for. It is of no use any more unless it is silent.
    pub(super) fn idle_state(&mut self) -> IdleState {
        let mut start = [0; REQUEST_TIMEOUTS[0].len()];
        let read = match self {
            Self::Plain(socket) => match socket.try_read(&mut start) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return IdleState::Silent,
                read => read.unwrap_or(0),
            },
            // What TLS says for itself, such as new tickets, is taken in here.
            Self::Tls(stream) => {
                let (mut read, mut context) = (ReadBuf::new(&mut start), Context::from_waker(Waker::noop()));
                // A task that has done much already would be told that there is nothing.
                let poll = poll_fn(|context| Pin::new(&mut **stream).poll_read(context, &mut read));
                match pin!(unconstrained(poll)).poll(&mut context) {
                    Poll::Pending => return IdleState::Silent,
                    Poll::Ready(_) => read.filled().len(),
                }
            }
        };
        let is_close = read == 0 || REQUEST_TIMEOUTS.iter().any(|response| start == **response);
        if is_close { IdleState::Closed } else { IdleState::Unsolicited }
    }

    /// Sends all of `bytes`.
    pub(super) async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        // Nearly always there is room, so that nobody has to be noted as waiting for it.
        if let Self::Plain(socket) = self {
            match write_now(socket, bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        if !bytes.is_empty() {
            self.write_all(bytes).await?;
        }
        if let Self::Tls(stream) = self {
            poll_fn(|context| Pin::new(&mut **stream).poll_flush(context)).await?;
        }
        Ok(())
    }

    /// The socket under it.
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(context, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buf),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
