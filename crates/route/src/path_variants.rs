//! How lenient servers interpret a path: which paths are the same to them, and which lead elsewhere.
//!
//! The normal form decodes what all servers decode. Some servers go further: they ignore case, drop `;parameters` and dots and
//! spaces at the end of a segment, decode twice, or map full-width letters to ASCII. Such interpretations are computed here to
//! find limits and keys, never to forward a request.

use std::borrow::Cow;

/// The most rounds of percent-decoding; a path with more is suspicious.
const MAX_ROUNDS: usize = 4;

/// Whether all servers interpret a path alike: its segments consist of lower case letters and digits, with `-` and `_` between
/// them. Such a path is in normal form. Nearly all paths are like this and need no further analysis.
pub fn is_plain(path: &str) -> bool {
    let Some((b'/', below)) = path.as_bytes().split_first() else { return false };
    let mut last = Plain::Slash;
    for byte in below {
        let plain = PLAIN[usize::from(*byte)];
        match (plain, last) {
            (Plain::Name, _) => {}
            (Plain::Mark, Plain::Name | Plain::Mark) => {}
            (Plain::Slash, Plain::Name) => {}
            _ => return false,
        }
        last = plain;
    }
    last == Plain::Name || below.is_empty()
}

/// The class of a byte in a plain path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plain {
    Name,
    /// Allowed only within a name.
    Mark,
    Slash,
    Not,
}

const PLAIN: [Plain; 256] = {
    let mut bytes = [Plain::Not; 256];
    let mut at = 0;
    while at < 256 {
        bytes[at] = match at as u8 {
            b'a'..=b'z' | b'0'..=b'9' => Plain::Name,
            b'-' | b'_' => Plain::Mark,
            b'/' => Plain::Slash,
            _ => Plain::Not,
        };
        at += 1;
    }
    bytes
};

/// Whether some servers would resolve a path, as it was sent, to another one: a doubly escaped slash, `..;`, full-width dots, a
/// segment of blanks or parameters only.
pub fn is_doubtful(path: &str) -> bool {
    without_encoded_slashes(path).split('/').any(|segment| !segment.is_empty() && !is_certain(segment))
}

fn is_certain(segment: &str) -> bool {
    if segment.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) {
        return true;
    }
    if matches!(unescape(segment.as_bytes()).as_deref().unwrap_or(segment.as_bytes()), b"." | b"..") {
        return true; // all servers resolve these, and so does the normal form
    }
    let Some(decoded) = decode(segment) else { return false };
    let stem = decoded.split([';', '?', '#']).next().unwrap_or_default().trim();
    !stem.is_empty() && (!stem.contains('.') || stem.contains(char::is_alphanumeric))
}

/// The common form of all spellings of a path or a segment, for the keys of limits. Paths with different meanings, such as `/a.b`
/// and `/a`, stay different. Idempotent.
pub fn folded(path: &str) -> Cow<'_, str> {
    let bytes = path.as_bytes();
    let is_end = |at: usize| bytes.get(at + 1).is_none_or(|next| *next == b'/');
    let folds = |(at, byte): (usize, &u8)| match byte {
        b'A'..=b'Z' | b'%' | b';' | b' ' => true,
        b'.' => is_end(at),
        b'/' => at > 0 && is_end(at),
        byte => !byte.is_ascii(),
    };
    if !bytes.iter().enumerate().any(folds) {
        return Cow::Borrowed(path);
    }
    let decoded = without_encoded_slashes(path);
    let merges = matches!(decoded, Cow::Owned(_));
    let mut out = String::with_capacity(path.len());
    for (index, segment) in decoded.split('/').enumerate() {
        if merges && index > 0 && segment.is_empty() {
            continue; // servers that decode a slash also merge it with the next one
        }
        if index > 0 {
            out.push('/');
        }
        let Some(decoded) = decode(segment) else {
            out.push_str(&segment.to_ascii_lowercase()); // a route with `exact_spelling` accepts such paths
            continue;
        };
        let stem = decoded.split(';').next().unwrap_or_default().trim_end_matches(['.', ' ']);
        out.push_str(if stem.is_empty() { &decoded } else { stem });
    }
    let kept = out.trim_end_matches('/').len().max(usize::from(out.starts_with('/')));
    out.truncate(kept);
    Cow::Owned(out)
}

