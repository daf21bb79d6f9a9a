//! The header fields of a message (RFC 9110 §5): one piece of text, and for each field the position of its name and of its
//! value in that text.
//!
//! A head has about a dozen fields; each is looked up a few times and written once. So there is no hash table and no
//! reference counting: a lookup compares the tags of all fields (length and first letter) before it compares names.

mod line;
mod map;
mod matching;
mod name_case;
mod name_filter;
pub(crate) mod parse;
#[cfg(test)]
mod tests;

use std::cell::RefCell;

use http::HeaderValue;

use self::line::{Line, bit, tag};
pub use self::name_case::NameCase;
pub use self::name_filter::NameFilter;

/// Initial capacity in fields: those that clients send and those that a gateway adds.
const LINES: usize = 24;
/// Bytes reserved for the fields that a gateway adds to a head.
const ADDED: usize = 448;
/// Bytes reserved for the value of a field that is added.
const ROOM: usize = 60;

/// Header fields in the order in which they came. Names are in lower case.
#[derive(Clone, Default)]
pub struct Headers {
    text: Vec<u8>,
    lines: Vec<Line>,
    /// One bit for each tag that a field has or had: most lookups are for names that are absent.
    seen: u64,
    /// A name that was received contains an underscore.
    underscored: bool,
}

thread_local! {
    /// Memory of dropped heads, reused for the next ones.
    static USED: RefCell<Vec<Headers>> = const { RefCell::new(Vec::new()) };
}

/// How many heads keep their memory per thread, and the largest text in bytes that is kept.
const KEPT: (usize, usize) = (32, 4 << 10);

impl Drop for Headers {
    fn drop(&mut self) {
        if self.text.capacity() == 0 || self.text.capacity() > KEPT.1 || self.lines.capacity() > 4 * LINES {
            return;
        }
        let (mut text, mut lines) = (std::mem::take(&mut self.text), std::mem::take(&mut self.lines));
        // Fails while the thread ends.
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

/// The name of a field that is added to many messages, as HTTP/1.1 writes it.
#[derive(Clone, Copy, Debug)]
pub struct FieldName {
    /// The name, a colon and a space.
    text: &'static [u8],
    /// The length of the name.
    length: u16,
    tag: u8,
}

impl FieldName {
    /// The name in this text, which a colon and a space follow.
    ///
    /// # Panics
    /// The text does not end with a colon and a space.
    pub const fn new(text: &'static str) -> Self {
        let text = text.as_bytes();
        let [name @ .., b':', b' '] = text else { panic!("a name ends with a colon and a space") };
        Self { text, length: name.len() as u16, tag: tag(name) }
    }
}

/// A head is longer than 4 GiB, or a field name is longer than 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Headers {
    /// An empty set of fields.
    pub const fn new() -> Self {
        Self { text: Vec::new(), lines: Vec::new(), seen: 0, underscored: false }
    }

    /// An empty set of fields with room for those of a response.
    pub fn for_response() -> Self {
        let mut fields = Self::recycled();
        fields.text.reserve(ADDED);
        fields
    }

    /// An empty set of fields with room for `length` bytes and for the fields that a gateway adds to a request.
    pub fn for_request(length: usize) -> Self {
        let mut fields = Self::recycled();
        fields.text.reserve(length + ADDED);
        fields
    }

    /// An empty set of fields in recycled memory, if there is any.
    fn recycled() -> Self {
        let used = USED.with_borrow_mut(Vec::pop);
        used.unwrap_or_else(|| Self {
            text: Vec::new(),
            lines: Vec::with_capacity(LINES),
            seen: 0,
            underscored: false,
        })
    }

    /// Takes over the text of a head; its fields are added by [`push_at`](Self::push_at).
    pub fn with_text(head: &[u8]) -> Self {
        let mut fields = Self::recycled();
        fields.text.reserve(head.len() + ADDED);
        fields.text.extend_from_slice(head);
        fields
    }

    /// Adds a field of the text that [`with_text`](Self::with_text) took over: the ranges of its name and of its value,
    /// in bytes. The name is converted to lower case.
    ///
    /// # Errors
    /// The field is too long.
    ///
    /// # Panics
    /// The name is not within the text.
    pub fn push_at(&mut self, name: (usize, usize), value: (usize, usize)) -> Result<(), TooLong> {
        let mut line = Line::at(name, value, false).ok_or(TooLong)?;
        let text = &mut self.text[name.0..name.1];
        text.make_ascii_lowercase();
        line.tag = tag(text);
        self.seen |= bit(line.tag);
        self.underscored |= text.contains(&b'_');
        self.lines.push(line);
        Ok(())
    }

    /// Whether a name that was received contains an underscore.
    pub const fn has_underscores(&self) -> bool {
        self.underscored
    }

    /// Records that a received name contains an underscore.
    pub const fn note_underscore(&mut self) {
        self.underscored = true;
    }

    /// The number of fields.
    #[inline]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there are no fields.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Names and values of all fields.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> + Clone {
        self.lines.iter().map(|line| (line.name(&self.text), line.value(&self.text)))
    }

