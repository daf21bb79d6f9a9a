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
    /// An encoded slash, which some servers decode: `encoded_slash` of a route says what it means.
    #[error("the path has an encoded slash (%2F), which its route does not accept")]
    EncodedSlash,
    /// A backslash, plain or encoded, which some servers take for a slash.
    #[error("the path has a backslash, which some servers take for a slash")]
    Backslash,
    /// A control character, plain or encoded: servers cut or drop it.
    #[error("the path has a control character")]
    Control,
    /// UTF-8 in more bytes than it needs, or nested escapes: servers disagree on what it means.
    #[error("the path is one that servers read in different ways")]
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
    if decoded.contains(ENCODED_SLASH) {
        return Err(PathError::EncodedSlash);
    }
    Ok(Cow::Owned(resolve(&decoded)))
}

/// The two normal forms of an absolute path with encoded slashes: with `%2F` as a part of its segment, and with slashes instead.
///
/// # Errors
/// When servers could read the path in more ways than these two: if an encoded slash is beside a dot segment, too.
pub fn normalize_encoded_slashes(path: &str) -> Result<(String, String), PathError> {
    let decoded = decode(path.as_bytes())?;
    let is_joined_to_dots = |segment: &str| {
        let mut pieces = segment.split(ENCODED_SLASH).peekable();
        segment.contains(ENCODED_SLASH) && pieces.any(|piece| matches!(piece, "." | ".."))
    };
    if decoded.split('/').any(is_joined_to_dots) {
        return Err(PathError::Ambiguous);
    }
    Ok((resolve(&decoded), resolve(&decoded.replace(ENCODED_SLASH, "/"))))
}

/// An encoded slash in normal form.
pub const ENCODED_SLASH: &str = "%2F";

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

/// Decodes what is unreserved, and writes the other escapes in upper case.
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
                    b'\\' => return Err(PathError::Backslash),
                    ..=0x1f | 0x7f => return Err(PathError::Control),
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
            b'\\' => return Err(PathError::Backslash),
            0 => return Err(PathError::Control),
            0x21..=0x7e => out.push(byte.into()),
            _ => return Err(PathError::Character),
        }
    }
    if has_overlong(&out) { Err(PathError::Ambiguous) } else { Ok(out) }
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
    fn encoded_slashes_have_two_forms() {
        for (path, kept, slashes) in [
            ("/p/a%2fb", "/p/a%2Fb", "/p/a/b"),
            ("//p/./%61%2Fb/", "/p/a%2Fb/", "/p/a/b/"),
            ("/queues/%2F/x", "/queues/%2F/x", "/queues/x"),
            ("/a%2F%2fb", "/a%2F%2Fb", "/a/b"),
        ] {
            assert_eq!(normalize_encoded_slashes(path), Ok((kept.to_owned(), slashes.to_owned())), "{path}");
        }
        for path in ["/a%2F..", "/a%2f%2e%2E%2fb", "/..%2Fb", "/a/.%2Fb", "/a%2F%c0%afb"] {
            assert_eq!(normalize_encoded_slashes(path), Err(PathError::Ambiguous), "{path}");
        }
        assert_eq!(normalize_encoded_slashes("/a%2Fb%5c"), Err(PathError::Backslash));
    }

    #[test]
    fn what_servers_read_in_two_ways_is_refused() {
        for (path, error) in [
            ("/a%2fb", PathError::EncodedSlash),
            ("/a%2Fb", PathError::EncodedSlash),
            ("/a%5cb", PathError::Backslash),
            ("/a\\b", PathError::Backslash),
            ("/a%00", PathError::Control),
            ("/a%0a", PathError::Control),
            ("/a%09b", PathError::Control),
            ("/a%7F", PathError::Control),
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
