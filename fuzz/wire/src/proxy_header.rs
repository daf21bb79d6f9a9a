//! PROXY protocol headers.

use std::net::SocketAddr;

use sluicegate_wire::proxy_protocol::{Progress, SHORTEST, decode};

/// The signature of version 2 with its fixed part.
const FIXED: usize = 16;
/// The longest header of version 1.
const LONGEST_V1: usize = 107;

/// Reads a header as the gateway does: never more bytes than the decoder has asked for. Its result and its length.
fn feed(bytes: &[u8]) -> Option<(Option<SocketAddr>, usize)> {
    let mut taken = SHORTEST;
    loop {
        match decode(bytes.get(..taken)?) {
            Progress::NeedMore(more) => {
                assert!(more > 0, "no progress at {taken}");
                taken += more;
                assert!(taken <= FIXED + usize::from(u16::MAX));
            }
            Progress::Done(source) => return Some((source, taken)),
            Progress::Malformed => return None,
        }
    }
}

/// A header of version 1 for this source.
fn version_1(source: SocketAddr) -> Vec<u8> {
    let (family, destination) =
        if source.is_ipv4() { ("TCP4", "192.0.2.1") } else { ("TCP6", "2001:db8::1") };
    format!("PROXY {family} {} {destination} {} 443\r\n", source.ip(), source.port()).into_bytes()
}

/// A header of version 2 for this source.
fn version_2(source: SocketAddr) -> Vec<u8> {
    let (family, addresses) = match source.ip() {
        std::net::IpAddr::V4(ip) => (0x11, [ip.octets(), [192, 0, 2, 1]].concat()),
        std::net::IpAddr::V6(ip) => (0x21, [ip.octets(), [1; 16]].concat()),
    };
    let ports = [source.port().to_be_bytes(), [1, 187]].concat();
    let length = (addresses.len() + ports.len()) as u8;
    [&b"\r\n\r\n\0\r\nQUIT\n\x21"[..], &[family, 0, length], &addresses, &ports].concat()
}

/// Any bytes at the beginning of a connection.
///
/// - Each step asks for at least one byte, and the header ends within its maximum length.
/// - Before the end of a header that is accepted, each prefix asks for more, and for no byte behind the header.
/// - Bytes behind the header do not change it.
/// - An accepted address, written in either version, reads as the same address.
pub fn proxy_header(data: &[u8]) {
    let Some((source, taken)) = feed(data) else { return };
    assert!(taken <= data.len());
    let is_v1 = data.starts_with(b"PROXY ");
    assert!(is_v1 || data.starts_with(b"\r\n\r\n\0\r\nQUIT\n"));
    assert!(!is_v1 || (taken <= LONGEST_V1 && data[..taken].ends_with(b"\r\n")));
    for end in 0..taken {
        match decode(&data[..end]) {
            Progress::NeedMore(more) => assert!(more > 0 && end + more <= taken, "{end} + {more} of {taken}"),
            other => panic!("{other:?} at {end} of {taken}"),
        }
    }
    let mut behind = data[..taken].to_vec();
    behind.extend_from_slice(b"GET / HTTP/1.1\r\n");
    assert_eq!(feed(&behind), Some((source, taken)));
    for header in source.iter().flat_map(|source| [version_1(*source), version_2(*source)]) {
        assert_eq!(feed(&header), Some((source, header.len())), "{header:?}");
    }
}