    /// The names of all fields.
    #[inline]
    pub fn names(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.lines.iter().map(|line| line.name(&self.text))
    }

    /// The first value of a field. The name is in lower case.
    #[inline]
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        let name = name.as_ref();
        self.find(tag(name), name).map(|at| self.lines[at].value(&self.text))
    }

    #[inline]
    fn find(&self, tag: u8, name: &[u8]) -> Option<usize> {
        if self.seen & bit(tag) == 0 {
            return None;
        }
        self.lines.iter().position(|line| line.is(&self.text, tag, name))
    }

    /// All values of a field. The name is in lower case.
    #[inline]
    pub fn get_all<N: AsRef<[u8]>>(&self, name: N) -> Values<'_, N> {
        let tag = tag(name.as_ref());
        let lines = if self.seen & bit(tag) == 0 { &[] } else { &self.lines[..] };
        Values { text: &self.text, lines: lines.iter(), tag, name }
    }

    /// The value of a field that occurs exactly once. The name is in lower case.
    #[inline]
    pub fn only(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        let name = name.as_ref();
        let tag = tag(name);
        let at = self.find(tag, name)?;
        let again = self.lines[at + 1..].iter().any(|line| line.is(&self.text, tag, name));
        (!again).then(|| self.lines[at].value(&self.text))
    }

    /// Whether a field is present. The name is in lower case.
    #[inline]
    pub fn contains_key(&self, name: impl AsRef<[u8]>) -> bool {
        self.get(name).is_some()
    }

    /// Adds a field. The name is in lower case. A value that is not a valid field value is replaced by an empty one, so
    /// that it cannot end the line.
    #[inline]
    pub fn append(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        let value = if is_value(value) { value } else { b"" };
        self.add(name.as_ref(), |text| text.extend_from_slice(value));
    }

    /// Adds a field whose value consists of these parts, which together are known to be a valid value.
    #[inline]
    pub fn append_parts<const N: usize>(&mut self, name: FieldName, parts: [&[u8]; N]) {
        let begin = |text: &mut Vec<u8>| text.extend_from_slice(name.text);
        let write = |text: &mut Vec<u8>| parts.iter().for_each(|part| text.extend_from_slice(part));
        self.add_line(name.tag, name.length, begin, write);
    }

    /// Adds a field whose value `write` appends to the text. The name is in lower case. A value that is not a valid field
    /// value is replaced by an empty one.
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

    /// Adds a field whose name and value are known to be valid.
    #[inline]
    pub fn append_unchecked(&mut self, name: &[u8], value: &[u8]) {
        self.add(name, |text| text.extend_from_slice(value));
    }

    /// Adds a field with a value that the `http` crate has checked. The name is in lower case.
    #[inline]
    pub fn append_value(&mut self, name: impl AsRef<[u8]>, value: &HeaderValue) {
        self.add(name.as_ref(), |text| text.extend_from_slice(value.as_bytes()));
    }

    /// Adds all fields of `others` with one copy of their text.
    #[inline]
    pub fn append_all(&mut self, others: &Self) {
        let base = narrow(self.text.len());
        self.text.extend_from_slice(&others.text);
        self.seen |= others.seen;
        let moved = |line: &Line| Line { name: line.name + base, value: line.value + base, ..*line };
        self.lines.extend(others.lines.iter().map(moved));
    }

    /// Adds a field with the first value of the field `of`; adds nothing if `of` is absent. Both names are in lower case.
    #[inline]
    pub fn append_copy(&mut self, name: impl AsRef<[u8]>, of: impl AsRef<[u8]>) {
        let of = of.as_ref();
        let Some(line) = self.find(tag(of), of).map(|at| self.lines[at]) else { return };
        let from = line.value as usize;
        self.add(name.as_ref(), |text| text.extend_from_within(from..from + line.value_length as usize));
    }

    /// Adds a field whose value `write` appends; it is not checked.
    #[inline]
    fn add(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        debug_assert!(!name.iter().any(u8::is_ascii_uppercase));
        let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
        let begin = |text: &mut Vec<u8>| {
            text.reserve(name.len() + ROOM);
            text.extend_from_slice(name);
            text.extend_from_slice(b": ");
        };
        self.add_line(tag(name), length, begin, write);
    }

    /// Adds a field whose name has this tag and this length. `begin` appends the name, a colon and a space; `write` the value.
    #[inline]
    fn add_line(
        &mut self,
        tag: u8,
        name_length: u16,
        begin: impl FnOnce(&mut Vec<u8>),
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let Self { text, lines, seen, .. } = self;
        let at = text.len();
        begin(text);
        let value = text.len();
        write(text);
        let end = text.len();
        text.extend_from_slice(b"\r\n");
        *seen |= bit(tag);
        lines.push(Line {
            name: narrow(at),
            value: narrow(value),
            value_length: narrow(end - value),
            name_length,
            tag,
            whole: true,
        });
    }

    /// Replaces all fields of a name, which is in lower case, by one. A value that is not a valid field value is replaced
    /// by an empty one.
    #[inline]
    pub fn insert(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.insert_with(name, |text| text.extend_from_slice(value.as_ref()));
    }

    /// Replaces all fields of a name, which is in lower case, by one whose value `write` appends to the text. A value that
    /// is not a valid field value is replaced by an empty one.
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

    /// Removes all fields of a name, which is in lower case. Returns whether there was one.
    #[inline]
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

    /// Removes all fields of these names, which are in lower case.
    #[inline]
    pub fn remove_all(&mut self, names: &[&str]) {
        if names.iter().any(|name| self.seen & bit(tag(name.as_bytes())) != 0) {
            names.iter().for_each(|name| _ = self.remove(name));
        }
    }

    /// Removes the fields for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        let Self { text, lines, .. } = self;
        lines.retain(|line| keep(line.name(text), line.value(text)));
    }

    /// Appends all fields as HTTP/1.1 writes them.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_filtered(out, &const { NameFilter::of(&[]) }, |_| true);
    }

    /// Appends the fields as HTTP/1.1 writes them, except those that match `filter` and for which `wanted` returns false.
    /// Neighbouring fields are copied together.
    pub fn write_filtered(
        &self,
        out: &mut Vec<u8>,
        filter: &'static NameFilter,
        mut wanted: impl FnMut(&[u8]) -> bool,
    ) {
        let mut run = 0..0;
        for line in &self.lines {
            if filter.has(line.tag) && !wanted(line.name(&self.text)) {
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

    /// An upper bound of the bytes that [`Self::write`] appends.
    #[inline]
    pub fn written_len(&self) -> usize {
        self.text.len() + 4 * self.lines.len()
    }
}

/// The values of all fields with one name.
#[derive(Clone)]
pub struct Values<'a, N> {
    text: &'a [u8],
    lines: std::slice::Iter<'a, Line>,
    tag: u8,
    name: N,
}

impl<'a, N: AsRef<[u8]>> Iterator for Values<'a, N> {
    type Item = &'a [u8];

    #[inline]
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

/// The range in bytes of `part` within `text`, which contains it; `(0, 0)` if it is empty.
pub(crate) fn place(text: &[u8], part: &[u8]) -> (usize, usize) {
    let from = part.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
    if part.is_empty() { (0, 0) } else { (from, from + part.len()) }
}

/// A position in the text. Received heads fit (see [`TooLong`]); a gateway adds some kilobytes to them.
fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Appends one field as HTTP/1.1 writes it.
#[inline]
pub fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Whether these bytes are a valid field value (RFC 9110 §5.5).
#[inline]
pub fn is_value(bytes: &[u8]) -> bool {
    // Without an early return the compiler vectorizes the loop.
    bytes.iter().fold(true, |good, b| good & ((*b >= 0x20 && *b != 0x7f) | (*b == b'\t')))
}

/// A field value as text, if it has only visible ASCII characters, blanks and tabs.
#[inline]
pub fn text(value: &[u8]) -> Option<&str> {
    let visible = value.iter().fold(true, |good, b| good & (matches!(b, 0x20..=0x7e) | (*b == b'\t')));
    std::str::from_utf8(value).ok().filter(|_| visible)
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(lines: I) -> Self {
        let mut fields = Self::new();
        for (name, value) in lines {
            fields.append(name, value);
        }
        fields
    }
}

/// Shows the names only: values may be secrets.
impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names().map(String::from_utf8_lossy)).finish()
    }
}
