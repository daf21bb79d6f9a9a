//! PROXY headers, versions 1 and 2: a load balancer that forwards bytes says where a connection comes from.
//!
//! [`decode`] says how many more bytes certainly belong to the header, so that the caller never reads beyond it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The shortest header, in bytes.
pub const SHORTEST: usize = 15;
/// The longest header of version 1, with its CR LF.
const LONGEST_V1: usize = 107;
/// The signature of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of a header of version 2 before the part whose length it announces.
const FIXED_V2: usize = 16;
/// The type of the TLV with the checksum of a header of version 2.
const CHECKSUM: u8 = 0x03;

/// The result of decoding the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// At least this many more bytes belong to the header.
    NeedMore(usize),
    /// The header is complete: the source of the connection; `None` if it is the peer itself or unknown.
    Done(Option<SocketAddr>),
    /// It is not a PROXY header.
    Malformed,
}

/// Decodes the first bytes of a connection.
pub fn decode(header: &[u8]) -> Progress {
    if header.len() < SHORTEST {
        return Progress::NeedMore(SHORTEST - header.len());
    }
    let progress = if header.starts_with(SIGNATURE) { version_2(header) } else { version_1(header) };
    progress.unwrap_or(Progress::Malformed)
}

fn version_1(header: &[u8]) -> Option<Progress> {
    let rest = header.strip_prefix(b"PROXY ")?;
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
        // At least the end of the line is missing.
        let more = if rest.ends_with(b"\r") { 1 } else { 2 };
        return (header.len() + more <= LONGEST_V1).then_some(Progress::NeedMore(more));
    };
    let line = rest[..end].strip_suffix(b"\r").filter(|line| !line.contains(&b'\r'))?;
    if end + 1 < rest.len() {
        return None;
    }
    let line = str::from_utf8(line).ok()?;
    if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        return Some(Progress::Done(None));
    }
    let mut words = line.split(' ');
    let (family, source, destination) = (words.next()?, words.next()?, words.next()?);
    let ports = (port(words.next()?)?, port(words.next()?)?);
    let address = |text: &str| match family {
        "TCP4" => text.parse().ok().map(IpAddr::V4),
        "TCP6" => text.parse().ok().map(IpAddr::V6),
        _ => None,
    };
    address(destination)?;
    let source = SocketAddr::new(address(source)?, ports.0);
    words.next().is_none().then_some(Progress::Done(Some(source)))
}

/// A port as version 1 writes it: decimal, and no zero before another digit.
fn port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    (digits && (text == "0" || !text.starts_with('0'))).then(|| text.parse().ok())?
}

fn version_2(header: &[u8]) -> Option<Progress> {
    let Some(fixed) = header.get(..FIXED_V2) else {
        return Some(Progress::NeedMore(FIXED_V2 - header.len()));
    };
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if header.len() > FIXED_V2 + length {
        return None;
    }
    // Refuses what is not a PROXY header before its length was received.
    let local = match fixed[12] {
        0x20 => true,
        0x21 => false,
        _ => return None,
    };
    let addresses = match fixed[13] {
        _ if local => 0,
        0x00 => 0,
        0x11 => 12,
        0x21 => 36,
        // Datagrams and Unix sockets have no usable address, like UNSPEC.
        0x12 | 0x22 | 0x31 | 0x32 => 0,
        _ => return None,
    };
    if addresses > length {
        return None;
    }
    if header.len() < FIXED_V2 + length {
        return Some(Progress::NeedMore(FIXED_V2 + length - header.len()));
    }
    let body = &header[FIXED_V2..];
    // Without an address the rest of the header is ignored.
    if addresses == 0 {
        return Some(Progress::Done(None));
    }
    let (ends, more) = body.split_at(addresses);
    if !is_whole(header, more) {
        return None;
    }
    let port = |at: usize| u16::from_be_bytes([ends[at], ends[at + 1]]);
    Some(Progress::Done(Some(match addresses {
        12 => SocketAddr::new(Ipv4Addr::new(ends[0], ends[1], ends[2], ends[3]).into(), port(8)),
        _ => {
            let octets: [u8; 16] = ends[..16].try_into().ok()?;
            SocketAddr::new(Ipv6Addr::from(octets).into(), port(32))
        }
    })))
}

