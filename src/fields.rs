//! The fields of a message's head (RFC 9110 §5), as they were read and what was added to them: one piece of text, and
//! where in it each line has its name and its value.
//!
//! A head has a dozen lines, each is looked at a few times and written once. So nothing is hashed and nothing is
//! counted in references; a name is found by looking at all of them, by its length and first letter first.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Lines for which there is room from the beginning: what clients send and what a gateway adds.
const LINES: usize = 24;
/// Bytes for what a gateway adds to a head.
const ADDED: usize = 320;

/// The fields of a head, in order. Names are in lower case.
#[derive(Clone, Default)]
pub struct Fields {
    text: Vec<u8>,
    lines: Vec<Line>,
}

/// Where one line is in the text.
#[derive(Clone, Copy)]
struct Line {
    name: u32,
    value: u32,
    value_length: u32,
    name_length: u16,
    tag: u16,
}

/// What two names have in common that are the same, and few others.
const fn tag(name: &[u8]) -> u16 {
    match name {
        [] => 0,
        [first, ..] => (name.len() as u16) << 8 | *first as u16,
    }
}

impl Line {
    fn name(self, text: &[u8]) -> &[u8] {
        &text[self.name as usize..][..usize::from(self.name_length)]
    }

    fn value(self, text: &[u8]) -> &[u8] {
        &text[self.value as usize..][..self.value_length as usize]
    }

    fn is(self, text: &[u8], tag: u16, name: &[u8]) -> bool {
        self.tag == tag && self.name(text) == name
    }
}

