//! Lines that answers repeat: they are put into the client's table (RFC 7541 §2.3.2) and are a byte from then on.
//!
//! The table is filled and then left as it is, so that nothing is ever evicted: a line that once has a place keeps it, and
//! is found by its name. Of a name whose value changes, the name at least is a number.

use super::encode;
use super::table::{OVERHEAD, TABLE};

/// What lines come to, counted as in the table; well within the 4096 bytes that clients keep unless they say less.
const LIMIT: usize = 2048;
/// The most lines.
const LINES: usize = 24;
/// Slots to look lines up in; a power of two above `LINES`, so that one is always free.
const SLOTS: usize = 32;
/// The longest value that is kept; longer ones seldom come twice.
const VALUE: usize = 128;
/// The first number of the dynamic table.
const DYNAMIC: usize = 62;

/// Writes the header blocks of a connection, in the order in which they are sent.
#[derive(Debug)]
pub(in super::super) struct Encoder {
    /// The oldest first.
    lines: Vec<Line>,
    bytes: Vec<u8>,
    /// One more than a line's place in `lines`, from the slot of its name on; 0 is none.
    slots: [u8; SLOTS],
    /// What the lines come to.
    size: usize,
    /// The client's table: it may have become smaller, never larger.
    limit: usize,
    /// The client is to be told that it did.
    shrunk: bool,
}

/// Where a line is in the bytes: its name, and its value behind.
#[derive(Clone, Copy, Debug)]
struct Line {
    at: u16,
    value_at: u16,
    end: u16,
}

impl Encoder {
    /// For a connection whose client has said nothing of its table.
    pub(in super::super) fn new() -> Self {
        Self { lines: Vec::new(), bytes: Vec::new(), slots: [0; SLOTS], size: 0, limit: TABLE, shrunk: false }
    }

    /// The client's SETTINGS_HEADER_TABLE_SIZE, in bytes. More than before is not made use of.
    pub(in super::super) fn resize(&mut self, limit: usize) {
        if limit < self.limit {
            *self = Self { limit, shrunk: true, ..Self::new() };
        }
    }

    /// Begins a block: that of an answer, of a message before it, or of trailers.
    pub(in super::super) fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.shrunk) {
            // Emptied first: what is in it is forgotten here too.
            encode::number(out, 0x20, 5, 0);
            encode::number(out, 0x20, 5, self.limit);
        }
    }

    /// Appends a line. Its name is in lower case. The block has to be sent, or the connection ended.
    pub(in super::super) fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let known = encode::index(name);
        if !is_kept(known) || value.len() > VALUE {
            return encode::literal(out, known, name, value);
        }
        let mut index = known;
        let mut slot = slot(name);
        while let Some(at) = usize::from(self.slots[slot]).checked_sub(1) {
            let line = self.lines[at];
            if &self.bytes[line.at.into()..line.value_at.into()] == name {
                index = DYNAMIC + self.lines.len() - 1 - at;
                if &self.bytes[line.value_at.into()..line.end.into()] == value {
                    return encode::number(out, 0x80, 7, index);
                }
            }
            slot = (slot + 1) % SLOTS;
        }
        let size = self.size + name.len() + value.len() + OVERHEAD;
        // Of names that are not in the static table, whose values may be any, the first value only: they would fill it.
        let is_kept = known > 0 || index == 0;
        if !is_kept || self.lines.len() == LINES || size > self.limit.min(LIMIT) {
            return encode::literal(out, index, name, value);
        }
        encode::kept(out, index, name, value);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        let place = |at: usize| at as u16; // below `LIMIT`
        let line = Line { at: place(at), value_at: place(at + name.len()), end: place(self.bytes.len()) };
        self.lines.push(line);
        self.slots[slot] = self.lines.len() as u8; // at most `LINES`
        self.size = size;
    }
}

/// Whether lines of a name may be kept, by its number in the static table: not those whose values are secret, and not those
/// whose values are another each time.
fn is_kept(index: usize) -> bool {
    const AGE: usize = 21;
    const LENGTH: usize = 28;
    const RANGE: usize = 30;
    const DATE: usize = 33;
    const ETAG: usize = 34;
    const EXPIRES: usize = 36;
    const MODIFIED: usize = 44;
    const LOCATION: usize = 46;
    !encode::is_secret(index)
        && !matches!(index, AGE | LENGTH | RANGE | DATE | ETAG | EXPIRES | MODIFIED | LOCATION)
}

/// The slot of a name: by its end, in which headers of a family differ.
fn slot(name: &[u8]) -> usize {
    let end = name.last_chunk().map_or(0, |end| u32::from_le_bytes(*end));
    (end.wrapping_mul(0x9e37_79b1) >> 27) as usize ^ (name.len() % SLOTS)
}