/// A segment without everything that lenient servers drop: all before its first letter or digit, `;parameters`, and all after
/// its last letter or digit. `None` if nothing is left.
pub(super) fn core(segment: &str) -> Option<Cow<'_, str>> {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = segment.as_bytes().first().copied().zip(segment.as_bytes().last().copied());
    let inner = |b: u8| is_plain(b) || matches!(b, b'-' | b'_' | b'.' | b':' | b'@' | b'+' | b',' | b'=');
    if ends.is_some_and(|(first, last)| is_plain(first) && is_plain(last)) && segment.bytes().all(inner) {
        return Some(Cow::Borrowed(segment));
    }
    let decoded = decode(segment).unwrap_or_else(|| segment.to_ascii_lowercase());
    let begins = decoded.trim_start_matches(|c: char| !c.is_alphanumeric());
    let stem = begins.split([';', '?', '#', '&']).next().unwrap_or_default();
    let stem = stem.trim_end_matches(|c: char| !c.is_alphanumeric());
    (!stem.is_empty()).then(|| Cow::Owned(stem.to_owned()))
}

/// A segment as the most lenient server interprets it; `None` if the result has a slash or a control character, or if the
/// escapes are overlong UTF-8 or nested too deeply.
pub(super) fn decode(segment: &str) -> Option<String> {
    let mut decoded = segment.to_ascii_lowercase();
    for _ in 0..=MAX_ROUNDS {
        let next = decode_once(&decoded)?;
        if next == decoded {
            let is_certain = |c: char| !matches!(c, '/' | '\\') && !c.is_control();
            return decoded.chars().all(is_certain).then_some(decoded);
        }
        decoded = next.into_owned();
    }
    None
}

fn decode_once(text: &str) -> Option<Cow<'_, str>> {
    let unescaped = unescape(text.as_bytes());
    if unescaped.is_none() && text.is_ascii() {
        return Some(match text.bytes().any(|b| b.is_ascii_uppercase()) {
            true => Cow::Owned(text.to_ascii_lowercase()),
            false => Cow::Borrowed(text),
        });
    }
    let bytes = unescaped.as_deref().unwrap_or(text.as_bytes());
    if sluicegate_config::is_overlong(bytes) {
        return None;
    }
    Some(Cow::Owned(
        String::from_utf8_lossy(bytes).chars().filter_map(ascii_like).flat_map(fold_case).collect(),
    ))
}

/// One round of percent-decoding; `None` if there are no escapes.
fn unescape(bytes: &[u8]) -> Option<Vec<u8>> {
    let hex = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
    let escape = |at: usize| Some((hex(at + 1)? * 16 + hex(at + 2)?) as u8).filter(|_| bytes[at] == b'%');
    (0..bytes.len()).find(|at| escape(*at).is_some())?;
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let decoded = escape(at);
        out.push(decoded.unwrap_or(bytes[at]));
        at += if decoded.is_some() { 3 } else { 1 };
    }
    Some(out)
}

/// The ASCII character to which compatibility normalization or best-fit mapping converts a character; `None` for invisible
/// characters, which are dropped.
fn ascii_like(c: char) -> Option<char> {
    Some(match c {
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' => return None,
        '\u{ff01}'..='\u{ff5e}' => char::from((c as u32 - 0xfee0) as u8),
        '\u{2044}' | '\u{2215}' | '\u{29f8}' => '/',
        '\u{2216}' | '\u{29f5}' | '\u{29f9}' | '\u{fe68}' => '\\',
        '\u{2024}' | '\u{fe52}' | '\u{3002}' | '\u{ff61}' => '.',
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{3000}' => ' ',
        '\u{130}' => 'i', // whose lower case is two characters
        c => c,
    })
}

/// Lower case by way of upper case, as case-insensitive servers compare: the long s and the Kelvin sign are letters.
fn fold_case(c: char) -> impl Iterator<Item = char> {
    c.to_uppercase().flat_map(char::to_lowercase)
}

