//! What a limit counts separately, as the `key` of a limit says it.

use std::fmt;

use http::HeaderName;
use serde::{Serialize, Serializer};

/// The key of a limit: the combination of all these parts, each the first of its alternatives that the request has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    all: Vec<Vec<Part>>,
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The client's address, or the network that counts as one client.
    Ip,
    /// The client's address, of IPv6 only so many bits, whatever else counts as one client.
    IpPrefix(u8),
    /// The client's address, of IPv4 only so many bits.
    Ipv4Prefix(u8),
    /// The API key; where keys are known, only a known one.
    ApiKey,
    /// The consumer whose API key was sent.
    Consumer,
    /// Nothing: one counter for all.
    Global,
    /// The host, lower case, without port.
    Host,
    /// The method.
    Method,
    /// The path in normal form.
    Path,
    /// A parameter of the route's path.
    Param(String),
    /// The route's name.
    Route,
    /// A request header.
    Header(HeaderName),
    /// A query parameter, decoded.
    Query(String),
    /// A cookie.
    Cookie(String),
    /// The user of a verified token.
    User,
    /// A claim of a verified token.
    Claim(String),
    /// The subject of a verified client certificate (RFC 4514).
    TlsSubject,
    /// The SHA-256 of a verified client certificate.
    TlsFingerprint,
}

impl KeySpec {
    /// A key of these parts: all together, each the first of its alternatives.
    pub fn new(all: Vec<Vec<Part>>) -> Self {
        Self { all }
    }

    /// All parts that are mentioned.
    #[inline]
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.all.iter().flatten()
    }

    /// The parts that a key consists of, each as a list of alternatives: the first that a request has is used.
    #[inline]
    pub fn alternatives(&self) -> &[Vec<Part>] {
        &self.all
    }
}

impl Part {
    /// Whether only a verified token has it.
    #[inline]
    pub const fn is_of_user(&self) -> bool {
        matches!(self, Self::User | Self::Claim(_))
    }

    /// Whether nothing but the client's address decides it.
    #[inline]
    pub const fn is_of_address(&self) -> bool {
        matches!(self, Self::Ip | Self::IpPrefix(_) | Self::Ipv4Prefix(_) | Self::Global)
    }

    /// What it is called before a value.
    #[inline]
    pub fn name(&self) -> &str {
        match self {
            Self::Ip | Self::IpPrefix(_) | Self::Ipv4Prefix(_) => "ip",
            Self::ApiKey => "api_key",
            Self::Consumer => "consumer",
            Self::Global => "global",
            Self::Host => "host",
            Self::Method => "method",
            Self::Path => "path",
            Self::Route => "route",
            Self::User => "user",
            Self::TlsSubject => "tls:subject",
            Self::TlsFingerprint => "tls:fingerprint",
            Self::Param(name) | Self::Query(name) | Self::Cookie(name) | Self::Claim(name) => name,
            Self::Header(name) => name.as_str(),
        }
    }
}

impl Serialize for KeySpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// As the file writes it: `api_key | ip`, or `[ip, path]`.
impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = |alternatives: &Vec<Part>| {
            alternatives.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | ")
        };
        let all: Vec<String> = self.all.iter().map(texts).collect();
        match all.as_slice() {
            [one] => f.write_str(one),
            several => write!(f, "[{}]", several.join(", ")),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Param(_) => "path:",
            Self::Header(_) => "header:",
            Self::Query(_) => "query:",
            Self::Cookie(_) => "cookie:",
            Self::Claim(_) => "jwt:",
            _ => "",
        };
        match self {
            Self::IpPrefix(bits) | Self::Ipv4Prefix(bits) => write!(f, "ip/{bits}"),
            part => write!(f, "{kind}{}", part.name()),
        }
    }
}
