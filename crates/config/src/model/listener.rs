//! The model of listeners, the admin address and the client address.

use std::net::SocketAddr;
use std::time::Duration;

use http::HeaderName;
use ipnet::IpNet;
use serde::{Serialize, Serializer};

use crate::language::secret::Secret;
use crate::model::listen_address::ListenAddress;
use crate::model::reference::Reference;
use crate::model::serialize::{client_auth, seconds, text, texts};
use crate::model::served::ServedConfig;
use crate::read::at::{At, FileRef};

/// An address that serves clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListenerConfig {
    /// The name that routes may ask for.
    pub name: String,
    /// The address.
    #[serde(serialize_with = "text")]
    pub address: ListenAddress,
    /// How TLS is spoken; `None` where it is not.
    pub tls: Option<TlsConfig>,
    /// Whether connections begin with a PROXY header.
    pub proxy_protocol: bool,
    /// Connections at once.
    pub max_connections: u64,
    /// Connections at once of one client address; `None` for the default, which leaves this machine alone.
    pub max_connections_per_ip: Option<u64>,
    /// How it decides on the requests of another proxy; `None` if it serves clients itself.
    #[serde(flatten)]
    pub served: Option<ServedConfig>,
}

/// How a listener speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TlsConfig {
    /// The certificates, at least one. The first is for clients that ask for no name, or for one that no other has.
    pub certificates: Vec<CertificateConfig>,
    /// Verification of client certificates; `None` if clients are not asked for one.
    #[serde(flatten)]
    pub client: Option<ClientAuthConfig>,
    /// The oldest version that is spoken.
    pub min_version: MinTls,
    /// The longest that a handshake may take.
    #[serde(serialize_with = "seconds")]
    pub handshake_timeout: Duration,
}

/// A certificate of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CertificateConfig {
    /// The file of the certificate and its chain.
    pub cert: FileRef,
    /// The file of its private key.
    pub key: FileRef,
}

/// Verification of client certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientAuthConfig {
    /// The file of authorities.
    #[serde(rename = "client_ca")]
    pub ca: FileRef,
    /// Whether clients without a certificate are turned away.
    #[serde(rename = "client_auth", serialize_with = "client_auth")]
    pub required: bool,
}

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MinTls {
    /// TLS 1.2.
    #[serde(rename = "1.2")]
    V1_2,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    V1_3,
}

/// The address for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AdminConfig {
    /// The address.
    #[serde(serialize_with = "text")]
    pub address: SocketAddr,
    /// The token that changes require; empty for a read-only API.
    pub token: Secret,
    /// More tokens.
    #[serde(serialize_with = "by_name_of")]
    pub tokens: Vec<AdminToken>,
    /// Whether reading requires a token too.
    pub reads_need_token: bool,
    /// Whether keys are shown with their secrets.
    pub show_keys: bool,
    /// Hosts under which it answers, beside those of this machine: names in lower case, and addresses.
    pub hosts: Vec<String>,
}

/// A token of the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AdminToken {
    /// Who has it.
    #[serde(skip)]
    pub name: String,
    /// The token.
    pub token: Secret,
    /// What it allows.
    pub role: Role,
}

/// What a token of the admin API allows; each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reading.
    Read,
    /// Changes of rules.
    Rules,
    /// Everything.
    All,
}

/// Tokens as a mapping, by name.
fn by_name_of<S: serde::Serializer>(tokens: &[AdminToken], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(tokens.iter().map(|token| (&token.name, token)))
}

/// How the client address is determined behind proxies.
#[derive(Clone, Debug, Serialize)]
pub struct ClientIpConfig {
    /// Addresses of trusted proxies.
    #[serde(serialize_with = "texts")]
    pub trusted_proxies: Vec<IpNet>,
    /// Lists of more trusted proxies.
    pub trusted_lists: Vec<TrustedList>,
    /// The header in which proxies name the client.
    pub header: ForwardedHeader,
    /// How many proxies in a row are in front of the gateway: the client is this element of the header's list, counted
    /// from its end. `None` if proxies are known by their addresses.
    pub depth: Option<usize>,
    /// Prefix length of the IPv6 networks that count as one client.
    pub ipv6_prefix: u8,
}

/// A list of trusted proxies.
#[derive(Clone, Debug)]
pub struct TrustedList {
    /// The list.
    pub list: Reference,
    /// As `trusted_proxies` names it.
    pub written: At<String>,
}

/// A header in which proxies name the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// X-Forwarded-For.
    XForwardedFor,
    /// Forwarded (RFC 7239).
    Forwarded,
    /// X-Real-IP.
    XRealIp,
    /// Another one, which holds one address: CF-Connecting-IP, say.
    Single(HeaderName),
}

impl ForwardedHeader {
    /// The header's name.
    #[inline]
    pub fn name(&self) -> &str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
            Self::XRealIp => "x-real-ip",
            Self::Single(name) => name.as_str(),
        }
    }
}

impl ClientIpConfig {
    /// Whether any proxies are trusted.
    #[inline]
    pub const fn has_proxies(&self) -> bool {
        self.names_proxies() || self.depth.is_some()
    }

    /// Whether the addresses of proxies are known. Otherwise, with a depth, every peer is a proxy.
    #[inline]
    pub const fn names_proxies(&self) -> bool {
        !self.trusted_proxies.is_empty() || !self.trusted_lists.is_empty()
    }
}

impl ListenerConfig {
    /// Whether it decides by the routes for another proxy, which forwards the requests itself.
    pub fn decides_by_routes(&self) -> bool {
        self.served.as_ref().is_some_and(|served| !served.protocol.has_own_limits())
    }

    /// Identifies the listener across reloads: the address, so that a name may change. A port that the system
    /// chooses is not an address yet.
    pub fn id(&self) -> String {
        if self.address.port() == Some(0) { self.name.clone() } else { self.address.to_string() }
    }
}

impl Serialize for TrustedList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.list.serialize(serializer)
    }
}

impl Serialize for ForwardedHeader {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
