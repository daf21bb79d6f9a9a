//! Who the client is: the peer, or what a trusted proxy says of it.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use ipnet::IpNet;

use crate::config::{ClientIpConfig, ForwardedHeader};

impl ClientIpConfig {
    /// Whether `peer` is one of the proxies that are believed.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.trusted_proxies.iter().any(|network| network.contains(&peer))
    }

    /// The client's address: the rightmost one that is not a trusted proxy. What a proxy could not have
    /// written (junk, `unknown`) ends the search at the last address that is believed.
    pub fn resolve(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if self.trusted_proxies.is_empty() || !self.trusts(peer) {
            return peer;
        }
        let mut client = peer;
        for line in headers.get_all(self.header.name()).iter().rev() {
            for element in line.to_str().unwrap_or_default().rsplit(',') {
                let said = match self.header {
                    ForwardedHeader::Forwarded => forwarded_for(element),
                    ForwardedHeader::XForwardedFor | ForwardedHeader::XRealIp => Some(element.trim()),
                };
                let Some(address) = said.and_then(parse_address) else { return client };
                client = address;
                if !self.trusts(address) {
                    return client;
                }
            }
        }
        client
    }
}

/// `client` with all but the first `ipv6_prefix` bits cleared, where it is an IPv6 address.
pub fn mask(client: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => {
            let keep = u32::from(ipv6_prefix.min(128));
            let bits = if keep == 0 { 0 } else { u128::MAX << (128 - keep) };
            IpAddr::V6((u128::from(address) & bits).into())
        }
        v4 => v4,
    }
}

/// The `for` parameter of one element of Forwarded (RFC 7239 §4).
fn forwarded_for(element: &str) -> Option<&str> {
    element.split(';').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case("for").then(|| value.trim().trim_matches('"'))
    })
}

/// An address as proxies write it: with or without a port, IPv6 with or without brackets.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = match bare.parse::<IpAddr>() {
        Ok(address) => address,
        Err(_) => text.parse::<SocketAddr>().ok()?.ip(),
    };
    Some(address.to_canonical())
}

/// An address or a network, as configurations write them.
///
/// # Errors
/// A sentence that says what was expected.
pub fn parse_network(text: &str) -> Result<IpNet, String> {
    let bad = || format!("expected an address or a network such as 10.0.0.0/8, found `{text}`");
    match text.parse::<IpNet>() {
        Ok(network) => Ok(network.trunc()),
        Err(_) => {
            text.parse::<IpAddr>().map(|address| IpNet::from(address.to_canonical())).map_err(|_| bad())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(header: ForwardedHeader, peer: &str, lines: &[(&'static str, &str)]) -> String {
        let config = ClientIpConfig {
            trusted_proxies: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
            header,
            ipv6_prefix: 64,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        config.resolve(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn the_rightmost_address_that_is_not_trusted() {
        let xff = |peer, value| resolve(ForwardedHeader::XForwardedFor, peer, &[("x-forwarded-for", value)]);
        assert_eq!(xff("203.0.113.1", "198.51.100.7"), "203.0.113.1", "an untrusted peer is not believed");
        assert_eq!(xff("10.0.0.1", "198.51.100.7"), "198.51.100.7");
        assert_eq!(xff("10.0.0.1", "1.2.3.4, 198.51.100.7, 10.9.9.9"), "198.51.100.7");
        assert_eq!(xff("::ffff:10.0.0.1", "198.51.100.7:4711"), "198.51.100.7");
        assert_eq!(xff("10.0.0.1", "[2001:db9::1]:80"), "2001:db9::1");
        assert_eq!(xff("10.0.0.1", "1.2.3.4, junk, 10.2.2.2"), "10.2.2.2", "behind junk nothing is believed");
        assert_eq!(xff("10.0.0.1", ""), "10.0.0.1");
        assert_eq!(xff("10.0.0.1", "10.1.1.1, 10.2.2.2"), "10.1.1.1", "all trusted: the first of them");
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = [("x-forwarded-for", "1.2.3.4"), ("x-forwarded-for", "198.51.100.7, 10.1.1.1")];
        assert_eq!(resolve(ForwardedHeader::XForwardedFor, "10.0.0.1", &lines), "198.51.100.7");
    }

    #[test]
    fn the_other_headers() {
        let forwarded = "for=1.2.3.4, For=\"[2001:db9:cafe::17]:4711\";proto=https, for=10.3.3.3";
        let answer = resolve(ForwardedHeader::Forwarded, "10.0.0.1", &[("forwarded", forwarded)]);
        assert_eq!(answer, "2001:db9:cafe::17");
        assert_eq!(
            resolve(ForwardedHeader::Forwarded, "10.0.0.1", &[("forwarded", "for=unknown")]),
            "10.0.0.1"
        );
        assert_eq!(resolve(ForwardedHeader::XRealIp, "10.0.0.1", &[("x-real-ip", "1.2.3.4")]), "1.2.3.4");
    }

    #[test]
    fn an_ipv6_client_is_its_network() {
        assert_eq!(mask("2001:db8:1:2:3:4:5:6".parse().unwrap(), 64).to_string(), "2001:db8:1:2::");
        assert_eq!(mask("2001:db8::1".parse().unwrap(), 128).to_string(), "2001:db8::1");
        assert_eq!(mask("::ffff:192.0.2.1".parse().unwrap(), 64).to_string(), "192.0.2.1");
    }
}
