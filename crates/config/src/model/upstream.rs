//! Upstreams and their servers.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode};
use rustls_pki_types::ServerName;
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::KeySpec;
use crate::model::fair::FairConfig;
use crate::model::overload::OverloadConfig;
use crate::model::serialize::{authorities, is_some, percent, ranges, seconds, statuses, text};
use crate::read::at::FileRef;

/// An API behind the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpstreamConfig {
    /// Its name.
    #[serde(skip)]
    pub name: String,
    /// Its servers and their shares, at least one.
    pub servers: Vec<ServerConfig>,
    /// How requests are spread over them.
    pub balance: Balance,
    /// How often the names of servers are looked up.
    #[serde(serialize_with = "seconds")]
    pub resolve: Duration,
    /// How long its servers may take.
    pub timeouts: UpstreamTimeouts,
    /// The protocol of connections to the servers.
    pub protocol: Protocol,
    /// TLS to those servers that have it; there is one if any has.
    pub tls: Option<UpstreamTlsConfig>,
    /// Whether each connection begins with the address of its client.
    pub proxy_protocol: Option<ProxyVersion>,
    /// How servers are asked whether they are well; `None` if they are not asked.
    pub health: Option<HealthConfig>,
    /// How failures take a server out; `None` if they do not.
    pub ejection: Option<EjectionConfig>,
    /// How often a request is tried on another server.
    pub retries: RetryConfig,
    /// Requests that one server has at once, of all workers together; `None` for no bound.
    pub max_connections: Option<usize>,
    /// Requests that wait while all servers have as many as they may.
    pub max_pending: usize,
    /// The longest head of a response, and the longest trailers, in bytes.
    pub max_head: usize,
    /// The most header lines of a response.
    pub max_headers: usize,
    /// Names of request headers in the case in which they are written over HTTP/1.1.
    pub header_case: Vec<String>,
    /// Its protection from overload; `None` for none.
    pub overload: Option<OverloadConfig>,
    /// How what it can handle is divided among consumers.
    pub fair: Option<FairConfig>,
}

/// How long the servers of an upstream may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UpstreamTimeouts {
    /// For a connection.
    #[serde(serialize_with = "seconds")]
    pub connect: Duration,
    /// For the head of an answer.
    #[serde(serialize_with = "seconds")]
    pub response: Duration,
    /// For the next bytes.
    #[serde(serialize_with = "seconds")]
    pub idle: Duration,
    /// For the next request on a kept connection.
    #[serde(serialize_with = "seconds")]
    pub keep_alive: Duration,
    /// For the next bytes of a tunnel, in either direction.
    #[serde(serialize_with = "seconds")]
    pub tunnel: Duration,
}

/// TLS to the servers of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpstreamTlsConfig {
    /// The authorities that are trusted; `None` for those of the system.
    #[serde(serialize_with = "authorities")]
    pub ca: Option<FileRef>,
    /// The gateway's certificate chain and its private key.
    #[serde(rename = "own_certificate", serialize_with = "is_some")]
    pub client: Option<(FileRef, FileRef)>,
    /// The name that certificates have to be for; `None` for the host of the server.
    #[serde(serialize_with = "server_name")]
    pub server_name: Option<ServerName<'static>>,
    /// Whether certificates are verified.
    pub verify: bool,
}

impl UpstreamConfig {
    /// What keeps requests on one server.
    #[inline]
    pub fn hashed_by(&self) -> Option<&KeySpec> {
        match &self.balance {
            Balance::Hash(key) => Some(key),
            Balance::RoundRobin | Balance::LeastRequests | Balance::Random => None,
        }
    }
}

/// The protocol of a connection to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1: one request at a time on a connection.
    Http1,
    /// HTTP/2: many. Without TLS by prior knowledge.
    Http2,
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
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
    /// HOST:PORT, where the host may be a name, or `unix:PATH`.
    pub authority: String,
    /// Whether it is https.
    pub tls: bool,
    /// Its share of the requests.
    pub weight: u32,
}

/// What servers that listen on a Unix socket are written with.
pub const UNIX: &str = "unix:";

/// What Host says for a server if nothing else does: its HOST:PORT, and `localhost` for a Unix socket.
pub fn host_of(authority: &str) -> &str {
    if authority.starts_with(UNIX) { "localhost" } else { authority }
}

impl ServerConfig {
    /// What Host says for it if nothing else does.
    pub fn host(&self) -> &str {
        host_of(&self.authority)
    }
}

/// How requests are spread over the servers of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// In turn, by weight.
    RoundRobin,
    /// To the one with the fewest requests for its weight.
    LeastRequests,
    /// To the one of two, drawn by weight, that has fewer.
    Random,
    /// Those with the same key to the same one, unless it has too many.
    Hash(KeySpec),
}

/// Health checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthConfig {
    /// The path of the health check.
    #[serde(serialize_with = "text")]
    pub path: PathAndQuery,
    /// The value of Host; `None` for that of the server.
    #[serde(serialize_with = "host")]
    pub host: Option<HeaderValue>,
    /// The time from one check to the next.
    #[serde(serialize_with = "seconds")]
    pub every: Duration,
    /// The time for connection and response together.
    #[serde(serialize_with = "seconds")]
    pub timeout: Duration,
    /// The number of successes in a row that make a server healthy.
    pub healthy: u32,
    /// The number of failures in a row that make it unhealthy.
    pub unhealthy: u32,
    /// Statuses of successful checks.
    #[serde(serialize_with = "ranges")]
    pub status: Vec<RangeInclusive<u16>>,
}

/// Ejection after consecutive failures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EjectionConfig {
    /// The number of consecutive failures.
    pub failures: u32,
    /// The duration of the first ejection.
    #[serde(rename = "for", serialize_with = "seconds")]
    pub span: Duration,
    /// The longest duration, if failures continue.
    #[serde(serialize_with = "seconds")]
    pub max: Duration,
    /// The largest share of the servers that is ejected at once, in percent.
    #[serde(serialize_with = "percent")]
    pub share: u8,
    /// Statuses that count as failures, in addition to missing responses.
    #[serde(serialize_with = "statuses")]
    pub status: Vec<StatusCode>,
}

/// How often a request is tried on another server, where that is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RetryConfig {
    /// At most, for one request.
    pub attempts: u32,
    /// Retries for a hundred requests.
    #[serde(serialize_with = "percent")]
    pub budget: u32,
    /// Also requests that are not idempotent.
    #[serde(rename = "unsafe")]
    pub all_methods: bool,
}

impl Serialize for ServerConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let url = match (self.authority.starts_with(UNIX), self.tls) {
            (true, _) => self.authority.clone(),
            (false, true) => format!("https://{}", self.authority),
            (false, false) => format!("http://{}", self.authority),
        };
        json!({ "url": url, "weight": self.weight }).serialize(serializer)
    }
}

fn server_name<S: Serializer>(name: &Option<ServerName<'_>>, serializer: S) -> Result<S::Ok, S::Error> {
    name.as_ref().map(ServerName::to_str).serialize(serializer)
}

fn host<S: Serializer>(host: &Option<HeaderValue>, serializer: S) -> Result<S::Ok, S::Error> {
    host.as_ref().and_then(|host| host.to_str().ok()).serialize(serializer)
}
