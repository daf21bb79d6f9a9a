//! Establishes connections to servers: TCP, PROXY header, TLS.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::net::SendFlags;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::ForwardError;
use super::server_address::ServerAddress;
use super::upstream_state::UpstreamState;
use sluicegate_base::tls::{MaybeTls, UpstreamTls};
use sluicegate_config::{Protocol, host_of};

/// TLS sessions that a worker keeps for each upstream, for resumption.
const SESSIONS: usize = 64;

/// The first bytes of the response by which some servers announce that they close an idle connection.
const REQUEST_TIMEOUTS: [&[u8; 12]; 2] = [b"HTTP/1.1 408", b"HTTP/1.0 408"];

/// The state of an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleState {
    /// It is open, and nothing was received.
    Silent,
    /// The server has closed it.
    Closed,
    /// The server has sent bytes that are no response to a request.
    Unsolicited,
}

/// A connection to a server, with TLS or without.
pub(crate) type ServerStream = MaybeTls<TcpStream, TlsStream<TcpStream>>;

/// The address of an endpoint, and how connections to it are established.
pub(super) struct Address {
    /// The server's HOST:PORT or `unix:PATH` as configured.
    pub(super) authority: String,
    address: ServerAddress,
    tls: Option<Tls>,
    timeout: Duration,
    options: ConnectionOptions,
}

/// The parts of the configuration that connections depend on: protocol, whether TLS is used and how, connect timeout.
type ConnectionOptions = (Protocol, bool, Option<UpstreamTls>, Duration);

struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
    protocol: Protocol,
}

/// A TLS connector with a session cache of its own; `None` if no server of the upstream uses TLS.
pub(super) fn connector(upstream: &UpstreamState) -> Option<TlsConnector> {
    let mut client = upstream.tls.as_ref()?.client();
    client.resumption = Resumption::in_memory_sessions(SESSIONS);
    Some(TlsConnector::from(Arc::new(client)))
}

fn options(authority: &str, upstream: &UpstreamState) -> ConnectionOptions {
    let config = &upstream.config;
    let tls = config.servers.iter().any(|server| server.tls && server.authority == authority);
    (config.protocol, tls, upstream.tls.clone().filter(|_| tls), config.timeouts.connect)
}

impl Address {
    /// An address of the server `authority` of an upstream.
    pub(super) fn new(
        (authority, address): (&str, &ServerAddress),
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
        let address = address.clone();
        Self { authority: authority.to_owned(), address, tls, timeout: config.timeouts.connect, options }
    }

    /// Whether its connections are established as `upstream` says.
    pub(super) fn connects_as(&self, upstream: &UpstreamState) -> bool {
        self.options == options(&self.authority, upstream)
    }

    /// What Host says if nothing else does.
    pub(super) fn host(&self) -> &str {
        host_of(&self.authority)
    }

    /// Whether it uses TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Establishes a connection that begins with `preamble`, within the connect timeout.
    pub(super) async fn connect(&self, preamble: &[u8]) -> Result<ServerStream, ForwardError> {
        let connected = self.with_connect_timeout(async {
            let mut stream = self.address.connect().await.map_err(ForwardError::Connect)?;
            let _ = stream.set_nodelay(true); // a failure costs latency only
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
        let (server, address) = (&self.authority, &self.address);
        match &connected {
            Ok(_) => tracing::debug!(server, %address, tls = self.is_tls(), "upstream connection opened"),
            Err(error) => {
                tracing::debug!(server, %address, error = error.message(), "no upstream connection")
            }
        }
        connected
    }

    /// Waits for a step of establishing a connection, at most the connect timeout.
    pub(super) async fn with_connect_timeout<T>(
        &self,
        connecting: impl Future<Output = Result<T, ForwardError>>,
    ) -> Result<T, ForwardError> {
        tokio::time::timeout(self.timeout, connecting).await.unwrap_or(Err(ForwardError::ConnectTimeout))
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

/// The state of the connection while no request is in flight. It can be reused only if it is silent.
pub(super) fn idle_state(stream: &mut ServerStream) -> IdleState {
    let mut start = [0; REQUEST_TIMEOUTS[0].len()];
    let read = match stream {
        MaybeTls::Plain(socket) => match socket.try_read(&mut start) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return IdleState::Silent,
            read => read.unwrap_or(0),
        },
        // This processes messages of TLS itself, such as session tickets.
        MaybeTls::Tls(stream) => {
            let (mut read, mut context) = (ReadBuf::new(&mut start), Context::from_waker(Waker::noop()));
            // Without `unconstrained`, a task that has used up its budget would see a silent connection.
            let poll = poll_fn(|cx| Pin::new(&mut **stream).poll_read(cx, &mut read));
            match pin!(unconstrained(poll)).poll(&mut context) {
                Poll::Pending => return IdleState::Silent,
                Poll::Ready(_) => read.filled().len(),
            }
        }
    };
    let is_close = read == 0 || REQUEST_TIMEOUTS.iter().any(|response| start == **response);
    if is_close { IdleState::Closed } else { IdleState::Unsolicited }
}

/// Sends all of `bytes` and flushes.
pub(super) async fn send(stream: &mut ServerStream, mut bytes: &[u8]) -> io::Result<()> {
    // There is nearly always room in the send buffer, so the first attempt does not register a waker.
    if let MaybeTls::Plain(socket) = stream {
        // Without libc, whose `send` is a cancellation point and costs more in a process with several threads.
        let send = || Ok(rustix::net::send(&*socket, bytes, SendFlags::NOSIGNAL)?);
        match socket.try_io(Interest::WRITABLE, send) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    if !bytes.is_empty() {
        stream.write_all(bytes).await?;
    }
    match stream {
        MaybeTls::Plain(_) => Ok(()),
        MaybeTls::Tls(stream) => stream.flush().await,
    }
}

/// The TCP stream below it.
pub(super) fn socket(stream: &ServerStream) -> &TcpStream {
    match stream {
        MaybeTls::Plain(socket) => socket,
        MaybeTls::Tls(stream) => stream.get_ref().0,
    }
}
