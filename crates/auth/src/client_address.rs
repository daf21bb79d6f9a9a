//! Who the client is: the peer, or what a trusted proxy says of it.
//!
//! Each proxy appends the address that it was asked from, so the list is read from its right end: what a trusted
//! proxy wrote stands right of all that its client sent. Nothing further left is looked at, however it is spelled, so
//! that a client can neither choose its address nor hide it behind what cannot be read.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::lists::AddressList;
use sluicegate_config::{ClientIpConfig, ForwardedHeader};
use sluicegate_wire::Headers;

/// The most proxies in a row that are believed: more are a list that somebody made up.
const MAX_HOPS: usize = 100;

/// Whether `peer` is one of the proxies that are believed.
#[inline]
pub fn trusts(config: &ClientIpConfig, lists: &[Arc<AddressList>], peer: IpAddr) -> bool {
    config.has_proxies() && has_proxy(config, lists, peer.to_canonical())
}

fn has_proxy(config: &ClientIpConfig, lists: &[Arc<AddressList>], peer: IpAddr) -> bool {
    if !config.names_proxies() {
        return true; // only the number of proxies is known
    }
    config.trusted_proxies.iter().any(|network| network.contains(&peer))
        || config.trusted_lists.iter().any(|trusted| lists[trusted.list.index].contains(peer))
}

/// The client's address: the rightmost one that is not a trusted proxy. What is not an address (junk, nothing,
/// `unknown`) ends the search at the last one that is believed. With a depth it is the element of the list that the
/// outermost proxy wrote, and the peer if there is no address.
pub fn resolve(
    config: &ClientIpConfig,
    lists: &[Arc<AddressList>],
    peer: IpAddr,
    headers: &Headers,
) -> IpAddr {
    let peer = peer.to_canonical();
    match trusts(config, lists, peer) {
        true => behind(config, lists, headers).unwrap_or(peer),
        false => peer,
    }
}

/// The address of the client for which a trusted `peer` has sent a request; `None` if the header does not name one.
pub fn behind(config: &ClientIpConfig, lists: &[Arc<AddressList>], headers: &Headers) -> Option<IpAddr> {
    let lines = headers.get_all(config.header.name()).rev();
    match &config.header {
        // A proxy that writes such a header writes it once, in the place of any that came in.
        ForwardedHeader::Single(name) => headers.only(name).and_then(address),
        // One address and no list: of several, a proxy that adds its own adds it last.
        ForwardedHeader::XRealIp => {
            let said = lines.take(1).flat_map(|line| line.rsplit(|b| *b == b',')).next();
            said.and_then(address)
        }
        ForwardedHeader::XForwardedFor => {
            find(config, lists, lines.flat_map(|line| line.rsplit(|b| *b == b',')).map(address))
        }
        ForwardedHeader::Forwarded => find(config, lists, lines.flat_map(Elements::of).map(forwarded_for)),
    }
}

/// The client among `hops`, from the right: the one at the depth, or the first that is not trusted, else the last before one
/// that cannot be read.
fn find(
    config: &ClientIpConfig,
    lists: &[Arc<AddressList>],
    mut hops: impl Iterator<Item = Option<IpAddr>>,
) -> Option<IpAddr> {
    if let Some(depth) = config.depth {
        return hops.nth(depth - 1).flatten(); // a depth is at least 1
    }
    let mut client = None;
    for hop in hops.take(MAX_HOPS) {
        let Some(address) = hop else { break };
        client = Some(address);
        if !trusts(config, lists, address) {
            break;
        }
    }
    client
}

/// The elements of a line of Forwarded, from the right. Quotes are paired from the right too: one that a client left
/// open swallows nothing of what a proxy wrote behind it.
struct Elements<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Elements<'a> {
    fn of(line: &'a [u8]) -> Self {
        Self { rest: Some(line) }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest.take()?;
        let Some(comma) = last_outside_quotes(rest, b',') else { return Some(rest) };
        self.rest = Some(&rest[..comma]);
        Some(&rest[comma + 1..])
    }
}

