//! Networks of addresses, as in `10.0.0.0/8`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: an address and the number of bits that its members share with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    first: IpAddr,
    prefix: u8,
}

impl Network {
    /// Reads `10.0.0.0/8`, `2001:db8::/32`, or a single address.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let problem = || format!("{text:?} is not a network: write 10.0.0.0/8, 2001:db8::/32 or an address");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| problem())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().map_err(|_| problem())?
            }
            Some(_) => return Err(problem()),
        };
        if prefix > bits {
            return Err(problem());
        }
        let first = masked(address, prefix);
        if first != address {
            return Err(format!("{text:?} has bits after its prefix: write {first}/{prefix}"));
        }
        Ok(Self { first, prefix })
    }

    /// Whether the address is in the network. One of IPv4 that is written as IPv6 is one of IPv4.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        masked(address.to_canonical(), self.prefix) == self.first
    }
}

/// The first address of the network that has this address and prefix.
pub(crate) fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_the_addresses_with_its_prefix() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.1.2.3"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::1", "::1", "::2"),
            ("0.0.0.0/0", "203.0.113.1", "::1"),
            ("::/0", "2001:db8::1", "203.0.113.1"),
        ] {
            let parsed = Network::parse(network).unwrap();
            assert!(parsed.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{network} {outside}");
        }
    }

    #[test]
    fn what_is_no_network_is_an_error() {
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "::/129",
            "10.0.0/8",
            "10.0.0.1/8",
            "host",
        ] {
            assert!(Network::parse(text).is_err(), "{text}");
        }
    }
}
