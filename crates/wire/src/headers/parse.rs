//! A fast parser for heads in the form that nearly all peers use (RFC 9112 §2 to §5). For every other head it returns
//! `None`; the caller then uses httparse, which accepts more forms and reports errors.

use super::line::{Line, bit, tag};
use super::{ADDED, Headers};

/// The characters of field names (RFC 9110 §5.6.2) in lower case, [`UNDERSCORE`] set for the underscore; [`OTHER`] for all
/// other bytes. One pass over a name converts and checks it.
static TOKEN: [u16; 256] = {
    let mut token = [OTHER; 256];
    let mut at = 0;
    while at < 128 {
        let b = at as u8;
        let other = b"!#$%&'*+-.^_`|~";
        let mut is = b.is_ascii_alphanumeric();
        let mut i = 0;
        while i < other.len() {
            is |= other[i] == b;
            i += 1;
        }
        if is {
            token[at] = b.to_ascii_lowercase() as u16;
        }
        at += 1;
    }
    token[b'_' as usize] |= UNDERSCORE;
    token
};

/// The mark of bytes that field names cannot contain.
const OTHER: u16 = 0x100;
/// The mark of an underscore.
const UNDERSCORE: u16 = 0x200;

/// The check of a field name that must be in lower case, as in HTTP/2 (RFC 9113 §8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LowerName {
    /// A valid name without underscores.
    Plain,
    /// A valid name with an underscore.
    Underscored,
    /// Not a field name, or not in lower case.
    Malformed,
}

/// Checks a field name that must be in lower case.
#[inline]
pub(crate) fn lower_name(name: &[u8]) -> LowerName {
    match name.iter().fold(0, |marks, b| marks | (TOKEN[usize::from(*b)] ^ u16::from(*b))) {
        _ if name.is_empty() => LowerName::Malformed,
        0 => LowerName::Plain,
        UNDERSCORE => LowerName::Underscored,
        _ => LowerName::Malformed,
    }
}

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGHS: u64 = ONES << 7;

/// The position of the first byte of some kind. Eight bytes are examined at once: `marks` sets the high bit of at least the
/// first matching byte of a word, lowest byte first; `is` tests a single byte.
#[inline(always)]
fn first(text: &[u8], marks: impl Fn(u64) -> u64, is: impl Fn(u8) -> bool) -> Option<usize> {
    let (words, rest) = text.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let marks = marks(u64::from_le_bytes(*word));
        if marks != 0 {
            return Some(8 * at + (marks.trailing_zeros() / 8) as usize);
        }
    }
    rest.iter().position(|b| is(*b)).map(|at| 8 * words.len() + at)
}

/// Sets the high bit of the first byte that is zero, and perhaps of later ones.
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// The position of the first colon.
fn colon(text: &[u8]) -> Option<usize> {
    first(text, |word| zeros(word ^ (ONES * b':' as u64)), |b| b == b':')
}

/// The position of the first control character, which in a valid head ends the line.
fn control(text: &[u8]) -> Option<usize> {
    let low = |word: u64| word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
    first(text, |word| low(word) | zeros(word ^ (ONES * 0x7f)), |b| b < 0x20 || b == 0x7f)
}

/// The parts of a request line: method, target, and whether the version is HTTP/1.0.
pub(crate) type RequestLine<'a> = (&'a [u8], &'a [u8], bool);

/// Parses the head of a request if it is complete and in the usual form. Returns the parts of its first line, its fields
/// and its length in bytes. At most `max_lines` fields are accepted.
pub(crate) fn request(read: &[u8], max_lines: usize) -> Option<(RequestLine<'_>, Headers, usize)> {
    let first = control(read)?;
    let line = &read[..first];
    let method = line.iter().position(|b| *b == b' ')?;
    let (method, rest) = (&line[..method], &line[method + 1..]);
    let (target, version) = rest.split_at_checked(rest.len().checked_sub(b" HTTP/1.1".len())?)?;
    let old = match version {
        b" HTTP/1.1" => false,
        b" HTTP/1.0" => true,
        _ => return None,
    };
    let is_method = !method.is_empty() && method.iter().all(|b| TOKEN[usize::from(*b)] & OTHER == 0);
    let is_target = !target.is_empty() && target.iter().fold(true, |good, b| good & matches!(b, 0x21..=0x7e));
    if !is_method || !is_target {
        return None;
    }
    let (fields, end) = fields(read, first, max_lines)?;
    Some(((method, target, old), fields, end))
}

