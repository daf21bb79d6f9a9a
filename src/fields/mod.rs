//! The fields of a message's head (RFC 9110 §5), as they were read and what was added to them: one piece of text, and
//! where in it each line has its name and its value.
//!
//! A head has a dozen lines, each is looked at a few times and written once. So nothing is hashed and nothing is
//! counted in references; a name is found by looking at all of them, by its length and first letter first.

mod map;
pub mod read;

pub use self::map::Names;

use crate::respond::write_decimal;

/// Lines for which there is room from the beginning: what clients send and what a gateway adds.
const LINES: usize = 24;
/// Bytes for what a gateway adds to a head.
const ADDED: usize = 448;
/// Bytes for a value that is short, as most are.
const ROOM: usize = 60;

/// The fields of a head, in order. Names are in lower case.
#[derive(Clone, Default)]
pub struct Fields {
    text: Vec<u8>,
    lines: Vec<Line>,
    /// A bit for each tag that a line has or had: most names that are asked for are not there at all.
    seen: u64,
}

/// Where one line is in the text.
#[derive(Clone, Copy)]
struct Line {
    name: u32,
    value: u32,
    value_length: u32,
    name_length: u16,
    tag: u8,
    /// The text has it just as it is to be written: `name: value`, and the end of a line.
    whole: bool,
}

/// What two names have in common that are the same, and few others: by length and first letter.
const fn tag(name: &[u8]) -> u8 {
    match name {
        [] => 0,
        [first, ..] => (name.len() as u8).wrapping_mul(37).wrapping_add(*first),
    }
}

const fn bit(tag: u8) -> u64 {
    1 << (tag & 63)
}

impl Line {
    fn name(self, text: &[u8]) -> &[u8] {
        &text[self.name as usize..][..usize::from(self.name_length)]
    }

    fn value(self, text: &[u8]) -> &[u8] {
        &text[self.value as usize..][..self.value_length as usize]
    }

    fn is(self, text: &[u8], tag: u8, name: &[u8]) -> bool {
        self.tag == tag && self.name(text) == name
    }
}

