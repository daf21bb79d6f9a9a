//! Upstreams and their servers.

use std::time::Duration;

use super::upstream_tls::UpstreamTls;

/// An API behind the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// Its name.
    pub name: String,
    /// Its servers and their shares, at least one.
    pub servers: Vec<ServerConfig>,
    /// For a connection.
    pub connect: Duration,
    /// For the head of an answer.
    pub response: Duration,
    /// For the next bytes, and for the next request on a kept connection.
    pub idle: Duration,
    /// For the next bytes of a tunnel, in either direction.
    pub tunnel: Duration,
    /// What is spoken to the servers.
    pub protocol: Protocol,
    /// TLS to those servers that have it; there is one if any has.
    pub tls: Option<UpstreamTls>,
    /// Whether each connection begins with the address of its client.
    pub proxy_protocol: Option<ProxyVersion>,
}

/// What is spoken to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1: one request at a time on a connection.
    Http1,
    /// HTTP/2: many. Without TLS by prior knowledge.
    Http2,
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

impl Protocol {
    /// What it is called in a handshake (ALPN, RFC 7301).
    pub const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// A server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// HOST:PORT; the host may be a name.
    pub authority: String,
    /// Whether it is https.
    pub tls: bool,
    /// Its share of the requests.
    pub weight: u32,
}
