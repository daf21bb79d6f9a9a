//! Writes PROXY headers, versions 1 and 2: the first bytes of a connection to a server, which name the client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sluicegate_config::ProxyVersion;

/// The signature of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Version and command of version 2: PROXY, a connection on behalf of a client.
const PROXIED: u8 = 0x21;
/// Version and command of version 2: LOCAL, a connection of the proxy itself.
const LOCAL: u8 = 0x20;
/// Address family and protocol: TCP over IPv4, TCP over IPv6.
const TCP: (u8, u8) = (0x11, 0x21);

/// A PROXY header.
pub(super) type Header = Vec<u8>;

/// The header for a client that connected to `to`. If the address families differ, both are written as IPv6.
pub(super) fn header(version: ProxyVersion, client: SocketAddr, to: SocketAddr) -> Header {
    let (from, to) = (canonical(client), canonical(to));
    let mut out = Header::new();
    match (version, from.ip(), to.ip()) {
        (ProxyVersion::V1, IpAddr::V4(source), IpAddr::V4(target)) => {
            line(&mut out, "TCP4", &source, &target, (from.port(), to.port()));
        }
        (ProxyVersion::V1, source, target) => {
            line(&mut out, "TCP6", &to_ipv6(source), &to_ipv6(target), (from.port(), to.port()));
        }
        (ProxyVersion::V2, IpAddr::V4(source), IpAddr::V4(target)) => {
            binary(&mut out, TCP.0, &source.octets(), &target.octets(), (from.port(), to.port()));
        }
        (ProxyVersion::V2, source, target) => {
            binary(
                &mut out,
                TCP.1,
                &to_ipv6(source).octets(),
                &to_ipv6(target).octets(),
                (from.port(), to.port()),
            );
        }
    }
    out
}

/// The header for a connection of the gateway itself.
pub(super) fn local_header(version: ProxyVersion) -> Header {
    let mut out = Header::new();
    match version {
        ProxyVersion::V1 => out.extend_from_slice(b"PROXY UNKNOWN\r\n"),
        ProxyVersion::V2 => {
            out.extend_from_slice(SIGNATURE);
            out.extend_from_slice(&[LOCAL, 0, 0, 0]);
        }
    }
    out
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn to_ipv6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) if ip == Ipv4Addr::UNSPECIFIED => Ipv6Addr::UNSPECIFIED,
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

fn line(
    out: &mut Header,
    family: &str,
    source: &impl std::fmt::Display,
    target: &impl std::fmt::Display,
    (from, to): (u16, u16),
) {
    out.extend_from_slice(format!("PROXY {family} {source} {target} {from} {to}\r\n").as_bytes());
}

fn binary(out: &mut Header, family: u8, source: &[u8], target: &[u8], (from, to): (u16, u16)) {
    let length = (source.len() + target.len() + 4) as u16;
    out.extend_from_slice(SIGNATURE);
    out.extend_from_slice(&[PROXIED, family]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(source);
    out.extend_from_slice(target);
    out.extend_from_slice(&from.to_be_bytes());
    out.extend_from_slice(&to.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(client: &str, to: &str) -> String {
        let header = header(ProxyVersion::V1, client.parse().unwrap(), to.parse().unwrap());
        String::from_utf8(header.to_vec()).unwrap()
    }

    #[test]
    fn a_line_of_text() {
        assert_eq!(
            text("192.0.2.1:56324", "203.0.113.7:443"),
            "PROXY TCP4 192.0.2.1 203.0.113.7 56324 443\r\n"
        );
        assert_eq!(
            text("[2001:db8::1]:56324", "[2001:db8::2]:443"),
            "PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n"
        );
        assert_eq!(text("[::ffff:192.0.2.1]:1", "203.0.113.7:2"), "PROXY TCP4 192.0.2.1 203.0.113.7 1 2\r\n");
        assert_eq!(text("[2001:db8::1]:1", "0.0.0.0:2"), "PROXY TCP6 2001:db8::1 :: 1 2\r\n");
        assert_eq!(text("192.0.2.1:1", "[::1]:2"), "PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n");
        let longest = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535";
        assert!(text(longest, longest).len() <= 107);
    }

    #[test]
    fn binary_headers() {
        let of = |client: &str, to: &str| {
            header(ProxyVersion::V2, client.parse().unwrap(), to.parse().unwrap()).to_vec()
        };
        let four = of("192.0.2.1:256", "203.0.113.7:443");
        assert_eq!(four[..12], *SIGNATURE);
        assert_eq!(four[12..], [0x21, 0x11, 0, 12, 192, 0, 2, 1, 203, 0, 113, 7, 1, 0, 1, 187]);
        let six = of("[2001:db8::1]:256", "[2001:db8::2]:443");
        assert_eq!((&six[12..16], six.len()), (&[0x21, 0x21, 0, 36][..], 52));
        assert_eq!((six[16..18].to_vec(), &six[48..]), (vec![0x20, 0x01], &[1, 0, 1, 187][..]));
    }
}
