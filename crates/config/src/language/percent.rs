//! Percent-encoding, and form-encoding undone.

use std::borrow::Cow;

/// Undoes percent-encoding, as in a path; invalid UTF-8 becomes replacement characters.
#[inline]
pub fn percent_decode(text: &str) -> String {
    String::from_utf8_lossy(&decode(text, false)).into_owned()
}

/// Undoes application/x-www-form-urlencoded.
#[inline]
pub fn form_decode(text: &str) -> Cow<'_, [u8]> {
    decode(text, true)
}

/// Undoes escapes, and plus signs in forms; an escape that is none stays as it is.
fn decode(text: &str, form: bool) -> Cow<'_, [u8]> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text.as_bytes());
    }
    let bytes = text.as_bytes();
    let hex = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) if form => out.push(b' '),
            (byte, ..) => out.push(byte),
        }
        at += 1;
    }
    Cow::Owned(out)
}
/// A text as a segment of a path or a value in a query: all but the unreserved characters of RFC 3986 in percent-encoding.
pub fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
