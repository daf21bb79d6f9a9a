//! A key in full: how it is written, and what can be read from it again.

use sluicegate_config::{Part, PartArgument, PartKind, PartTakes};
use sluicegate_counters::KeyText;

/// Appends what this part is and its value. Not the index among its alternatives: limits that find the same
/// value of the same part have the same key.
pub(super) fn write(part: &Part, value: &[u8], text: &mut KeyText) {
    text.push(part.kind() as u8);
    match part.argument() {
        PartArgument::None => {}
        PartArgument::Bits(bits) => text.push(bits),
        PartArgument::Name(name) => {
            text.extend_from_slice(name.as_bytes());
            text.push(0); // names have no such character
        }
    }
    text.extend_from_slice(&(value.len() as u32).to_be_bytes()); // heads are far shorter than 4 GiB
    text.extend_from_slice(value);
}

/// The parts of a key in full, each with its value; it ends at what is no part.
pub fn parts_of(mut text: &[u8]) -> impl Iterator<Item = (Part, &[u8])> {
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
    let (number, behind) = text.split_first()?;
    let kind = PartKind::numbered(*number)?;
    let (argument, behind) = match kind.facts().takes {
        PartTakes::Nothing => (PartArgument::None, behind),
        PartTakes::Bits => behind.split_first().map(|(bits, rest)| (PartArgument::Bits(*bits), rest))?,
        PartTakes::Name(_) => {
            let end = behind.iter().position(|byte| *byte == 0)?;
            (PartArgument::Name(std::str::from_utf8(&behind[..end]).ok()?), &behind[end + 1..])
        }
    };
    Some((kind.part(argument)?, behind))
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

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
            (Part::Descriptor, b"web|client=a"),
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
