//! Upstreams and their servers.

use std::time::Duration;

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
}

/// A server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// HOST:PORT; the host may be a name.
    pub authority: String,
    /// Its share of the requests.
    pub weight: u32,
}