/// Whether the TLVs after the addresses are complete, and the checksum, if there is one, is correct.
fn is_whole(header: &[u8], mut fields: &[u8]) -> bool {
    let mut summed = false;
    while let [kind, high, low, rest @ ..] = fields {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some((value, behind)) = rest.split_at_checked(length) else { return false };
        if *kind == CHECKSUM {
            let Ok(sum) = <[u8; 4]>::try_from(value) else { return false };
            if std::mem::replace(&mut summed, true) {
                return false; // only one is allowed: many would be expensive to compute
            }
            let at = header.len() - rest.len();
            if crc32c(header, at..at + 4) != u32::from_be_bytes(sum) {
                return false;
            }
        }
        fields = behind;
    }
    fields.is_empty()
}

/// CRC-32C (RFC 9260, appendix A) with zeros in place of the checksum.
fn crc32c(bytes: &[u8], zeros: std::ops::Range<usize>) -> u32 {
    let mut crc = u32::MAX;
    for (at, byte) in bytes.iter().enumerate() {
        crc ^= if zeros.contains(&at) { 0 } else { u32::from(*byte) };
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, body].concat()
    }

    fn v4_body() -> Vec<u8> {
        [&[203, 0, 113, 9][..], &[192, 0, 2, 1], &4711_u16.to_be_bytes(), &443_u16.to_be_bytes()].concat()
    }

    /// Feeds exactly the bytes that are asked for. Returns the result and how many bytes were taken.
    fn feed(bytes: &[u8]) -> (Progress, usize) {
        let mut taken = SHORTEST;
        loop {
            let Some(begun) = bytes.get(..taken) else {
                return (Progress::NeedMore(taken - bytes.len()), bytes.len());
            };
            match decode(begun) {
                Progress::NeedMore(more) => {
                    assert!(more > 0);
                    taken += more;
                }
                step => return (step, taken),
            }
        }
    }

    #[test]
    fn version_1_is_decoded_without_reading_beyond_it() {
        for (line, source) in [
            ("PROXY TCP4 203.0.113.9 192.0.2.1 4711 443\r\n", Some("203.0.113.9:4711")),
            ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", Some("255.255.255.255:65535")),
            ("PROXY TCP4 1.1.1.1 2.2.2.2 0 1\r\n", Some("1.1.1.1:0")),
            ("PROXY TCP6 2001:db8::1 ::1 4711 443\r\n", Some("[2001:db8::1]:4711")),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN ffff::1 whatever 1 2\r\n", None),
        ] {
            let whole = format!("{line}GET / HTTP/1.1\r\n");
            let expected = source.map(|source| source.parse().unwrap());
            assert_eq!(feed(whole.as_bytes()), (Progress::Done(expected), line.len()), "{line}");
        }
    }

    #[test]
    fn malformed_headers_are_refused() {
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(100));
        for bytes in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "proxy TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
            "PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n_____",
            "PROXY TCP4 1.1.1.1 2.2.2.2 1\r 2\r\n",
            "PROXY TCP4 1.1.1.1  2.2.2.2 1 2\r\n",
            "PROXY TCP4 1.1.1.1 2.2.2.2 1 2 \r\n",
            "PROXY TCP4 1.1.1.1 2.2.2.2 1 65536\r\n",
            "PROXY TCP4 1.1.1.1 2.2.2.2 01 2\r\n",
            "PROXY TCP4 1.1.1.1 2.2.2.2 +1 2\r\n",
            "PROXY TCP4 01.1.1.1 2.2.2.2 1 2\r\n",
            "PROXY TCP4 1.1.1 2.2.2.2 10 2000\r\n",
            "PROXY TCP4 ::1 ::2 1111 22222222\r\n",
            "PROXY TCP6 1.1.1.1 2.2.2.2 1 2\r\n",
            "PROXY UDP4 1.1.1.1 2.2.2.2 1 2\r\n",
            "PROXY UNKNOWNS\r\n",
            "PROXY \r\n_______________",
            &long,
        ] {
            assert_eq!(feed(bytes.as_bytes()).0, Progress::Malformed, "{bytes:?}");
        }
    }

    #[test]
    fn version_2_is_decoded_without_reading_beyond_it() {
        let v6: Vec<u8> =
            [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[7], &[0; 16], &[0x12, 0x67, 1, 0xbb]].concat();
        let with_fields = [&v4_body()[..], &[0x04, 0, 3, 1, 2, 3, 0xe0, 0, 0]].concat();
        let done = |source: &str| Progress::Done(Some(source.parse().unwrap()));
        for (header, step) in [
            (v2(0x21, 0x11, &v4_body()), done("203.0.113.9:4711")),
            (v2(0x21, 0x11, &with_fields), done("203.0.113.9:4711")),
            (v2(0x21, 0x21, &v6), done("[2001:db8::7]:4711")),
            (v2(0x20, 0x00, &[]), Progress::Done(None)),
            (v2(0x20, 0x11, &v4_body()), Progress::Done(None)),
            (v2(0x21, 0x00, &[1, 2, 3]), Progress::Done(None)),
            (v2(0x21, 0x11, &v4_body()[..11]), Progress::Malformed),
            (v2(0x21, 0x12, &v4_body()), Progress::Done(None)),
            (v2(0x21, 0x22, &[0; 36]), Progress::Done(None)),
            (v2(0x21, 0x31, &[0; 216]), Progress::Done(None)),
            (v2(0x21, 0x32, &[0; 216]), Progress::Done(None)),
            (v2(0x21, 0x13, &v4_body()), Progress::Malformed),
            (
                v2(0x21, 0x11, &[&v4_body()[..], &[4, 0xff, 0xf0], &[0; 0xfff0]].concat()),
                done("203.0.113.9:4711"),
            ),
            (v2(0x22, 0x11, &v4_body()), Progress::Malformed),
            (v2(0x11, 0x11, &v4_body()), Progress::Malformed),
            (v2(0x21, 0x11, &[&v4_body()[..], &[0x04, 0, 3, 1]].concat()), Progress::Malformed),
        ] {
            let whole = [&header[..], b"GET / HTTP/1.1\r\n"].concat();
            let (found, taken) = feed(&whole);
            assert_eq!(found, step, "{header:?}");
            assert!(taken <= header.len());
            if step != Progress::Malformed {
                assert_eq!(taken, header.len());
            }
        }
    }

    #[test]
    fn the_checksum_is_verified() {
        assert_eq!(crc32c(b"123456789", 0..0), 0xe306_9283);
        let mut header = v2(0x21, 0x11, &[&v4_body()[..], &[CHECKSUM, 0, 4, 0, 0, 0, 0]].concat());
        let at = header.len() - 4;
        let sum = crc32c(&header, at..at + 4);
        header[at..].copy_from_slice(&sum.to_be_bytes());
        assert!(matches!(feed(&header).0, Progress::Done(Some(_))));
        header[20] ^= 1;
        assert_eq!(feed(&header).0, Progress::Malformed);
    }

    proptest! {
        /// Any input ends with a result within the longest header.
        #[test]
        fn anything_is_read(
            start in prop::sample::select(vec![&b""[..], b"PROXY ", b"PROXY TCP4 ", b"PROXY UNKNOWN", SIGNATURE]),
            rest in prop::collection::vec(any::<u8>(), 0..6000),
        ) {
            let (_, taken) = feed(&[start, &rest].concat());
            prop_assert!(taken <= FIXED_V2 + usize::from(u16::MAX));
        }

        /// A changed byte does not make the decoder panic or read beyond the longest header.
        #[test]
        fn a_changed_byte_is_no_panic(at in 0..44_usize, byte in any::<u8>()) {
            let mut line = b"PROXY TCP4 203.0.113.9 192.0.2.1 4711 4430\r\n".to_vec();
            line[at] = byte;
            let (_, taken) = feed(&line);
            prop_assert!(taken <= LONGEST_V1);
        }
    }
}
