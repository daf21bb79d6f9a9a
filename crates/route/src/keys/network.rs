//! The network of a client address, which limits and listeners count in place of the address.

use std::net::IpAddr;

/// The network of this prefix length of an IPv6 address; an IPv4 address stays as it is.
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

/// The network of an address, whose prefix length depends on its family.
pub fn network(client: IpAddr, ipv4_prefix: u8, ipv6_prefix: u8) -> IpAddr {
    match mask(client, ipv6_prefix) {
        IpAddr::V4(address) => {
            let bits = u32::MAX.checked_shl(32 - u32::from(ipv4_prefix.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(address) & bits).into())
        }
        v6 => v6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_client_is_its_network() {
        assert_eq!(mask("2001:db8:1:2:3:4:5:6".parse().unwrap(), 64).to_string(), "2001:db8:1:2::");
        assert_eq!(mask("2001:db8::1".parse().unwrap(), 128).to_string(), "2001:db8::1");
        assert_eq!(mask("::ffff:192.0.2.1".parse().unwrap(), 64).to_string(), "192.0.2.1");
        let of = |client: &str, bits| network(client.parse().unwrap(), bits, 64).to_string();
        assert_eq!(of("192.0.2.255", 24), "192.0.2.0");
        assert_eq!(of("::ffff:192.0.2.255", 25), "192.0.2.128");
        assert_eq!((of("192.0.2.1", 0), of("192.0.2.1", 32)), ("0.0.0.0".into(), "192.0.2.1".into()));
        assert_eq!(of("2001:db8::1", 24), "2001:db8::");
    }
}