/// Where `wanted` stands for the last time outside of a quoted string.
fn last_outside_quotes(text: &[u8], wanted: u8) -> Option<usize> {
    let mut quoted = false;
    for (at, byte) in text.iter().enumerate().rev() {
        if *byte == b'"' {
            let escapes = text[..at].iter().rev().take_while(|b| **b == b'\\').count();
            // Outside of quotes nothing is escaped: there, any quote is the end of a quoted string.
            quoted = !quoted || escapes % 2 == 1;
        } else if *byte == wanted && !quoted {
            return Some(at);
        }
    }
    None
}

/// The address in the `for` parameter of one element of Forwarded (RFC 7239 §4). None if it is `unknown`, obfuscated,
/// or given twice.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = Some(element);
    while let Some(pairs) = rest {
        let at = last_outside_quotes(pairs, b';');
        rest = at.map(|at| &pairs[..at]);
        let pair = &pairs[at.map_or(0, |at| at + 1)..];
        let Some(equals) = pair.iter().position(|b| *b == b'=') else { continue };
        if pair[..equals].trim_ascii().eq_ignore_ascii_case(b"for")
            && found.replace(&pair[equals + 1..]).is_some()
        {
            return None;
        }
    }
    address(&unquoted(found?.trim_ascii())?)
}

/// A token as it is, or what a quoted string says; `None` if its quotes are no pair.
fn unquoted(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(inner) = value.strip_prefix(b"\"") else { return Some(Cow::Borrowed(value)) };
    let inner = inner.strip_suffix(b"\"")?;
    if !inner.contains(&b'\\') {
        return Some(Cow::Borrowed(inner));
    }
    let mut bytes = inner.iter();
    let mut said = Vec::with_capacity(inner.len());
    while let Some(byte) = bytes.next() {
        said.push(if *byte == b'\\' { *bytes.next()? } else { *byte });
    }
    Some(Cow::Owned(said))
}

/// An address as proxies write it: with or without a port, IPv6 with or without brackets and a zone. One of IPv4 that
/// is written as IPv6 is one of IPv4.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    if let Some(inner) = text.strip_prefix('[') {
        let (address, port) = inner.split_once(']')?;
        let whole = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return v6(address).filter(|_| whole);
    }
    match text.split_once(':') {
        None => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        Some((address, port)) if !port.contains(':') => {
            address.parse::<Ipv4Addr>().ok().filter(|_| is_port(port)).map(IpAddr::V4)
        }
        Some(_) => v6(text),
    }
}

fn v6(text: &str) -> Option<IpAddr> {
    let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    let good = |b: u8| b.is_ascii_alphanumeric() || b"-._~%".contains(&b);
    let whole = zone.is_none_or(|zone| !zone.is_empty() && zone.bytes().all(good));
    address.parse::<Ipv6Addr>().ok().filter(|_| whole).map(|address| IpAddr::V6(address).to_canonical())
}

