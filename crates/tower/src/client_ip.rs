//! The address of the client: that of the peer, or what a trusted proxy says of it.
//!
//! Each proxy appends the address that it was asked from to X-Forwarded-For, so the list is read from its right end. What is
//! further left than the first address that is not trusted was sent by the client and is not looked at.

use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use http::request::Parts;

use crate::key::{Key, KeyHasher};
use crate::network::{Network, masked};

/// The most proxies in a row that are believed: a longer list was made up by a client.
const MAX_HOPS: usize = 100;

type Peer = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;

/// The address of the client, as the key of a limit. An IPv6 client is its /64 network, because it can use all addresses of it.
///
/// Without [`trusting`](Self::trusting), X-Forwarded-For is ignored, because any client can send it.
#[derive(Clone)]
pub struct ClientIp {
    peer: Arc<Peer>,
    proxies: Arc<[Network]>,
    problem: Option<String>,
    ipv6_prefix: u8,
}

impl ClientIp {
    /// The peer is the `SocketAddr` in the extensions of the request.
    pub fn new() -> Self {
        Self::from_extension(|address: &SocketAddr| Some(address.ip()))
    }

    /// The peer is what the closure reads from an extension of the request: for axum
    /// `|ConnectInfo(peer): &ConnectInfo<SocketAddr>| Some(peer.ip())`, for tonic
    /// `|info: &TcpConnectInfo| Some(info.remote_addr()?.ip())`.
    pub fn from_extension<T: Send + Sync + 'static>(
        peer: impl Fn(&T) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        Self::peer(move |request| request.extensions.get::<T>().and_then(&peer))
    }

    /// The peer is what the closure returns.
    pub fn peer(peer: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        Self { peer: Arc::new(peer), proxies: Arc::default(), problem: None, ipv6_prefix: 64 }
    }

    /// Believes X-Forwarded-For if the peer is in one of these networks (`10.0.0.0/8`, `2001:db8::/32`, or single addresses):
    /// the client is then the rightmost address of the list that is in none of them.
    #[must_use]
    pub fn trusting<T: AsRef<str>>(mut self, networks: impl IntoIterator<Item = T>) -> Self {
        let networks: Result<Vec<_>, _> =
            networks.into_iter().map(|text| Network::parse(text.as_ref())).collect();
        match networks {
            Ok(networks) => self.proxies = networks.into(),
            Err(problem) => self.problem = Some(problem),
        }
        self
    }

    /// The number of bits that make an IPv6 client; 128 for single addresses.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        if bits > 128 {
            self.problem = Some(format!("an IPv6 prefix of {bits} bits is longer than 128"));
        }
        self.ipv6_prefix = bits;
        self
    }

    /// The client of a request; `None` if the peer is not known.
    pub fn of(&self, request: &Parts) -> Option<IpAddr> {
        let peer = (self.peer)(request)?.to_canonical();
        Some(if self.trusts(peer) { self.forwarded(peer, request) } else { peer })
    }

    /// The key of a client, for [`Handle::usage`](crate::Handle::usage): the first address of its network if it is one of IPv6.
    pub fn key_of(&self, client: IpAddr) -> IpAddr {
        match client.to_canonical() {
            IpAddr::V6(address) => masked(IpAddr::V6(address), self.ipv6_prefix),
            v4 => v4,
        }
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|network| network.contains(address))
    }

    /// The rightmost address that is not trusted. What is not an address ends the search at the last one that is believed.
    fn forwarded(&self, peer: IpAddr, request: &Parts) -> IpAddr {
        let mut client = peer;
        let lines = request.headers.get_all("x-forwarded-for").iter().rev();
        let hops = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')).map(address);
        for hop in hops.take(MAX_HOPS) {
            let Some(address) = hop else { break };
            client = address;
            if !self.trusts(address) {
                break;
            }
        }
        client
    }
}

impl Default for ClientIp {
    fn default() -> Self {
        Self::new()
    }
}

impl Key for ClientIp {
    fn write(&self, request: &Parts, to: &mut KeyHasher) -> bool {
        self.of(request).map(|client| self.key_of(client).hash(to)).is_some()
    }

