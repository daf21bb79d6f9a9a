//! URLs of services that the gateway itself asks: an issuer of keys, an introspection, a check.

use std::net::IpAddr;

use serde::{Serialize, Serializer};

/// The URL of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    /// The URL as people are told it, without its query.
    pub text: String,
    /// Whether it is https.
    pub tls: bool,
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path and query.
    pub path: String,
}

impl HttpUrl {
    /// Whether another URL leads to the same place.
    pub fn is_at(&self, other: &Self) -> bool {
        (self.tls, &self.host, self.port, &self.path) == (other.tls, &other.host, other.port, &other.path)
    }

    /// Whether it leads to this machine.
    pub fn is_here(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// The value of Host.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let usual = if self.tls { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }
}

/// A query may hold a key, which is nobody's business.
impl Serialize for HttpUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}
