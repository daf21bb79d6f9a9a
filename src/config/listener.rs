//! The edge: addresses, operators, and who the client is.

use std::net::SocketAddr;

use ipnet::IpNet;

/// An address that serves clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// The name that routes may ask for.
    pub name: String,
    /// The address.
    pub address: SocketAddr,
}

/// The address for operators.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminConfig {
    /// The address.
    pub address: SocketAddr,
    /// What changes need; empty for a read-only API.
    pub token: String,
}

impl std::fmt::Debug for AdminConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminConfig").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Which peers are believed, and in which header.
#[derive(Clone, Debug)]
pub struct ClientIpConfig {
    /// The peers that are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// The header that they write.
    pub header: ForwardedHeader,
    /// Bits of an IPv6 address that make one client.
    pub ipv6_prefix: u8,
}

/// A header in which proxies name the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// X-Forwarded-For.
    XForwardedFor,
    /// Forwarded (RFC 7239).
    Forwarded,
    /// X-Real-IP.
    XRealIp,
}

impl ForwardedHeader {
    /// The header's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
            Self::XRealIp => "x-real-ip",
        }
    }
}

impl ListenerConfig {
    /// What tells listeners apart across reloads: the address, so that a name may change. A port that the system
    /// chooses is no address yet.
    pub fn id(&self) -> String {
        if self.address.port() == 0 { self.name.clone() } else { self.address.to_string() }
    }
}