/// A number, or what RFC 7239 allows in its place.
fn is_port(text: &str) -> bool {
    let obfuscated = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    let number = text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok();
    number || text.strip_prefix('_').is_some_and(obfuscated)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resolve_bytes(header: ForwardedHeader, peer: &str, lines: &[&[u8]]) -> String {
        resolve_at(None, header, peer, lines)
    }

    fn resolve_at(depth: Option<usize>, header: ForwardedHeader, peer: &str, lines: &[&[u8]]) -> String {
        let config = ClientIpConfig {
            depth,
            trusted_proxies: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
            trusted_lists: Vec::new(),
            header,
            ipv6_prefix: 64,
        };
        let headers = lines.iter().map(|line| (config.header.name(), line)).collect();
        super::resolve(&config, &[], peer.parse().unwrap(), &headers).to_string()
    }

    fn resolve(header: ForwardedHeader, peer: &str, lines: &[&str]) -> String {
        resolve_bytes(header, peer, &lines.iter().map(|line| line.as_bytes()).collect::<Vec<_>>())
    }

    #[test]
    fn the_rightmost_address_that_is_not_trusted() {
        let xff = |peer, value| resolve(ForwardedHeader::XForwardedFor, peer, &[value]);
        assert_eq!(xff("203.0.113.1", "198.51.100.7"), "203.0.113.1", "an untrusted peer is not believed");
        assert_eq!(xff("::ffff:10.0.0.1", "198.51.100.7:4711"), "198.51.100.7");
        for (line, client) in [
            ("198.51.100.7", "198.51.100.7"),
            ("1.2.3.4, 198.51.100.7, 10.9.9.9", "198.51.100.7"),
            ("1.2.3.4,198.51.100.7\t ,10.9.9.9", "198.51.100.7"),
            ("10.1.1.1, 10.2.2.2", "10.1.1.1"), // all trusted: the first of them
            ("1.2.3.4, junk, 10.2.2.2", "10.2.2.2"),
            ("1.2.3.4, , 10.2.2.2", "10.2.2.2"),
            ("1.2.3.4,", "10.0.0.1"),
            (",,,, 198.51.100.7", "198.51.100.7"),
            ("\"1.2.3.4, 198.51.100.7", "198.51.100.7"),
            ("1.2.3.4, unknown", "10.0.0.1"),
            ("", "10.0.0.1"),
        ] {
            assert_eq!(xff("10.0.0.1", line), client, "{line}");
        }
    }

    #[test]
    fn a_depth_counts_from_the_right() {
        let xff = |depth, peer, line: &str| {
            resolve_at(Some(depth), ForwardedHeader::XForwardedFor, peer, &[line.as_bytes()])
        };
        for (depth, line, client) in [
            (1, "1.2.3.4, 198.51.100.7", "198.51.100.7"),
            (2, "1.2.3.4, 198.51.100.7, 203.0.113.5", "198.51.100.7"),
            (2, "1.2.3.4, 10.1.1.1, 10.2.2.2", "10.1.1.1"), // also one that is trusted
            (2, "198.51.100.7", "10.0.0.1"),                // fewer proxies than there are
            (2, "", "10.0.0.1"),
            (2, "junk, 198.51.100.7", "10.0.0.1"),
            (2, "198.51.100.7, junk", "198.51.100.7"),
            (2, "198.51.100.7, ", "198.51.100.7"),
        ] {
            assert_eq!(xff(depth, "10.0.0.1", line), client, "{depth}: {line}");
        }
        assert_eq!(
            xff(2, "203.0.113.9", "1.2.3.4, 5.6.7.8"),
            "203.0.113.9",
            "an untrusted peer is not believed"
        );
        let forwarded = b"for=1.2.3.4, for=198.51.100.7, for=_hidden";
        let client = resolve_at(Some(2), ForwardedHeader::Forwarded, "10.0.0.1", &[forwarded]);
        assert_eq!(client, "198.51.100.7");
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = ["1.2.3.4", "198.51.100.7, 10.1.1.1"];
        assert_eq!(resolve(ForwardedHeader::XForwardedFor, "10.0.0.1", &lines), "198.51.100.7");
        let lines = ["1.2.3.4, 198.51.100.7", "10.1.1.1"];
        assert_eq!(resolve(ForwardedHeader::XForwardedFor, "10.0.0.1", &lines), "198.51.100.7");
        let lines = ["for=1.2.3.4, for=\"198.51.100.7\"", "for=10.1.1.1"];
        assert_eq!(resolve(ForwardedHeader::Forwarded, "10.0.0.1", &lines), "198.51.100.7");
        let lines = ["1.2.3.4", "198.51.100.7"];
        assert_eq!(resolve(ForwardedHeader::XRealIp, "10.0.0.1", &lines), "198.51.100.7");
    }

    /// What a client sends that is no text at all does not hide the address that its proxy wrote behind it.
    #[test]
    fn what_cannot_be_read_hides_nothing() {
        let line = b"\xff\xfe, 198.51.100.7";
        assert_eq!(resolve_bytes(ForwardedHeader::XForwardedFor, "10.0.0.1", &[line]), "198.51.100.7");
        for sent in
            ["for=\"1.2.3.4", "for=\"\\\"", "\"", "\\", "for=\"a\\", ";;\"\"\";", "for=\"10.1.1.1\\\"\""]
        {
            for wrote in ["for=198.51.100.7", "for=\"198.51.100.7:80\";by=\"_x,\\\"y\""] {
                let line = format!("{sent}, {wrote}");
                assert_eq!(
                    resolve(ForwardedHeader::Forwarded, "10.0.0.1", &[&line]),
                    "198.51.100.7",
                    "{line}"
                );
            }
        }
    }

    #[test]
    fn addresses_are_read_as_proxies_write_them() {
        for (text, read) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("192.0.2.1:_port", "192.0.2.1"),
            ("2001:DB8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:65535", "2001:db8::1"),
            ("[2001:db8::1]:_a-b", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
            ("::ffff:c000:201", "192.0.2.1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%25eth0]:80", "fe80::1"),
        ] {
            assert_eq!(address(text.as_bytes()).map(|a| a.to_string()).as_deref(), Some(read), "{text}");
        }
        for text in [
            "",
            " ",
            ":",
            "unknown",
            "_hidden",
            "192.0.2",
            "192.0.2.256",
            "192.0.2.01",
            "0xc0000201",
            "192.0.2.1:",
            "192.0.2.1:65536",
            "192.0.2.1:+80",
            "192.0.2.1:_",
            "192.0.2.1 1.2.3.4",
            "192.0.2.1/32",
            "192.0.2.1%eth0",
            "[192.0.2.1]",
            "[]",
            "[",
            "]",
            "[2001:db8::1",
            "2001:db8::1]",
            "[2001:db8::1]80",
            "[2001:db8::1]:",
            "[[2001:db8::1]]",
            "[2001:db8::1]:80:80",
            "2001:db8::g",
            "fe80::1%",
            "fe80::1%a b",
            "example.com",
            "\"1.2.3.4\"",
        ] {
            assert_eq!(address(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn forwarded_is_read_as_rfc_7239_says() {
        for (element, client) in [
            ("for=1.2.3.4", "1.2.3.4"),
            ("For=\"[2001:db9:cafe::17]:4711\"", "2001:db9:cafe::17"),
            ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
            ("proto=http; FOR = \"192.0.2.60\" ;by=203.0.113.43", "192.0.2.60"),
            ("by=\"x;for=1.2.3.4,\";for=192.0.2.60", "192.0.2.60"),
            ("by=\"\\\";for=1.2.3.4\";for=192.0.2.60", "192.0.2.60"),
            ("for=\"1\\92.0.2.60\"", "192.0.2.60"),
            ("for=1.2.3.4, For=\"[2001:db9:cafe::17]:4711\";proto=https, for=10.3.3.3", "2001:db9:cafe::17"),
            ("for=1.2.3.4, for=unknown", "10.0.0.1"),
            ("for=1.2.3.4, for=_hidden, for=\"_SEVKISEK\"", "10.0.0.1"),
            ("for=1.2.3.4, for=_hidden, for=10.3.3.3", "10.3.3.3"),
            ("for=1.2.3.4, by=203.0.113.43", "10.0.0.1"),
            ("for=1.2.3.4, for", "10.0.0.1"),
            ("for=1.2.3.4;for=5.6.7.8", "10.0.0.1"),
            ("for=\"1.2.3.4", "10.0.0.1"),
            ("for=1.2.3.4\"", "10.0.0.1"),
            ("for='1.2.3.4'", "10.0.0.1"),
        ] {
            assert_eq!(resolve(ForwardedHeader::Forwarded, "10.0.0.1", &[element]), client, "{element}");
        }
    }

    #[test]
    fn x_real_ip_is_one_address() {
        let real = |value| resolve(ForwardedHeader::XRealIp, "10.0.0.1", &[value]);
        for (value, client) in [
            ("1.2.3.4", "1.2.3.4"),
            (" [2001:db9::1]:80 ", "2001:db9::1"),
            ("1.2.3.4, 5.6.7.8", "5.6.7.8"),
            ("1.2.3.4, 10.1.1.1", "10.1.1.1"),
            ("1.2.3.4, junk", "10.0.0.1"),
            ("", "10.0.0.1"),
        ] {
            assert_eq!(real(value), client, "{value}");
        }
        assert_eq!(resolve(ForwardedHeader::XRealIp, "10.0.0.1", &[]), "10.0.0.1");
    }

    /// What is not exactly one address is none: neither the first nor the last of several is chosen.
    #[test]
    fn another_header_is_one_address() {
        let header = || ForwardedHeader::Single(http::HeaderName::from_static("cf-connecting-ip"));
        for (lines, client) in [
            (&["1.2.3.4"][..], "1.2.3.4"),
            (&[" [2001:db9::1]:80 "], "2001:db9::1"),
            (&["::ffff:1.2.3.4"], "1.2.3.4"),
            (&["1.2.3.4", "5.6.7.8"], "10.0.0.1"),
            (&["1.2.3.4", "1.2.3.4"], "10.0.0.1"),
            (&["1.2.3.4, 5.6.7.8"], "10.0.0.1"),
            (&["1.2.3.4,"], "10.0.0.1"),
            (&["junk"], "10.0.0.1"),
            (&[""], "10.0.0.1"),
            (&[], "10.0.0.1"),
        ] {
            assert_eq!(resolve(header(), "10.0.0.1", lines), client, "{lines:?}");
            assert_eq!(resolve(header(), "203.0.113.9", lines), "203.0.113.9", "{lines:?}");
        }
    }

    #[test]
    fn so_many_proxies_are_none() {
        let line = format!("1.2.3.4{}", ", 10.1.1.1".repeat(MAX_HOPS));
        assert_eq!(resolve(ForwardedHeader::XForwardedFor, "10.0.0.1", &[&line]), "10.1.1.1");
        let line = format!("1.2.3.4{}", ", 10.1.1.1".repeat(MAX_HOPS - 1));
        assert_eq!(resolve(ForwardedHeader::XForwardedFor, "10.0.0.1", &[&line]), "1.2.3.4");
    }

    /// A line that a client may write: anything, or pieces of what is meant.
    fn sent() -> impl Strategy<Value = Vec<u8>> {
        let pieces: &'static [&str] = &[
            "for=", "10.1.1.1", "6.6.6.6", "\"", "\\", ",", ";", "=", "[", "]", "::1", ":80", "unknown", " ",
            "_x", "é",
        ];
        let piece = proptest::sample::select(pieces).prop_map(|piece| piece.as_bytes().to_vec());
        let pieces = proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat());
        let anything =
            proptest::collection::vec(prop_oneof![Just(b'\t'), 0x20..0x7f_u8, 0x80..=0xff_u8], 0..60);
        prop_oneof![pieces, anything]
    }

    proptest! {
        /// Whatever a client sends: the address that the trusted proxies saw is the one, in whatever way they write it.
        #[test]
        fn a_client_chooses_nothing(
            lines in proptest::collection::vec(sent(), 0..4),
            joined in any::<bool>(),
            form in 0..4_usize,
            hops in 0..3_usize,
        ) {
            let wrote = |address: &str, form: usize| match form {
                0 => format!("for={address}"),
                1 => format!("for=\"{address}:80\";proto=http"),
                2 => format!("by=\"_a,\\\";\";FOR=\"{address}\""),
                _ => format!("proto=https; for={address}"),
            };
            for header in [ForwardedHeader::Forwarded, ForwardedHeader::XForwardedFor, ForwardedHeader::XRealIp] {
                let seen = match &header {
                    ForwardedHeader::Forwarded => wrote("198.51.100.7", form),
                    _ => "198.51.100.7".to_owned(),
                };
                let mut written: Vec<Vec<u8>> = lines.clone();
                match written.last_mut().filter(|_| joined) {
                    Some(last) => last.extend_from_slice(format!(", {seen}").as_bytes()),
                    None => written.push(seen.into_bytes()),
                }
                for hop in 0..hops {
                    let seen = match header {
                        ForwardedHeader::Forwarded => wrote("10.1.1.1", (form + hop) % 4),
                        ForwardedHeader::XForwardedFor => "10.1.1.1".to_owned(),
                        ForwardedHeader::XRealIp | ForwardedHeader::Single(_) => continue,
                    };
                    written.push(seen.into_bytes());
                }
                let written: Vec<&[u8]> = written.iter().map(|line| &line[..]).collect();
                prop_assert_eq!(resolve_bytes(header.clone(), "10.0.0.1", &written), "198.51.100.7");
                prop_assert_eq!(resolve_bytes(header, "203.0.113.9", &written), "203.0.113.9");
            }
        }

        /// Nothing that a header can hold makes it panic.
        #[test]
        fn anything_is_read(lines in proptest::collection::vec(sent(), 0..5)) {
            for header in [ForwardedHeader::Forwarded, ForwardedHeader::XForwardedFor, ForwardedHeader::XRealIp] {
                let lines: Vec<&[u8]> = lines.iter().map(|line| &line[..]).collect();
                resolve_bytes(header, "10.0.0.1", &lines);
            }
        }
    }
}
