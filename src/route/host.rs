//! The host that a request names.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use http::Version;
use http::uri::Scheme;

use crate::message::RequestHead;

/// That a request names no host, several, or something else than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHost;

/// The one host that a request names: lower case, without port and trailing dot. Absent only in HTTP/1.0.
///
/// # Errors
/// When it names none, several, or something else, or one of another scheme than http and https.
pub fn host(parts: &RequestHead) -> Result<Cow<'_, str>, NoHost> {
    let mut lines = parts.headers.get_all("host");
    let line = lines.next();
    if lines.next().is_some() {
        return Err(NoHost);
    }
    if parts.target.scheme().is_some_and(|scheme| ![Scheme::HTTP, Scheme::HTTPS].contains(scheme)) {
        return Err(NoHost); // a host of something else
    }
    named(line, parts.target.authority(), parts.version)
}

/// The host, of the one Host line and the authority of the target.
fn named<'a>(
    line: Option<&'a [u8]>,
    target: Option<&'a str>,
    version: Version,
) -> Result<Cow<'a, str>, NoHost> {
    let name = match (line, target) {
        (Some(line), Some(target)) if !line.eq_ignore_ascii_case(target.as_bytes()) => return Err(NoHost),
        (Some(line), _) => line,
        (None, Some(_)) if version == Version::HTTP_11 => return Err(NoHost), // RFC 9112 §3.2
        (None, Some(target)) => target.as_bytes(),
        (None, None) if version == Version::HTTP_10 => return Ok(Cow::Borrowed("")),
        (None, None) => return Err(NoHost),
    };
    host_name(name).ok_or(NoHost)
}

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

    #[test]
    fn the_target_and_the_line_name_the_same_host() {
        let named = |line: Option<&'static str>, target, version| {
            named(line.map(str::as_bytes), target, version).map(Cow::into_owned)
        };
        let host = |name: &str| Ok(name.to_owned());
        assert_eq!(named(Some("a"), None, Version::HTTP_11), host("a"));
        assert_eq!(named(Some("A"), Some("a"), Version::HTTP_11), host("a"));
        assert_eq!(named(Some("a"), Some("b"), Version::HTTP_11), Err(NoHost));
        assert_eq!(named(None, Some("a"), Version::HTTP_11), Err(NoHost));
        assert_eq!(named(None, Some("a"), Version::HTTP_2), host("a"));
        assert_eq!(named(None, None, Version::HTTP_11), Err(NoHost));
        assert_eq!(named(None, None, Version::HTTP_10), host(""));
    }
}
