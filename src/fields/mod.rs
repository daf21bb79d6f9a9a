//! The fields of a message's head (RFC 9110 §5), as they were read and what was added to them: one piece of text, and
//! where in it each line has its name and its value.
//!
//! A head has a dozen lines, each is looked at a few times and written once. So nothing is hashed and nothing is
//! counted in references; a name is found by looking at all of them, by its length and first letter first.

mod looks;
mod map;
pub mod read;
#[cfg(test)]
mod tests;

use std::cell::RefCell;

use http::HeaderValue;

pub use self::looks::Looks;

use crate::number::write_decimal;

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
    /// Whether a name that was read has an underscore.
    underscored: bool,
}

thread_local! {
    /// Memory of heads that are done with, for those that come next.
    static USED: RefCell<Vec<Fields>> = const { RefCell::new(Vec::new()) };
}

/// Heads whose memory is kept, and the most that one may have.
const KEPT: (usize, usize) = (32, 4 << 10);

impl Drop for Fields {
    fn drop(&mut self) {
        if self.text.capacity() == 0 || self.text.capacity() > KEPT.1 || self.lines.capacity() > 4 * LINES {
            return;
        }
        let (mut text, mut lines) = (std::mem::take(&mut self.text), std::mem::take(&mut self.lines));
        // A thread that ends keeps nothing.
        let _ = USED.try_with(|used| {
            if let Ok(mut used) = used.try_borrow_mut()
                && used.len() < KEPT.0
            {
                text.clear();
                lines.clear();
                used.push(Self { text, lines, seen: 0, underscored: false });
            }
        });
    }
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

    /// A line whose name and value are at these places, and whose tag is not known yet; `None` if it is too long. It is
    /// `whole` if the text has it as it is to be written.
    fn at(name: (usize, usize), value: (usize, usize), whole: bool) -> Option<Self> {
        let is_short = value.1 <= u32::MAX as usize && name.1 - name.0 <= usize::from(u16::MAX);
        is_short.then_some(Self {
            name: name.0 as u32,
            value: value.0 as u32,
            value_length: (value.1 - value.0) as u32,
            name_length: (name.1 - name.0) as u16,
            tag: 0,
            whole,
        })
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
        Self { text: Vec::new(), lines: Vec::new(), seen: 0, underscored: false }
    }

    /// No fields, and room for those of an answer.
    pub fn with_room() -> Self {
        let mut fields = Self::recycled();
        fields.text.reserve(ADDED);
        fields
    }

    /// No fields, and room for those of a request that are `length` bytes and for what a gateway adds to them.
    pub fn with_room_for(length: usize) -> Self {
        let mut fields = Self::recycled();
        fields.text.reserve(length + ADDED);
        fields
    }

    /// No fields, in memory that others had before, if there is some.
    fn recycled() -> Self {
        let used = USED.with_borrow_mut(Vec::pop);
        used.unwrap_or_else(|| Self {
            text: Vec::new(),
            lines: Vec::with_capacity(LINES),
            seen: 0,
            underscored: false,
        })
    }

    /// The text of a head whose lines are [told](Self::tell) next.
    pub fn of_head(head: &[u8]) -> Self {
        let mut fields = Self::recycled();
        fields.text.reserve(head.len() + ADDED);
        fields.text.extend_from_slice(head);
        fields
    }

    /// Tells of a line in the text of the head: where its name and its value are. The name becomes lower case.
    ///
    /// # Errors
    /// When it is too long.
    ///
    /// # Panics
    /// When it is not in the text.
    pub fn tell(&mut self, name: (usize, usize), value: (usize, usize)) -> Result<(), TooLong> {
        let mut line = Line::at(name, value, false).ok_or(TooLong)?;
        let text = &mut self.text[name.0..name.1];
        text.make_ascii_lowercase();
        line.tag = tag(text);
        self.seen |= bit(line.tag);
        self.underscored |= text.contains(&b'_');
        self.lines.push(line);
        Ok(())
    }

    /// Whether a name has an underscore, of those that were read from a connection.
    pub const fn has_underscores(&self) -> bool {
        self.underscored
    }

    /// Notes that a name that was read has an underscore.
    pub const fn note_underscore(&mut self) {
        self.underscored = true;
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
        let name = name.as_ref();
        let tag = tag(name);
        let at = self.find(tag, name)?;
        let again = self.lines[at + 1..].iter().any(|line| line.is(&self.text, tag, name));
        (!again).then(|| self.lines[at].value(&self.text))
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
    #[inline]
    pub fn append_number(&mut self, name: impl AsRef<[u8]>, number: u64) {
        self.add(name.as_ref(), |text| write_decimal(text, number));
    }

    /// Adds a line whose value is what `write` writes at the end of the text; its name is in lower case. A value that
    /// no header can have is left empty.
    #[inline]
    pub fn append_with(&mut self, name: impl AsRef<[u8]>, write: impl FnOnce(&mut Vec<u8>)) {
        self.add(name.as_ref(), |text| {
            let at = text.len();
            write(text);
            if !is_value(&text[at..]) {
                text.truncate(at);
            }
        });
    }

    /// Adds a line whose name and value were checked before.
    pub fn append_line(&mut self, name: &[u8], value: &[u8]) {
        self.add(name, |text| text.extend_from_slice(value));
    }

    /// Adds a line with a value that was checked before; its name is in lower case.
    pub fn append_value(&mut self, name: impl AsRef<[u8]>, value: &HeaderValue) {
        self.add(name.as_ref(), |text| text.extend_from_slice(value.as_bytes()));
    }

    /// Adds all lines of others, whose text is copied at once.
    pub fn append_all(&mut self, others: &Self) {
        let base = narrow(self.text.len());
        self.text.extend_from_slice(&others.text);
        self.seen |= others.seen;
        let moved = |line: &Line| Line { name: line.name + base, value: line.value + base, ..*line };
        self.lines.extend(others.lines.iter().map(moved));
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
    #[inline]
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

    /// Removes all lines with any of these names, which are in lower case.
    pub fn remove_all(&mut self, names: &[&str]) {
        if names.iter().any(|name| self.seen & bit(tag(name.as_bytes())) != 0) {
            names.iter().for_each(|name| _ = self.remove(name));
        }
    }

    /// Keeps the lines for whose names and values `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        let Self { text, lines, .. } = self;
        lines.retain(|line| keep(line.name(text), line.value(text)));
    }

    /// Writes the lines as HTTP/1.1 has them.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_some(out, &const { Looks::of(&[]) }, |_| true);
    }

    /// Writes all lines but those for whose names `wanted` does not say so, of those that may have one of some names.
    /// What stands together in the text is written together.
    pub fn write_some(
        &self,
        out: &mut Vec<u8>,
        looks: &'static Looks,
        mut wanted: impl FnMut(&[u8]) -> bool,
    ) {
        let mut run = 0..0;
        for line in &self.lines {
            if looks.have(line.tag) && !wanted(line.name(&self.text)) {
                continue;
            }
            if line.whole {
                let (from, to) = (line.name as usize, (line.value + line.value_length) as usize + 2);
                if from == run.end {
                    run.end = to;
                    continue;
                }
                out.extend_from_slice(&self.text[run]);
                run = from..to;
            } else {
                out.extend_from_slice(&self.text[run]);
                run = 0..0;
                write_line(out, line.name(&self.text), line.value(&self.text));
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