/// That a head is longer than can be told apart: four gigabytes, or a name of 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Fields {
    /// No fields.
    pub const fn new() -> Self {
        Self { text: Vec::new(), lines: Vec::new() }
    }

    /// The text of a head whose lines are [told](Self::tell) next.
    pub fn of_head(head: &[u8]) -> Self {
        let mut text = Vec::with_capacity(head.len() + ADDED);
        text.extend_from_slice(head);
        Self { text, lines: Vec::with_capacity(LINES) }
    }

    /// Tells of a line in the text of the head: where its name and its value are. The name becomes lower case.
    ///
    /// # Errors
    /// When it is too long.
    ///
    /// # Panics
    /// When it is not in the text.
    pub fn tell(&mut self, name: (usize, usize), value: (usize, usize)) -> Result<(), TooLong> {
        let text = &mut self.text[name.0..name.0 + name.1];
        text.make_ascii_lowercase();
        let line = Line {
            tag: tag(text),
            name: u32::try_from(name.0).map_err(|_| TooLong)?,
            value: u32::try_from(value.0).map_err(|_| TooLong)?,
            value_length: u32::try_from(value.1).map_err(|_| TooLong)?,
            name_length: u16::try_from(name.1).map_err(|_| TooLong)?,
        };
        self.lines.push(line);
        Ok(())
    }

    /// The lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Names and values of all lines.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> + Clone {
        self.lines.iter().map(|line| (line.name(&self.text), line.value(&self.text)))
    }

    /// The names of all lines.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.lines.iter().map(|line| line.name(&self.text))
    }

    /// The first value under a name, which is in lower case.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        let (name, tag) = (name.as_ref(), tag(name.as_ref()));
        self.lines.iter().find(|line| line.is(&self.text, tag, name)).map(|line| line.value(&self.text))
    }

    /// All values under a name, which is in lower case.
    pub fn get_all<N: AsRef<[u8]>>(&self, name: N) -> Values<'_, N> {
        Values { text: &self.text, lines: self.lines.iter(), tag: tag(name.as_ref()), name }
    }

    /// The value under a name, which is in lower case, if there is exactly one.
    pub fn only(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        let mut values = self.get_all(name);
        values.next().filter(|_| values.next().is_none())
    }

    /// Whether there is a line with this name, which is in lower case.
    pub fn contains_key(&self, name: impl AsRef<[u8]>) -> bool {
        self.get(name).is_some()
    }

    /// Adds a line. A value that no header can have is left empty: nothing breaks a line.
    pub fn append(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.append_with(name, |text| text.extend_from_slice(value.as_ref()));
    }

    /// Adds a line whose value is what `write` writes at the end of the text. One that no header can have is left
    /// empty.
    pub fn append_with(&mut self, name: impl AsRef<[u8]>, write: impl FnOnce(&mut Vec<u8>)) {
        let name = name.as_ref();
        let at = self.text.len();
        self.text.extend_from_slice(name);
        self.text[at..].make_ascii_lowercase();
        let value = self.put(write);
        let line = Line {
            name: place(at),
            value: place(value),
            value_length: place(self.text.len() - value),
            name_length: u16::try_from(name.len()).unwrap_or(u16::MAX),
            tag: tag(&self.text[at..value]),
        };
        self.lines.push(line);
    }

    /// Adds a line with the value of another, which is found by its name in lower case. Without that one nothing is
    /// added.
    pub fn append_copy(&mut self, name: impl AsRef<[u8]>, of: impl AsRef<[u8]>) {
        let (of, tag) = (of.as_ref(), tag(of.as_ref()));
        let Some(line) = self.lines.iter().find(|line| line.is(&self.text, tag, of)).copied() else { return };
        let from = line.value as usize;
        self.append_with(name, |text| text.extend_from_within(from..from + line.value_length as usize));
    }

    /// Puts one line in place of all with its name, which is in lower case. A value that no header can have is left
    /// empty.
    pub fn insert(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.insert_with(name, |text| text.extend_from_slice(value.as_ref()));
    }

    /// Puts one line in place of all with its name, which is in lower case. Its value is what `write` writes at the
    /// end of the text; one that no header can have is left empty.
    pub fn insert_with(&mut self, name: impl AsRef<[u8]>, write: impl FnOnce(&mut Vec<u8>)) {
        let name = name.as_ref();
        let tag = tag(name);
        let Some(at) = self.lines.iter().position(|line| line.is(&self.text, tag, name)) else {
            return self.append_with(name, write);
        };
        let value = self.put(write);
        let Self { text, lines } = self;
        lines[at].value = place(value);
        lines[at].value_length = place(text.len() - value);
        if lines[at + 1..].iter().any(|line| line.is(text, tag, name)) {
            let mut seen = false;
            lines.retain(|line| !line.is(text, tag, name) || !std::mem::replace(&mut seen, true));
        }
    }

    /// Removes all lines with a name, which is in lower case. Whether there was one.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> bool {
        let (name, tag) = (name.as_ref(), tag(name.as_ref()));
        let before = self.lines.len();
        let Self { text, lines } = self;
        lines.retain(|line| !line.is(text, tag, name));
        lines.len() < before
    }

    /// Keeps the lines for whose names and values `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        let Self { text, lines } = self;
        lines.retain(|line| keep(line.name(text), line.value(text)));
    }

    /// Writes the lines as HTTP/1.1 has them.
    pub fn write(&self, out: &mut Vec<u8>) {
        for line in &self.lines {
            write_line(out, line.name(&self.text), line.value(&self.text));
        }
    }

    /// The bytes that [`Self::write`] writes.
    pub fn written(&self) -> usize {
        self.lines.iter().map(|line| usize::from(line.name_length) + line.value_length as usize + 4).sum()
    }

    /// Writes a value at the end of the text; where it begins.
    fn put(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let at = self.text.len();
        write(&mut self.text);
        debug_assert!(at <= self.text.len());
        if !is_value(&self.text[at..]) {
            self.text.truncate(at);
        }
        at
    }
}

/// The values of all lines with one name.
#[derive(Clone)]
pub struct Values<'a, N> {
    text: &'a [u8],
    lines: std::slice::Iter<'a, Line>,
    tag: u16,
    name: N,
}

impl<'a, N: AsRef<[u8]>> Iterator for Values<'a, N> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let Self { text, lines, tag, name } = self;
        lines.find(|line| line.is(text, *tag, name.as_ref())).map(|line| line.value(text))
    }
}

impl<N: AsRef<[u8]>> DoubleEndedIterator for Values<'_, N> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let Self { text, lines, tag, name } = self;
        lines.rfind(|line| line.is(text, *tag, name.as_ref())).map(|line| line.value(text))
    }
}

/// A place in the text. A gateway adds some kilobytes to a head whose own places are known to fit.
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Writes one line as HTTP/1.1 has it.
pub fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Whether these bytes can be the value of a header.
pub fn is_value(bytes: &[u8]) -> bool {
    // No early end: it is then looked at many bytes at once.
    bytes.iter().fold(true, |good, b| good & ((*b >= 0x20 && *b != 0x7f) | (*b == b'\t')))
}

/// A value as text: visible characters, blanks and tabs.
pub fn text(value: &[u8]) -> Option<&str> {
    let visible = value.iter().fold(true, |good, b| good & (matches!(b, 0x20..=0x7e) | (*b == b'\t')));
    std::str::from_utf8(value).ok().filter(|_| visible)
}

