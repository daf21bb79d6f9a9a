//! Host names in the one spelling that patterns and requests are compared in.

use std::borrow::Cow;
use std::net::Ipv6Addr;

/// What bytes are in a host: nothing else than letters, digits and what stands between them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Byte {
    Good,
    Upper,
    Dot,
    Colon,
    Bad,
}

const BYTES: [Byte; 256] = {
    let mut bytes = [Byte::Bad; 256];
    let mut at = 0;
    while at < 256 {
        bytes[at] = match at as u8 {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => Byte::Good,
            b'A'..=b'Z' => Byte::Upper,
            b'.' => Byte::Dot,
            b':' => Byte::Colon,
            _ => Byte::Bad,
        };
        at += 1;
    }
    bytes
};

/// The name in `NAME`, `NAME:PORT` or `[IPV6]:PORT`, in lower case and without a trailing dot; `None` for all that
/// servers read in several ways.
#[inline(always)] // every request comes by its other caller
pub fn host_name(text: &[u8]) -> Option<Cow<'_, str>> {
    if text.first() == Some(&b'[') {
        return address(str::from_utf8(text).ok()?).map(Cow::Owned);
    }
    // A label is empty where a dot, a colon or the end follows a dot or nothing.
    let (mut last, mut upper, mut end) = (Byte::Dot, false, text.len());
    for (at, byte) in text.iter().enumerate() {
        let byte = BYTES[usize::from(*byte)];
        match byte {
            Byte::Good => {}
            Byte::Upper => upper = true,
            Byte::Dot if last == Byte::Dot => return None,
            Byte::Dot => {}
            Byte::Colon => {
                end = at;
                break;
            }
            Byte::Bad => return None,
        }
        last = byte;
    }
    let (mut name, port) = text.split_at(end);
    if last == Byte::Dot {
        name = name.split_last().map(|(_, name)| name).filter(|name| !name.is_empty())?;
    }
    is_port(port).then_some(())?;
    let name = str::from_utf8(name).ok()?; // it is ASCII
    Some(if upper { Cow::Owned(name.to_ascii_lowercase()) } else { Cow::Borrowed(name) })
}

/// The one spelling of `[IPV6]`, with or without a port.
fn address(text: &str) -> Option<String> {
    let (address, port) = text.strip_prefix('[')?.split_once(']')?;
    let address: Ipv6Addr = address.parse().ok()?;
    is_port(port.as_bytes()).then(|| format!("[{address}]"))
}

/// Whether it is nothing, or a colon and digits, of which there may be none.
fn is_port(text: &[u8]) -> bool {
    text.is_empty() || (text[0] == b':' && text[1..].iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same, piece by piece.
    fn slow(text: &str) -> Option<String> {
        let (name, port) = match text.strip_prefix('[') {
            Some(inner) => {
                let (address, port) = inner.split_once(']')?;
                (format!("[{}]", address.parse::<Ipv6Addr>().ok()?), port)
            }
            None => {
                let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
                let name = name.strip_suffix('.').unwrap_or(name);
                let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
                if !name.split('.').all(|label| !label.is_empty() && label.chars().all(good)) {
                    return None;
                }
                (name.to_ascii_lowercase(), port)
            }
        };
        let digits = port.strip_prefix(':').or(port.is_empty().then_some(""))?;
        digits.chars().all(|c| c.is_ascii_digit()).then_some(name)
    }

    proptest! {
        #[test]
        fn one_look_at_the_bytes_sees_what_its_pieces_say(
            text in prop_oneof!["[aB1_.:-]{0,8}", "\\[[0:1f]{2,9}\\]?(:[0-9a]{0,3})?", "\\PC{0,6}"],
        ) {
            prop_assert_eq!(host_name(text.as_bytes()).map(Cow::into_owned), slow(&text), "{}", text);
        }
    }

    #[test]
    fn a_host_has_one_spelling() {
        for (text, name) in [
            ("api.test", Some("api.test")),
            ("Api.Test:8080", Some("api.test")),
            ("api.test.:", Some("api.test")),
            ("[::0001]:80", Some("[::1]")),
            ("a_b-c", Some("a_b-c")),
            ("", None),
            (".", None),
            (":80", None),
            ("a..b", None),
            ("a..", None),
            (".a", None),
            ("a:b", None),
            ("a:1:2", None),
            ("[::1", None),
            ("[::1]x", None),
            ("a b", None),
            ("user@a", None),
        ] {
            assert_eq!(host_name(text.as_bytes()).as_deref(), name, "{text}");
        }
        assert_eq!(host_name(b"a\xff"), None);
    }
}
