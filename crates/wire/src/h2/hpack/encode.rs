//! Encodes fields without state: literals, with names of the static table where possible. Strings are not Huffman coded:
//! copying is cheaper. `encoder_table` adds the dynamic table.

use http::StatusCode;

use super::table::STATIC;

/// `:status` without its value.
const STATUS: usize = 8;
/// The index of the first name that is not a pseudo-header field.
const FIRST: usize = 15;
/// Slots of the hash table of names; a power of two.
const SLOTS: usize = 128;

/// The static table's index of a name, by its slot; 0 if the slot is empty.
static NAMES: [u8; SLOTS] = names();

const fn names() -> [u8; SLOTS] {
    let mut names = [0; SLOTS];
    let mut index = FIRST;
    while index <= STATIC.len() {
        let slot = slot(STATIC[index - 1].0.as_bytes());
        assert!(names[slot] == 0, "two names have one slot");
        names[slot] = index as u8;
        index += 1;
    }
    names
}

/// The slot of a name: a perfect hash for the static table.
const fn slot(name: &[u8]) -> usize {
    match name {
        [first, .., last] => (*first as usize * 6 + *last as usize * 35 + name.len() * 43) % SLOTS,
        _ => 0,
    }
}

/// Whether a field must never be put into a dynamic table (RFC 7541 §7.1.3): whoever can add fields beside it and sees the
/// size of blocks could guess its value. `authorization`, `cookie`, `proxy-authorization`, `set-cookie`.
pub(super) fn is_secret(index: usize) -> bool {
    matches!(index, 23 | 32 | 49 | 55)
}

/// The index of a name in the static table; 0 if it is not there.
#[inline]
pub(super) fn index(name: &[u8]) -> usize {
    let index = usize::from(NAMES[slot(name)]);
    if index > 0 && STATIC[index - 1].0.as_bytes() == name { index } else { 0 }
}

/// Appends a literal field. The name is in lower case.
#[cfg(test)]
pub(crate) fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    literal(out, index(name), name, value);
}

/// Appends a literal field without indexing. `index` is that of its name in either table; 0 if it has none.
#[inline]
pub(super) fn literal(out: &mut Vec<u8>, index: usize, name: &[u8], value: &[u8]) {
    line(out, if is_secret(index) { 0x10 } else { 0 }, 4, index, name, value);
}

/// Appends a literal field that the peer adds to its dynamic table.
pub(super) fn indexed(out: &mut Vec<u8>, index: usize, name: &[u8], value: &[u8]) {
    line(out, 0x40, 6, index, name, value);
}

#[inline]
fn line(out: &mut Vec<u8>, kind: u8, prefix: u32, index: usize, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 12); // one byte, and two lengths of at most five bytes
    number(out, kind, prefix, index);
    if index == 0 {
        string(out, name);
    }
    string(out, value);
}

/// Appends `:status`, the first field of a response.
#[inline]
pub fn status(out: &mut Vec<u8>, status: StatusCode) {
    let index = match status.as_u16() {
        200 => STATUS,
        204 => STATUS + 1,
        206 => STATUS + 2,
        304 => STATUS + 3,
        400 => STATUS + 4,
        404 => STATUS + 5,
        500 => STATUS + 6,
        _ => {
            number(out, 0, 4, STATUS);
            return string(out, status.as_str().as_bytes());
        }
    };
    number(out, 0x80, 7, index);
}

/// Appends a string (RFC 7541 §5.2).
#[inline]
fn string(out: &mut Vec<u8>, text: &[u8]) {
    number(out, 0, 7, text.len());
    out.extend_from_slice(text);
}

/// Appends an integer that begins in the last `prefix` bits of a byte whose other bits are `kind` (RFC 7541 §5.1).
#[inline]
pub(super) fn number(out: &mut Vec<u8>, kind: u8, prefix: u32, number: usize) {
    let most = (1 << prefix) - 1;
    if number < most {
        return out.push(kind | number as u8);
    }
    long_number(out, kind | most as u8, number - most);
}

/// Appends an integer that does not fit into its first byte: that byte, and the rest of the integer.
fn long_number(out: &mut Vec<u8>, first: u8, mut left: usize) {
    out.push(first);
    while left > 0x7f {
        out.push(0x80 | left as u8);
        left >>= 7;
    }
    out.push(left as u8);
}