/// Parses the head of a response if it is complete and in the usual form. Returns its status code, whether the version is
/// HTTP/1.0, its fields and its length in bytes. At most `max_lines` fields are accepted.
pub(crate) fn response(read: &[u8], max_lines: usize) -> Option<(u16, bool, Headers, usize)> {
    let first = control(read)?;
    let (version, rest) = read[..first].split_at_checked(b"HTTP/1.1 200".len())?;
    let old = match &version[..9] {
        b"HTTP/1.1 " => false,
        b"HTTP/1.0 " => true,
        _ => return None,
    };
    let digits = &version[9..];
    if !digits.iter().all(u8::is_ascii_digit) || !(rest.is_empty() || rest[0] == b' ') {
        return None;
    }
    if !rest.iter().fold(true, |good, b| good & matches!(b, 0x20..=0x7e)) {
        return None;
    }
    let status = digits.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
    let (fields, end) = fields(read, first, max_lines)?;
    Some((status, old, fields, end))
}

/// Parses the fields of a head whose first line ends at `first`, up to the empty line. Returns them and the length of the
/// head.
fn fields(read: &[u8], first: usize, max_lines: usize) -> Option<(Headers, usize)> {
    let mut fields = Headers::recycled();
    let (mut line_end, mut lines) = (first, 0);
    let end = loop {
        if read.get(line_end..line_end + 2) != Some(b"\r\n") {
            return None;
        }
        let name = line_end + 2;
        if read.get(name) == Some(&b'\r') {
            break if read.get(name + 1) == Some(&b'\n') { name + 2 } else { return None };
        }
        lines += 1;
        let mark = name + colon(read.get(name..)?)?;
        // A tab within a value counts as a control character too and is left to httparse.
        line_end = mark + control(&read[mark..])?;
        if lines > max_lines {
            return None;
        }
        let behind = &read[mark + 1..line_end];
        let (value, whole) = match behind {
            [b' ', first, .., last] if *first != b' ' && *last != b' ' => (mark + 2..line_end, true),
            _ => {
                let from = mark + 1 + behind.len() - behind.trim_ascii_start().len();
                (from..from + behind.trim_ascii().len(), false)
            }
        };
        fields.lines.push(Line::at((name, mark), (value.start, value.end), whole)?);
    };
    let head = &read[..end];
    fields.text.reserve(end + ADDED);
    fields.text.extend_from_slice(head);
    let mut all = 0;
    for line in &mut fields.lines {
        let name = &mut fields.text[line.name as usize..][..usize::from(line.name_length)];
        for b in &mut *name {
            let token = TOKEN[usize::from(*b)];
            *b = token as u8;
            all |= token;
        }
        if name.is_empty() || all & OTHER != 0 {
            return None;
        }
        line.tag = tag(name);
        fields.seen |= bit(line.tag);
    }
    fields.underscored = all & UNDERSCORE != 0;
    Some((fields, end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 64;

    fn pairs(fields: &Headers) -> Vec<(Vec<u8>, Vec<u8>)> {
        fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
    }

    fn wanted(lines: &[httparse::Header<'_>]) -> Vec<(Vec<u8>, Vec<u8>)> {
        lines.iter().map(|l| (l.name.to_ascii_lowercase().into_bytes(), l.value.to_vec())).collect()
    }

    /// What this parser accepts, httparse accepts with the same meaning.
    fn agrees(read: &[u8]) {
        let mut lines = [httparse::EMPTY_HEADER; MAX];
        if let Some(((method, target, old), fields, length)) = request(read, MAX) {
            let mut other = httparse::Request::new(&mut lines);
            assert_eq!(other.parse(read), Ok(httparse::Status::Complete(length)), "{read:?}");
            assert_eq!(other.method.map(str::as_bytes), Some(method));
            assert_eq!(other.path.map(str::as_bytes), Some(target));
            assert_eq!(other.version, Some(u8::from(!old)));
            assert_eq!(pairs(&fields), wanted(other.headers), "{read:?}");
        }
        let mut lines = [httparse::EMPTY_HEADER; MAX];
        if let Some((status, old, fields, length)) = response(read, MAX) {
            let mut other = httparse::Response::new(&mut lines);
            assert_eq!(other.parse(read), Ok(httparse::Status::Complete(length)), "{read:?}");
            assert_eq!((other.code, other.version), (Some(status), Some(u8::from(!old))));
            assert_eq!(pairs(&fields), wanted(other.headers), "{read:?}");
        }
    }

    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => prop::sample::select(vec![
                "GET / HTTP/1.1\r\n", "POST /a?b HTTP/1.0\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.0 404\r\n", "Host: a\r\n",
                "X-Key:b\r\n", "x:\t c \r\n", "\r\n", "\r\n\r\n", "a: b", ": ", "\n", "\r", " ", "\t", "x", ":", "\0", "\x7f", "A b: c\r\n",
                " folded\r\n", "Empty:\r\n", "e: \r\n", "HTTP/1.1", "HTTP/1.1 20", "GET", "#",
            ]).prop_map(|text| text.as_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..4),
        ];
        prop::collection::vec(piece, 1..10).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn any_input_agrees_with_httparse(read in pieces()) {
            agrees(&read);
        }

        /// A head in the usual form in which one byte is replaced.
        #[test]
        fn one_replaced_byte_agrees_with_httparse(at in 0_usize..62, byte in any::<u8>(), response in any::<bool>()) {
            let line = if response { "HTTP/1.1 404 Not Found" } else { "GET /abc?d=e HTTP/1.1" };
            let mut read = format!("{line}\r\nHost: a.test\r\nX-Key:  b c\t\r\nEmpty:\r\n\r\nbody").into_bytes();
            agrees(&read);
            let at = at % read.len();
            read[at] = byte;
            agrees(&read);
        }
    }

    #[test]
    fn lower_names_are_classified() {
        for byte in 0..=u8::MAX {
            let is_one =
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
            let wanted = match byte {
                b'_' => LowerName::Underscored,
                _ if is_one => LowerName::Plain,
                _ => LowerName::Malformed,
            };
            assert_eq!(lower_name(&[b'x', byte]), wanted, "{byte:#x}");
            assert_eq!(lower_name(&[byte, b'_', b'X']), LowerName::Malformed, "{byte:#x}");
        }
        assert_eq!(lower_name(b""), LowerName::Malformed);
    }

    #[test]
    fn underscores_are_recorded_in_names_only() {
        let noted = |line: &str| {
            let head = format!("GET /a_b HTTP/1.1\r\nHost: a_b\r\n{line}\r\n\r\n");
            request(head.as_bytes(), MAX).map(|(_, fields, _)| fields.has_underscores())
        };
        assert_eq!(noted("X-Key: a_b"), Some(false));
        assert_eq!(noted("X_Key: ab"), Some(true));
        assert_eq!(noted("_: ab\r\nX-Key: ab"), Some(true));
    }

    #[test]
    fn the_usual_form_is_parsed() {
        let head = b"GET /a?b HTTP/1.1\r\nHost: a.test\r\nAccept:*/*\r\nX-E:\r\n\r\n";
        let ((method, target, old), fields, length) = request(&[&head[..], b"more"].concat(), MAX)
            .map(|(line, f, l)| ((line.0.to_owned(), line.1.to_owned(), line.2), f, l))
            .unwrap();
        assert_eq!((&method[..], &target[..], old, length), (&b"GET"[..], &b"/a?b"[..], false, head.len()));
        assert_eq!(
            pairs(&fields),
            wanted(&[
                httparse::Header { name: "host", value: b"a.test" },
                httparse::Header { name: "accept", value: b"*/*" },
                httparse::Header { name: "x-e", value: b"" },
            ])
        );
        assert!(request(head, 2).is_none(), "more lines than are taken");
        assert!(request(&head[..head.len() - 1], MAX).is_none(), "not whole");
        let head = b"HTTP/1.1 204 No Content\r\nA: b\r\n\r\n";
        assert!(response(head, MAX).is_some_and(|(status, old, fields, length)| {
            (status, old, fields.len(), length) == (204, false, 1, head.len())
        }));
    }
}
