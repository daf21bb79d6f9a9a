//! A key in full: how it is written, and what can be read from it again.

use http::HeaderName;

use super::KeyText;
use sluicegate_config::Part;

/// Appends what this part is and its value. Not the index among its alternatives: limits that find the same
/// value of the same part have the same key.
pub(super) fn write(part: &Part, value: &[u8], text: &mut KeyText) {
    let kind = match part {
        Part::Ip => 1,
        Part::ApiKey => 2,
        Part::Global => 3,
        Part::Host => 4,
        Part::Method => 5,
        Part::Path => 6,
        Part::Param(_) => 7,
        Part::Route => 8,
        Part::Header(_) => 9,
        Part::Query(_) => 10,
        Part::Cookie(_) => 11,
        Part::Consumer => 12,
        Part::User => 13,
        Part::Claim(_) => 14,
        Part::IpPrefix(_) => 15,
        Part::TlsSubject => 16,
        Part::TlsFingerprint => 17,
        Part::Ipv4Prefix(_) => 18,
    };
    text.push(kind);
    if let Part::IpPrefix(bits) | Part::Ipv4Prefix(bits) = part {
        text.push(*bits);
    }
    if matches!(part, Part::Param(_) | Part::Header(_) | Part::Query(_) | Part::Cookie(_) | Part::Claim(_)) {
        text.extend_from_slice(part.name().as_bytes());
        text.push(0); // names have no such character
    }
    text.extend_from_slice(&(value.len() as u32).to_be_bytes()); // heads are far shorter than 4 GiB
    text.extend_from_slice(value);
}

/// The parts of a key in full, each with its value; it ends at what is no part.
pub(crate) fn parts_of(mut text: &[u8]) -> impl Iterator<Item = (Part, &[u8])> {
    std::iter::from_fn(move || {
        let (part, behind) = part_of(text)?;
        let (length, behind) = behind.split_first_chunk()?;
        let (value, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        text = behind;
        Some((part, value))
    })
}

/// The part that a text begins with, and what stands behind its name.
fn part_of(text: &[u8]) -> Option<(Part, &[u8])> {
    let (kind, mut behind) = text.split_first()?;
    let mut name = || {
        let end = behind.iter().position(|byte| *byte == 0)?;
        let name = std::str::from_utf8(&behind[..end]).ok()?;
        behind = &behind[end + 1..];
        Some(name.to_owned())
    };
    let part = match kind {
        1 => Part::Ip,
        2 => Part::ApiKey,
        3 => Part::Global,
        4 => Part::Host,
        5 => Part::Method,
        6 => Part::Path,
        7 => Part::Param(name()?),
        8 => Part::Route,
        9 => Part::Header(HeaderName::from_bytes(name()?.as_bytes()).ok()?),
        10 => Part::Query(name()?),
        11 => Part::Cookie(name()?),
        12 => Part::Consumer,
        13 => Part::User,
        14 => Part::Claim(name()?),
        15 | 18 => {
            let (bits, rest) = behind.split_first()?;
            behind = rest;
            if *kind == 15 { Part::IpPrefix(*bits) } else { Part::Ipv4Prefix(*bits) }
        }
        16 => Part::TlsSubject,
        17 => Part::TlsFingerprint,
        _ => return None,
    };
    Some((part, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let parts = [
            (Part::Ip, &b"\x01\x02\x03\x04"[..]),
            (Part::ApiKey, b"k1"),
            (Part::Global, b""),
            (Part::Host, b"a.test"),
            (Part::Method, b"GET"),
            (Part::Path, b"/a\0b"),
            (Part::Param("id".into()), b"7"),
            (Part::Route, b"all"),
            (Part::Header(HeaderName::from_static("x-tenant")), b"\xff"),
            (Part::Query("q".into()), b"x"),
            (Part::Cookie("c".into()), b"y"),
            (Part::Consumer, b"acme"),
            (Part::User, b"ann"),
            (Part::Claim("org".into()), b"o"),
            (Part::IpPrefix(64), &[0; 16]),
            (Part::Ipv4Prefix(24), b"\x01\x02\x03\x00"),
            (Part::TlsSubject, b"CN=a"),
            (Part::TlsFingerprint, b"00ff"),
        ];
        let mut text = KeyText::new();
        parts.iter().for_each(|(part, value)| write(part, value, &mut text));
        assert_eq!(parts_of(&text).collect::<Vec<_>>(), parts);
        // However it is cut off, what is whole is read.
        for end in 0..text.len() {
            let read: Vec<_> = parts_of(&text[..end]).collect();
            assert!(parts.starts_with(&read) && read.len() < parts.len(), "{end}");
        }
    }
}
