//! One spelling for every path, so that no other spelling slips past a limit.

use std::borrow::Cow;

/// Why a path has no normal form that every server reads alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Not an absolute path.
    #[error("the request target is not a path")]
    NotAbsolute,
    /// A `%` without two hexadecimal digits.
    #[error("the path has a % that is not followed by two hexadecimal digits")]
    Escape,
    /// An encoded slash, backslash or control character, a plain backslash, or UTF-8 in more bytes than it needs:
    /// servers disagree on what it means.
    #[error("the path has a backslash, a control character or an encoded slash")]
    Ambiguous,
    /// A byte that a URI cannot have.
    #[error("the path has a character that must be percent-encoded")]
    Character,
}

/// The normal form of an absolute path (RFC 3986 §6.2.2): unreserved characters decoded, other escapes in upper
/// case, doubled slashes merged, dot segments resolved. Borrowed where the path is in that form already.
///
/// # Errors
/// When servers could read the path in more than one way.
#[inline]
pub fn normalize(path: &str) -> Result<Cow<'_, str>, PathError> {
    if !path.starts_with('/') {
        return Err(PathError::NotAbsolute);
    }
    if is_normal(path.as_bytes()) {
        return Ok(Cow::Borrowed(path));
    }
    let decoded = decode(path.as_bytes())?;
    if has_overlong(&decoded) {
        return Err(PathError::Ambiguous);
    }
    Ok(Cow::Owned(resolve(&decoded)))
}

/// Whether nothing would change: the case that nearly every request is.
fn is_normal(path: &[u8]) -> bool {
    let mut last = 0;
    for &byte in path {
        match byte {
            b'%' | b'\\' => return false,
            b'/' | b'.' if last == b'/' => return false, // `/.name` is normal, but rare: the slow way sees it
            0x21..=0x7e => last = byte,
            _ => return false,
        }
    }
    true
}

fn decode(path: &[u8]) -> Result<String, PathError> {
    let mut out = String::with_capacity(path.len());
    let mut bytes = path.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'%' => {
                let mut digit =
                    || bytes.next().and_then(|b| char::from(*b).to_digit(16)).ok_or(PathError::Escape);
                let value = (digit()? * 16 + digit()?) as u8;
                match value {
                    b'/' | b'\\' | ..=0x1f | 0x7f => return Err(PathError::Ambiguous),
                    b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                        out.push(value.into())
                    }
                    _ => {
                        const HEX: &[u8; 16] = b"0123456789ABCDEF";
                        out.push('%');
                        out.push(HEX[usize::from(value >> 4)].into());
                        out.push(HEX[usize::from(value & 15)].into());
                    }
                }
            }
            b'\\' | 0 => return Err(PathError::Ambiguous),
            0x21..=0x7e => out.push(byte.into()),
            _ => return Err(PathError::Character),
        }
    }
    Ok(out)
}

/// Whether escapes stand for overlong UTF-8.
fn has_overlong(decoded: &str) -> bool {
    let lead = |at: usize| matches!(decoded.get(at..at + 3), Some("%C0" | "%C1" | "%E0" | "%F0"));
    let byte = |at: usize| decoded.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    decoded.match_indices('%').any(|(at, _)| {
        let next = decoded.get(at + 3..at + 4) == Some("%");
        lead(at) && next && byte(at).zip(byte(at + 3)).is_some_and(|(one, two)| is_overlong(&[one, two]))
    })
}

/// Whether a character is written in more bytes than it needs (RFC 3629 §3), which some decoders take for it: `%C0%AF`
/// is a slash to them.
#[inline]
pub fn is_overlong(bytes: &[u8]) -> bool {
    bytes
        .windows(2)
        .any(|pair| matches!(pair, [0xc0 | 0xc1, 0x80..=0xbf] | [0xe0, 0x80..=0x9f] | [0xf0, 0x80..=0x8f]))
}

/// Merges slashes and resolves dot segments. What ends in a directory (`/`, `/.`, `/..`) keeps its last slash.
fn resolve(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            name => kept.push(name),
        }
    }
    let mut out = String::with_capacity(path.len());
    for segment in &kept {
        out.push('/');
        out.push_str(segment);
    }
    if out.is_empty() || path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..") {
        out.push('/');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_form_for_every_spelling() {
        for spelling in [
            "/v1/items",
            "//v1/items",
            "/v1//items",
            "/./v1/items",
            "/v1/./items",
            "/x/../v1/items",
            "/../v1/items",
            "/%76%31/items",
            "/v1/%69tems",
            "/v1/%2e/items",
            "/v1/x/%2E%2e/items",
            "/v1/x/.%2e/items",
        ] {
            assert_eq!(normalize(spelling).unwrap(), "/v1/items", "{spelling}");
        }
    }

    #[test]
    fn what_means_something_else_stays() {
        for (path, normal) in [
            ("/", "/"),
            ("/..", "/"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/a/", "/a/"),
            ("/.well-known/x", "/.well-known/x"),
            ("/...", "/..."), // what else it may be is looked at elsewhere
            ("/a%C0", "/a%C0"),
            ("/a%20b", "/a%20b"),
            ("/a%c3%a9", "/a%C3%A9"),
            ("/%252e%252e/", "/%252e%252e/"),
            ("/a;b=c", "/a;b=c"),
        ] {
            assert_eq!(normalize(path).unwrap(), normal, "{path}");
            assert_eq!(normalize(normal).unwrap(), normal, "a normal form is its own");
        }
    }

    #[test]
    fn what_servers_read_in_two_ways_is_refused() {
        for (path, error) in [
            ("/a%2fb", PathError::Ambiguous),
            ("/a%2Fb", PathError::Ambiguous),
            ("/a%5cb", PathError::Ambiguous),
            ("/a\\b", PathError::Ambiguous),
            ("/a%00", PathError::Ambiguous),
            ("/a%0a", PathError::Ambiguous),
            ("/a%09b", PathError::Ambiguous),
            ("/a%7F", PathError::Ambiguous),
            ("/a/%c0%ae%c0%ae/b", PathError::Ambiguous),
            ("/a%e0%80%afb", PathError::Ambiguous),
            ("/a%", PathError::Escape),
            ("/a%4", PathError::Escape),
            ("/a%zz", PathError::Escape),
            ("/a%+1", PathError::Escape),
            ("/é", PathError::Character),
            ("*", PathError::NotAbsolute),
            ("", PathError::NotAbsolute),
        ] {
            assert_eq!(normalize(path), Err(error), "{path}");
        }
    }
}