    fn check(&self) -> Result<(), String> {
        self.problem.clone().map_or(Ok(()), Err)
    }
}

impl fmt::Debug for ClientIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { proxies, ipv6_prefix, .. } = self;
        f.debug_struct("ClientIp")
            .field("proxies", proxies)
            .field("ipv6_prefix", ipv6_prefix)
            .finish_non_exhaustive()
    }
}

/// An address as proxies write it: with or without a port, IPv6 with or without brackets.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let is_port = |port: &str| {
        !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok()
    };
    if let Some(inner) = text.strip_prefix('[') {
        let (address, port) = inner.split_once(']')?;
        let whole = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return address.parse::<Ipv6Addr>().ok().filter(|_| whole).map(canonical);
    }
    match text.split_once(':') {
        None => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        Some((address, port)) if !port.contains(':') => {
            address.parse::<Ipv4Addr>().ok().filter(|_| is_port(port)).map(IpAddr::V4)
        }
        Some(_) => text.parse::<Ipv6Addr>().ok().map(canonical),
    }
}

fn canonical(address: Ipv6Addr) -> IpAddr {
    IpAddr::V6(address).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, lines: &[&[u8]]) -> String {
        let mut request = http::Request::new(()).into_parts().0;
        request.extensions.insert(SocketAddr::new(peer.parse().unwrap(), 4711));
        for line in lines {
            request.headers.append("x-forwarded-for", http::HeaderValue::from_bytes(line).unwrap());
        }
        let ip = ClientIp::new().trusting(["10.0.0.0/8", "2001:db8::/32"]);
        ip.of(&request).unwrap().to_string()
    }

    #[test]
    fn the_rightmost_address_that_is_not_trusted() {
        for (line, expected) in [
            ("198.51.100.7", "198.51.100.7"),
            ("198.51.100.7:4711", "198.51.100.7"),
            ("1.2.3.4, 198.51.100.7, 10.9.9.9", "198.51.100.7"),
            ("1.2.3.4,198.51.100.7\t ,2001:db8::9", "198.51.100.7"),
            ("10.1.1.1, 10.2.2.2", "10.1.1.1"),
            ("1.2.3.4, junk, 10.2.2.2", "10.2.2.2"),
            ("1.2.3.4,", "10.0.0.1"),
            ("1.2.3.4, unknown", "10.0.0.1"),
            ("[2001:DB9::7]:443, [2001:db8::1]", "2001:db9::7"),
            ("::ffff:198.51.100.7", "198.51.100.7"),
            ("1.2.3.4:port", "10.0.0.1"),
            ("", "10.0.0.1"),
        ] {
            assert_eq!(client("10.0.0.1", &[line.as_bytes()]), expected, "{line}");
        }
        assert_eq!(client("::ffff:10.0.0.1", &[b"198.51.100.7"]), "198.51.100.7");
        assert_eq!(client("10.0.0.1", &[b"1.2.3.4", b"198.51.100.7, 10.1.1.1"]), "198.51.100.7");
        assert_eq!(client("10.0.0.1", &[b"\xff\xfe, 198.51.100.7"]), "198.51.100.7");
    }

    #[test]
    fn a_peer_that_is_not_trusted_is_not_believed() {
        for line in ["1.2.3.4", "10.0.0.1", "1.2.3.4, 10.0.0.1"] {
            assert_eq!(client("203.0.113.9", &[line.as_bytes()]), "203.0.113.9");
        }
    }

    #[test]
    fn a_long_list_of_trusted_addresses_ends() {
        let line = vec!["10.1.1.1"; 10_000].join(",");
        assert_eq!(client("10.0.0.1", &[line.as_bytes()]), "10.1.1.1");
    }

    #[test]
    fn an_ipv6_client_is_its_network() {
        let ip = ClientIp::new();
        let key = |text: &str| ip.key_of(text.parse().unwrap()).to_string();
        assert_eq!(key("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(key("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(key("192.0.2.1"), "192.0.2.1");
    }
}
