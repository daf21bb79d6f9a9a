//! Pieces of lines: quoted texts, numbers, addresses.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::line_error::LineError;

/// A field of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub(super) text: &'a str,
    /// Whether it stands in double quotes.
    pub(super) quoted: bool,
}

/// The fields of a line, which are divided by blanks; those in double quotes, brackets or braces may have some inside.
pub(super) fn fields(line: &str) -> impl Iterator<Item = Field<'_>> {
    let mut rest = line;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([' ', '\t']);
        let first = rest.chars().next()?;
        let close = match first {
            '"' => {
                let (text, behind) = quoted(rest).unwrap_or((&rest[1..], ""));
                rest = behind;
                return Some(Field { text, quoted: true });
            }
            '[' => Some(']'),
            '{' => Some('}'),
            _ => None,
        };
        let end = match close.and_then(|close| rest.find(close)) {
            Some(end) => end + 1,
            None => rest.find([' ', '\t']).unwrap_or(rest.len()),
        };
        let (text, behind) = rest.split_at(end);
        rest = behind;
        Some(Field { text, quoted: false })
    })
}

/// The first text in double quotes, and the rest after it; `\"` does not end a text.
pub(super) fn quoted(text: &str) -> Option<(&str, &str)> {
    let inner = &text[text.find('"')? + 1..];
    let mut from = 0;
    loop {
        let end = from + inner[from..].find('"')?;
        let escapes = inner[..end].bytes().rev().take_while(|byte| *byte == b'\\').count();
        if escapes.is_multiple_of(2) {
            return Some((&inner[..end], &inner[end + 1..]));
        }
        from = end + 1;
    }
}

/// A text without the escapes of quoted values: `\"`, `\\` and `\x22`. If the result is not UTF-8, the text is
/// returned unchanged.
pub(super) fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        let hex = |at: usize| behind.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match (byte, behind.first(), hex(1).zip(hex(2))) {
            (b'\\', Some(b'x'), Some((high, low))) => {
                out.push((high * 16 + low) as u8);
                rest = &behind[3..];
            }
            (b'\\', Some(quoted @ (b'"' | b'\\')), _) => {
                out.push(*quoted);
                rest = &behind[1..];
            }
            _ => out.push(*byte),
        }
    }
    String::from_utf8(out).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Takes a number from the start of the text, in quotes or not, or the `-` of a missing number. A `-` in quotes is not
/// taken, because it is a header.
pub(super) fn leading_number<'a>(text: &mut &'a str) -> Option<&'a str> {
    let start = text.trim_start();
    let (word, behind) = start.split_at(start.find(char::is_whitespace).unwrap_or(start.len()));
    let digits = word.strip_prefix('"').and_then(|word| word.strip_suffix('"')).unwrap_or(word);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    (is_number || word == "-").then(|| {
        *text = behind;
        digits
    })
}

/// `ADDRESS`, `IPV4:PORT`, `[IPV6]` or `[IPV6]:PORT`.
pub(super) fn address(text: &str) -> Result<IpAddr, LineError> {
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    let in_brackets =
        || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(|v6: Ipv6Addr| v6.into());
    // Some write the port of an IPv6 address behind it, without brackets.
    let before_port = || text.rsplit_once(':')?.0.parse().ok();
    let address = text.parse().ok().or_else(with_port).or_else(in_brackets);
    let address = address.or_else(|| before_port().filter(IpAddr::is_ipv6));
    address.ok_or_else(|| LineError(format!("`{text}` is not an address")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_have_ports_and_brackets() {
        for (text, read) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("192.0.2.1:443", Some("192.0.2.1")),
            ("[2001:db8::1]:443", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("192.0.2.1:99999", None),
            ("[192.0.2.1]", None),
            ("[::1", None),
            ("localhost", None),
        ] {
            assert_eq!(address(text).ok().map(|address| address.to_string()).as_deref(), read, "{text}");
        }
    }

    #[test]
    fn fields_may_be_quoted_or_in_brackets() {
        let texts: Vec<_> = fields(r#"12 0.5 [a b] [] "c \" d" {x|y z} e"#).map(|field| field.text).collect();
        assert_eq!(texts, ["12", "0.5", "[a b]", "[]", "c \\\" d", "{x|y z}", "e"]);
        assert!(fields("\"open").eq([Field { text: "open", quoted: true }]));
    }
}