impl From<&HeaderMap> for Fields {
    fn from(map: &HeaderMap) -> Self {
        let length: usize = map.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        let mut fields = Self {
            text: Vec::with_capacity(length + ADDED),
            lines: Vec::with_capacity(map.len().max(LINES)),
        };
        for (name, value) in map {
            fields.append(name, value);
        }
        fields
    }
}

impl From<Fields> for HeaderMap {
    fn from(fields: Fields) -> Self {
        let mut map = Self::with_capacity(fields.lines.len());
        let text = Bytes::from(fields.text);
        for line in fields.lines {
            let value = line.value as usize..line.value as usize + line.value_length as usize;
            let name = HeaderName::from_bytes(line.name(&text));
            // Both were checked when they were written.
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_maybe_shared(text.slice(value))) {
                map.append(name, value);
            }
        }
        map
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for Fields {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(lines: I) -> Self {
        let mut fields = Self::new();
        for (name, value) in lines {
            fields.append(name, value);
        }
        fields
    }
}

/// Values may be secrets: only the names are shown.
impl std::fmt::Debug for Fields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names().map(String::from_utf8_lossy)).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(fields: &Fields) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        fields.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append(usize, String),
        Insert(usize, String),
        Remove(usize),
    }

    const NAMES: [&str; 6] = ["a", "b", "host", "hast", "x-forwarded-for", "x-forwarded-fur"];

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let name = 0..NAMES.len();
        let step = prop_oneof![
            (name.clone(), "[a-z ]{0,20}").prop_map(|(name, value)| Step::Append(name, value)),
            (name.clone(), "[a-z ]{0,20}").prop_map(|(name, value)| Step::Insert(name, value)),
            name.prop_map(Step::Remove),
        ];
        prop::collection::vec(step, 0..40)
    }

    proptest! {
        /// Whatever is done, the fields are what a plain list of lines would be.
        #[test]
        fn as_a_list(steps in steps()) {
            let mut fields = Fields::of_head(b"Host: x\r\n");
            fields.tell((0, 4), (6, 1)).unwrap();
            let mut list = vec![("host".to_owned(), "x".to_owned())];
            for step in steps {
                match step {
                    Step::Append(name, value) => {
                        fields.append(NAMES[name], &value);
                        list.push((NAMES[name].to_owned(), value));
                    }
                    Step::Insert(name, value) => {
                        fields.insert(NAMES[name], &value);
                        match list.iter().position(|(known, _)| known == NAMES[name]) {
                            Some(at) => {
                                list[at].1 = value;
                                let mut index = 0;
                                list.retain(|(known, _)| {
                                    index += 1;
                                    known != NAMES[name] || index == at + 1
                                });
                            }
                            None => list.push((NAMES[name].to_owned(), value)),
                        }
                    }
                    Step::Remove(name) => {
                        let there = list.iter().any(|(known, _)| known == NAMES[name]);
                        list.retain(|(known, _)| known != NAMES[name]);
                        prop_assert_eq!(fields.remove(NAMES[name]), there);
                    }
                }
                prop_assert_eq!(lines(&fields), list.clone());
                for name in NAMES {
                    let all: Vec<&[u8]> = fields.get_all(name).collect();
                    let wanted = list.iter().filter(|(known, _)| known == name);
                    let wanted: Vec<&[u8]> = wanted.map(|(_, value)| value.as_bytes()).collect();
                    prop_assert_eq!(fields.get(name), wanted.first().copied());
                    prop_assert_eq!(fields.only(name).is_some(), wanted.len() == 1);
                    prop_assert_eq!(all, wanted);
                }
            }
            let map = HeaderMap::from(fields.clone());
            prop_assert_eq!(map.len(), fields.len());
            let mut out = Vec::new();
            fields.write(&mut out);
            prop_assert_eq!(out.len(), fields.written());
        }
    }

    #[test]
    fn nothing_breaks_a_line() {
        let mut fields = Fields::new();
        fields.insert("a", "x\r\nb: y");
        fields.append("B", "\0");
        fields.append("c", "ä\tb");
        assert_eq!(lines(&fields), [("a", ""), ("b", ""), ("c", "ä\tb")].map(|(n, v)| (n.into(), v.into())));
    }

    #[test]
    fn values_as_text() {
        assert_eq!(text(b"a b\t~"), Some("a b\t~"));
        for bad in [&b"\xc3\xa4"[..], b"a\x7f", b"\x00"] {
            assert_eq!(text(bad), None);
        }
    }
}