/// That a head is longer than can be told apart: four gigabytes, or a name of 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Fields {
    /// No fields.
    pub const fn new() -> Self {
        Self { text: Vec::new(), lines: Vec::new(), seen: 0 }
    }

    /// No fields, and room for those of an answer.
    pub fn with_room() -> Self {
        Self { text: Vec::with_capacity(ADDED), lines: Vec::with_capacity(LINES), seen: 0 }
    }

    /// The text of a head whose lines are [told](Self::tell) next.
    pub fn of_head(head: &[u8]) -> Self {
        let mut text = Vec::with_capacity(head.len() + ADDED);
        text.extend_from_slice(head);
        Self { text, lines: Vec::with_capacity(LINES), seen: 0 }
    }

    /// Tells of a line in the text of the head: where its name and its value are. The name becomes lower case.
    ///
    /// # Errors
    /// When it is too long.
    ///
    /// # Panics
    /// When it is not in the text.
    pub fn tell(&mut self, name: (usize, usize), value: (usize, usize)) -> Result<(), TooLong> {
        self.text[name.0..name.1].make_ascii_lowercase();
        self.push(name, value, false).ok_or(TooLong)
    }

    /// Notes a line of the text; `None` if it is too long. It is `whole` if the text has it as it is to be written.
    fn push(&mut self, name: (usize, usize), value: (usize, usize), whole: bool) -> Option<()> {
        let tag = tag(&self.text[name.0..name.1]);
        if value.1 > u32::MAX as usize || name.1 - name.0 > usize::from(u16::MAX) {
            return None;
        }
        self.seen |= bit(tag);
        self.lines.push(Line {
            name: name.0 as u32,
            value: value.0 as u32,
            value_length: (value.1 - value.0) as u32,
            name_length: (name.1 - name.0) as u16,
            tag,
            whole,
        });
        Some(())
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
        let name = name.as_ref();
        self.find(tag(name), name).map(|at| self.lines[at].value(&self.text))
    }

    fn find(&self, tag: u8, name: &[u8]) -> Option<usize> {
        if self.seen & bit(tag) == 0 {
            return None;
        }
        self.lines.iter().position(|line| line.is(&self.text, tag, name))
    }

    /// All values under a name, which is in lower case.
    pub fn get_all<N: AsRef<[u8]>>(&self, name: N) -> Values<'_, N> {
        let tag = tag(name.as_ref());
        let lines = if self.seen & bit(tag) == 0 { &[] } else { &self.lines[..] };
        Values { text: &self.text, lines: lines.iter(), tag, name }
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

    /// Adds a line; its name is in lower case. A value that no header can have is left empty: nothing breaks a line.
    pub fn append(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        let value = if is_value(value) { value } else { b"" };
        self.add(name.as_ref(), |text| text.extend_from_slice(value));
    }

    /// Adds a line with a number; its name is in lower case.
    pub fn append_number(&mut self, name: impl AsRef<[u8]>, number: u64) {
        self.add(name.as_ref(), |text| write_decimal(text, number));
    }

    /// Adds a line whose value is what `write` writes at the end of the text; its name is in lower case. A value that
    /// no header can have is left empty.
    pub fn append_with(&mut self, name: impl AsRef<[u8]>, write: impl FnOnce(&mut Vec<u8>)) {
        self.add(name.as_ref(), |text| {
            let at = text.len();
            write(text);
            if !is_value(&text[at..]) {
                text.truncate(at);
            }
        });
    }

    /// Adds a line with the value of another, which is found by its name in lower case. Without that one nothing is
    /// added.
    pub fn append_copy(&mut self, name: impl AsRef<[u8]>, of: impl AsRef<[u8]>) {
        let of = of.as_ref();
        let Some(line) = self.find(tag(of), of).map(|at| self.lines[at]) else { return };
        let from = line.value as usize;
        self.add(name.as_ref(), |text| text.extend_from_within(from..from + line.value_length as usize));
    }

    /// Adds a line, whose value `write` writes as it may be.
    fn add(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        debug_assert!(!name.iter().any(u8::is_ascii_uppercase));
        let tag = tag(name);
        self.seen |= bit(tag);
        let Self { text, lines, .. } = self;
        text.reserve(name.len() + ROOM);
        let at = text.len();
        text.extend_from_slice(name);
        text.extend_from_slice(b": ");
        let value = text.len();
        write(text);
        let end = text.len();
        text.extend_from_slice(b"\r\n");
        lines.push(Line {
            name: narrow(at),
            value: narrow(value),
            value_length: narrow(end - value),
            name_length: u16::try_from(name.len()).unwrap_or(u16::MAX),
            tag,
            whole: true,
        });
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
        let there = self.find(tag(name), name);
        self.append_with(name, write);
        let Some((at, line)) = there.and_then(|at| Some((at, self.lines.pop()?))) else { return };
        self.lines[at] = line;
        let Self { text, lines, .. } = self;
        if lines[at + 1..].iter().any(|other| other.is(text, line.tag, name)) {
            let mut seen = false;
            lines.retain(|other| !other.is(text, line.tag, name) || !std::mem::replace(&mut seen, true));
        }
    }

    /// Removes all lines with a name, which is in lower case. Whether there was one.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        let tag = tag(name);
        if self.find(tag, name).is_none() {
            return false;
        }
        let Self { text, lines, .. } = self;
        lines.retain(|line| !line.is(text, tag, name));
        true
    }

    /// Keeps the lines for whose names and values `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        let Self { text, lines, .. } = self;
        lines.retain(|line| keep(line.name(text), line.value(text)));
    }

    /// Writes the lines as HTTP/1.1 has them.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_some(out, |_, _| true);
    }

    /// Writes those lines for whose names and values `wanted` says so. What stands together in the text is written
    /// together.
    pub fn write_some(&self, out: &mut Vec<u8>, mut wanted: impl FnMut(&[u8], &[u8]) -> bool) {
        let mut run = 0..0;
        for line in &self.lines {
            let (name, value) = (line.name(&self.text), line.value(&self.text));
            if !wanted(name, value) {
                continue;
            }
            if line.whole {
                let (from, to) = (line.name as usize, line.value as usize + value.len() + 2);
                if from == run.end {
                    run.end = to;
                    continue;
                }
                out.extend_from_slice(&self.text[run]);
                run = from..to;
            } else {
                out.extend_from_slice(&self.text[run]);
                run = 0..0;
                write_line(out, name, value);
            }
        }
        out.extend_from_slice(&self.text[run]);
    }

    /// The most bytes that [`Self::write`] writes.
    pub fn written(&self) -> usize {
        self.text.len() + 4 * self.lines.len()
    }
}

/// The values of all lines with one name.
#[derive(Clone)]
pub struct Values<'a, N> {
    text: &'a [u8],
    lines: std::slice::Iter<'a, Line>,
    tag: u8,
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

/// Where a part of a text is in it; nowhere, if it is empty.
pub fn place(text: &[u8], part: &[u8]) -> (usize, usize) {
    let from = part.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
    if part.is_empty() { (0, 0) } else { (from, from + part.len()) }
}

/// A place in the text. A gateway adds some kilobytes to a head whose own places are known to fit.
fn narrow(at: usize) -> u32 {
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
    use http::HeaderMap;
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
            let mut fields = Fields::of_head(b"Host: x\r\nA:y\r\nB: z \r\n");
            fields.tell((0, 4), (6, 7)).unwrap();
            fields.tell((9, 10), (11, 12)).unwrap();
            fields.tell((14, 15), (17, 18)).unwrap();
            let mut list: Vec<_> =
                [("host", "x"), ("a", "y"), ("b", "z")].map(|(n, v)| (n.to_owned(), v.to_owned())).into();
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
            let written: String = list.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            prop_assert_eq!(String::from_utf8(out).unwrap(), written);
        }
    }

    #[test]
    fn nothing_breaks_a_line() {
        let mut fields = Fields::new();
        fields.insert("a", "x\r\nb: y");
        fields.append("b", "\0");
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
