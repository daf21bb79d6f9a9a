//! The dynamic table of the encoder, for fields that responses repeat (RFC 7541 §2.3.2).
//!
//! The table is filled once and never evicts: an entry keeps its place and is found by its name. If only the value of a field
//! changes, its name is still encoded as an index.

use super::encode;
use super::table::{DEFAULT_TABLE_SIZE, OVERHEAD};

/// The largest size of the table; well below the default of 4096 bytes.
const LIMIT: usize = 2048;
/// The most entries.
const ENTRIES: usize = 24;
/// Slots of the hash table of names; a power of two above `ENTRIES`, so that one is always free.
const SLOTS: usize = 32;
/// The longest value that is kept; longer ones are seldom repeated.
const VALUE: usize = 128;
/// The first index of the dynamic table.
const DYNAMIC: usize = 62;

/// Encodes the field blocks of a connection in the order in which they are sent.
#[derive(Debug)]
pub struct Encoder {
    /// The oldest first.
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    /// Positions in `entries` plus one, by the slot of the name with linear probing; 0 if a slot is empty.
    slots: [u8; SLOTS],
    /// The size of the entries.
    size: usize,
    /// The size of the peer's table: it may shrink, and is never used beyond its first value.
    limit: usize,
    /// The next block has to begin with a size update.
    shrunk: bool,
}

/// The position of an entry in `bytes`: its name, followed by its value.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u16,
    value_at: u16,
    end: u16,
}

impl Default for Encoder {
    /// The encoder for a new connection.
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            bytes: Vec::new(),
            slots: [0; SLOTS],
            size: 0,
            limit: DEFAULT_TABLE_SIZE,
            shrunk: false,
        }
    }
}

impl Encoder {
    /// Applies the peer's SETTINGS_HEADER_TABLE_SIZE, in bytes. An increase has no effect.
    pub fn resize(&mut self, limit: usize) {
        if limit < self.limit {
            *self = Self { limit, shrunk: true, ..Self::default() };
        }
    }

    /// Begins a field block.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.shrunk) {
            // A size of zero empties the table of the peer, as it was emptied here.
            encode::number(out, 0x20, 5, 0);
            encode::number(out, 0x20, 5, self.limit);
        }
    }

    /// Appends a field. The name is in lower case. The block must be sent, or the connection closed.
    pub fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let known = encode::index(name);
        if !is_kept(known) || value.len() > VALUE {
            return encode::literal(out, known, name, value);
        }
        let mut index = known;
        let mut slot = slot(name);
        while let Some(at) = usize::from(self.slots[slot]).checked_sub(1) {
            let entry = self.entries[at];
            if &self.bytes[entry.at.into()..entry.value_at.into()] == name {
                index = DYNAMIC + self.entries.len() - 1 - at;
                if &self.bytes[entry.value_at.into()..entry.end.into()] == value {
                    return encode::number(out, 0x80, 7, index);
                }
            }
            slot = (slot + 1) % SLOTS;
        }
        let size = self.size + name.len() + value.len() + OVERHEAD;
        // Of a name that is not in the static table only the first value is kept: others would fill the table.
        let is_kept = known > 0 || index == 0;
        if !is_kept || self.entries.len() == ENTRIES || size > self.limit.min(LIMIT) {
            return encode::literal(out, index, name, value);
        }
        encode::indexed(out, index, name, value);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        let place = |at: usize| at as u16; // below `LIMIT`
        let entry = Entry { at: place(at), value_at: place(at + name.len()), end: place(self.bytes.len()) };
        self.entries.push(entry);
        self.slots[slot] = self.entries.len() as u8; // at most `ENTRIES`
        self.size = size;
    }
}

/// Whether fields of a name are put into the table, by its index in the static table: neither secrets nor values that change
/// with every response.
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

/// The slot of a name: by its end, in which related names differ.
fn slot(name: &[u8]) -> usize {
    let end = name.last_chunk().map_or(0, |end| u32::from_le_bytes(*end));
    (end.wrapping_mul(0x9e37_79b1) >> 27) as usize ^ (name.len() % SLOTS)
}
