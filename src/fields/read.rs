//! Heads as nearly everybody writes them (RFC 9112 §2 to §5), read in one go. What is written in any other way is left
//! to a reader that knows all ways, and says what is wrong.

use super::{ADDED, Fields, Line, bit, tag};

/// The characters of names (RFC 9110 §5.6.2) in lower case, with a mark on the underscore; all others are [`OTHER`].
/// The marks cost nothing: a name is looked at once, whatever is to be found out about it.
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

/// The mark of what is no character of a name.
const OTHER: u16 = 0x100;
/// The mark of an underscore.
const UNDERSCORE: u16 = 0x200;

/// What bytes are as a name in lower case, as HTTP/2 has them (RFC 9113 §8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LowerName {
    /// A name without underscores.
    Plain,
    /// A name with an underscore.
    Underscored,
    /// No name, or not in lower case.
    Malformed,
}

/// What these bytes are as a name in lower case.
pub fn lower_name(name: &[u8]) -> LowerName {
    match name.iter().fold(0, |marks, b| marks | (TOKEN[usize::from(*b)] ^ u16::from(*b))) {
        _ if name.is_empty() => LowerName::Malformed,
        0 => LowerName::Plain,
        UNDERSCORE => LowerName::Underscored,
        _ => LowerName::Malformed,
    }
}

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGHS: u64 = ONES << 7;

/// Where the first of some bytes stands. Eight are looked at together: `marks` sets the high bit of the first of them
/// among eight, the lowest byte first, and `is` tells one alone.
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

/// The high bit of the first byte that is zero, and of others behind it.
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// Where the first colon stands.
fn colon(text: &[u8]) -> Option<usize> {
    first(text, |word| zeros(word ^ (ONES * b':' as u64)), |b| b == b':')
}

/// Where the first control character stands, which in a head is the end of a line.
fn control(text: &[u8]) -> Option<usize> {
    let low = |word: u64| word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
    first(text, |word| low(word) | zeros(word ^ (ONES * 0x7f)), |b| b < 0x20 || b == 0x7f)
}

/// The parts of a request line: method, target, and whether the version is 1.0.
pub type RequestLine<'a> = (&'a [u8], &'a [u8], bool);

/// Reads the head of a request, if it is whole and of the usual form: the parts of its line, its fields and its
/// length.
pub fn request(read: &[u8], max_lines: usize) -> Option<(RequestLine<'_>, Fields, usize)> {
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

/// Reads the head of a response, if it is whole and of the usual form: its status, whether the version is 1.0, its
/// fields and its length.
pub fn response(read: &[u8], max_lines: usize) -> Option<(u16, bool, Fields, usize)> {
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

/// Reads the lines of a head whose first line ends at `first`, up to the empty one: its fields and its length.
fn fields(read: &[u8], first: usize, max_lines: usize) -> Option<(Fields, usize)> {
    let mut fields = Fields::recycled();
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
        // Not even a tab stands before the end of the line.
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

    fn told(fields: &Fields) -> Vec<(Vec<u8>, Vec<u8>)> {
        fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
    }

    fn wanted(lines: &[httparse::Header<'_>]) -> Vec<(Vec<u8>, Vec<u8>)> {
        lines.iter().map(|l| (l.name.to_ascii_lowercase().into_bytes(), l.value.to_vec())).collect()
    }

    /// What is read here is read by the other reader too, and as the same.
    fn agrees(read: &[u8]) {
        let mut lines = [httparse::EMPTY_HEADER; MAX];
        if let Some(((method, target, old), fields, length)) = request(read, MAX) {
            let mut other = httparse::Request::new(&mut lines);
            assert_eq!(other.parse(read), Ok(httparse::Status::Complete(length)), "{read:?}");
            assert_eq!(other.method.map(str::as_bytes), Some(method));
            assert_eq!(other.path.map(str::as_bytes), Some(target));
            assert_eq!(other.version, Some(u8::from(!old)));
            assert_eq!(told(&fields), wanted(other.headers), "{read:?}");
        }
        let mut lines = [httparse::EMPTY_HEADER; MAX];
        if let Some((status, old, fields, length)) = response(read, MAX) {
            let mut other = httparse::Response::new(&mut lines);
            assert_eq!(other.parse(read), Ok(httparse::Status::Complete(length)), "{read:?}");
            assert_eq!((other.code, other.version), (Some(status), Some(u8::from(!old))));
            assert_eq!(told(&fields), wanted(other.headers), "{read:?}");
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
        fn whatever_comes(read in pieces()) {
            agrees(&read);
        }

        /// A head of the usual form with one byte that is another.
        #[test]
        fn usual_but_for_one_byte(at in 0_usize..62, byte in any::<u8>(), response in any::<bool>()) {
            let line = if response { "HTTP/1.1 404 Not Found" } else { "GET /abc?d=e HTTP/1.1" };
            let mut read = format!("{line}\r\nHost: a.test\r\nX-Key:  b c\t\r\nEmpty:\r\n\r\nbody").into_bytes();
            agrees(&read);
            let at = at % read.len();
            read[at] = byte;
            agrees(&read);
        }
    }

    #[test]
    fn names_in_lower_case() {
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
    fn underscores_in_names_are_noted_and_no_others() {
        let noted = |line: &str| {
            let head = format!("GET /a_b HTTP/1.1\r\nHost: a_b\r\n{line}\r\n\r\n");
            request(head.as_bytes(), MAX).map(|(_, fields, _)| fields.has_underscores())
        };
        assert_eq!(noted("X-Key: a_b"), Some(false));
        assert_eq!(noted("X_Key: ab"), Some(true));
        assert_eq!(noted("_: ab\r\nX-Key: ab"), Some(true));
    }

    #[test]
    fn the_usual_form_is_read() {
        let head = b"GET /a?b HTTP/1.1\r\nHost: a.test\r\nAccept:*/*\r\nX-E:\r\n\r\n";
        let ((method, target, old), fields, length) = request(&[&head[..], b"more"].concat(), MAX)
            .map(|(line, f, l)| ((line.0.to_owned(), line.1.to_owned(), line.2), f, l))
            .unwrap();
        assert_eq!((&method[..], &target[..], old, length), (&b"GET"[..], &b"/a?b"[..], false, head.len()));
        assert_eq!(
            told(&fields),
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