/// The path with slashes in place of encoded ones.
fn without_encoded_slashes(path: &str) -> Cow<'_, str> {
    match path.contains("%2F") || path.contains("%2f") {
        true => Cow::Owned(path.replace("%2F", "/").replace("%2f", "/")),
        false => Cow::Borrowed(path),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_paths_have_one_reading() {
        for path in ["/", "/v1", "/v1/items/7", "/a-b/c_d", "/x/0"] {
            assert!(is_plain(path) && !is_doubtful(path), "{path}");
            assert_eq!(folded(path), path);
        }
        for path in
            ["", "x", "/v1/", "//v1", "/V1", "/a.b", "/-/x", "/x-", "/_x", "/a%20b", "/a;b", "/a b", "/é"]
        {
            assert!(!is_plain(path), "{path}");
        }
    }

    proptest! {
        #[test]
        fn plain_paths_are_those_of_plain_segments(path in "[a0Z._/-]{0,9}") {
            let is_mark = |c: char| c == '-' || c == '_';
            let is_name = |segment: &str| {
                !segment.is_empty()
                    && !segment.starts_with(is_mark)
                    && !segment.ends_with(is_mark)
                    && segment.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || is_mark(c))
            };
            let plain = path == "/" || path.strip_prefix('/').is_some_and(|below| below.split('/').all(is_name));
            prop_assert_eq!(is_plain(&path), plain, "{}", path);
        }
    }

    #[test]
    fn paths_that_lead_elsewhere_are_doubtful() {
        for path in [
            "/a/..;/b",
            "/..;",
            "/.;/b",
            "/a/%2e%2e;x/b",
            "/a/..%3b/b",
            "/a/%252e%252e/b",
            "/a/%252e/b",
            "/a%252fb",
            "/a%255cb",
            "/a%25252fb",
            "/a%2500",
            "/a/%250a",
            "/;/a",
            "/;x/a",
            "/a/%20/b",
            "/a/.../b",
            "/a/..%20/b",
            "/a/.%20/b",
            "/a/%EF%BC%8E%EF%BC%8E/b",
            "/a%EF%BC%8Fb",
            "/a%E2%88%95b",
            "/a%25c0%25afb",
            "/a/..%ff/b",
            "/a/..*/b",
            "/%3f/a",
            "/%23x/a",
            "/a/%252525252525252e",
        ] {
            assert!(is_doubtful(path), "{path}");
        }
        for path in [
            "/a/../b",
            "/a/%2e%2E/b",
            "/a/./b",
            "/a.b",
            "/a..b",
            "/.env",
            "/a;b=c",
            "/a%20b",
            "/C%23",
            "/100%25",
            "/what%3F",
            "/a%e4b",
            "/%C3%A9t%C3%A9",
            "/-/x",
            "/~user",
            "/*",
            "/a:b",
            "/@me",
            "/items(7)",
            "/%E6%97%A5",
        ] {
            assert!(!is_doubtful(path), "{path}");
        }
    }

    #[test]
    fn keys_have_one_form_for_all_spellings() {
        for (path, form) in [
            ("/V1/Items", "/v1/items"),
            ("/v1/items/", "/v1/items"),
            ("/v1/items;x=1", "/v1/items"),
            ("/v1;a/items;b", "/v1/items"),
            ("/v1/items.", "/v1/items"),
            ("/v1/items%20", "/v1/items"),
            ("/v1/%2569tems", "/v1/items"),
            ("/v1/%EF%BD%89tem%C5%BF", "/v1/items"),
            ("/", "/"),
            ("/users/john.doe", "/users/john.doe"),
            ("/p/A%2Fb%2F%2Fc", "/p/a/b/c"),
            ("group%2Fproject", "group/project"),
            ("/a%20b", "/a b"),
            ("/;x", "/;x"),
            ("John", "john"),
            ("", ""),
        ] {
            assert_eq!(folded(path), form, "{path}");
            assert_eq!(folded(form), form, "{path}");
        }
    }

    #[test]
    fn a_segment_has_a_core() {
        for (segment, left) in [
            ("secret", Some("secret")),
            ("Secret~", Some("secret")),
            ("*secret", Some("secret")),
            ("%20secret%20.", Some("secret")),
            ("secret;x", Some("secret")),
            ("secret%3fx", Some("secret")),
            ("secret%2523x", Some("secret")),
            ("secret.json", Some("secret.json")),
            ("items:batch", Some("items:batch")),
            ("secret%C2%B0", Some("secret")),
            ("..secret", Some("secret")),
            ("-", None),
            ("%FF", None),
        ] {
            assert_eq!(core(segment).as_deref(), left, "{segment}");
        }
    }
}
