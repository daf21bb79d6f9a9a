//! Header blocks that are written.
//!
//! They refer to the static table only, and strings are plain: plain ones are copied, coded ones computed. So blocks need no
//! state of the connection, whatever size of table the client allows. `repeat` adds the client's table.

use http::StatusCode;

use super::table::STATIC;

/// `:status` without its value.
const STATUS: usize = 8;
/// The first name that is no pseudo-header.
const FIRST: usize = 15;
/// Slots to look a name up in; a power of two.
const SLOTS: usize = 128;

/// A name's number in the static table, by its slot; 0 is none.
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

/// The slot of a name: no two of the table have the same. An empty one has any.
const fn slot(name: &[u8]) -> usize {
    match name {
        [first, .., last] => (*first as usize * 6 + *last as usize * 35 + name.len() * 43) % SLOTS,
        _ => 0,
    }
}

/// Whether nobody on the way may put a line of that name into a table (RFC 7541 §7.1.3): who can have lines added beside it,
/// and sees how long a block is, could guess its value. `authorization`, `cookie`, `proxy-authorization`, `set-cookie`.
pub(super) fn is_secret(index: usize) -> bool {
    matches!(index, 23 | 32 | 49 | 55)
}

/// The number of a name in the static table; 0 is none.
#[inline]
pub(super) fn index(name: &[u8]) -> usize {
    let index = usize::from(NAMES[slot(name)]);
    if index > 0 && STATIC[index - 1].0.as_bytes() == name { index } else { 0 }
}

/// Appends a line to a block. Its name is in lower case.
#[cfg(test)]
pub(in super::super) fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    literal(out, index(name), name, value);
}

/// Appends a line that is put into no table. `index` is the number of its name in any; 0 is none.
#[inline]
pub(super) fn literal(out: &mut Vec<u8>, index: usize, name: &[u8], value: &[u8]) {
    line(out, if is_secret(index) { 0x10 } else { 0 }, 4, index, name, value);
}

/// Appends a line that is put into the client's table.
pub(super) fn kept(out: &mut Vec<u8>, index: usize, name: &[u8], value: &[u8]) {
    line(out, 0x40, 6, index, name, value);
}

#[inline]
fn line(out: &mut Vec<u8>, kind: u8, prefix: u32, index: usize, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 12); // a byte before, two lengths of five
    number(out, kind, prefix, index);
    if index == 0 {
        string(out, name);
    }
    string(out, value);
}

/// Appends `:status`, the first line of an answer's block.
pub(in super::super) fn status(out: &mut Vec<u8>, status: StatusCode) {
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

/// A string (RFC 7541 §5.2).
#[inline]
fn string(out: &mut Vec<u8>, text: &[u8]) {
    number(out, 0, 7, text.len());
    out.extend_from_slice(text);
}

/// A number that begins in the last `prefix` bits of a byte whose others are `kind` (RFC 7541 §5.1).
#[inline]
pub(super) fn number(out: &mut Vec<u8>, kind: u8, prefix: u32, number: usize) {
    let most = (1 << prefix) - 1;
    if number < most {
        return out.push(kind | number as u8);
    }
    long_number(out, kind | most as u8, number - most);
}

/// A number that does not fit its first byte: that, and what is left of the number.
fn long_number(out: &mut Vec<u8>, first: u8, mut left: usize) {
    out.push(first);
    while left > 0x7f {
        out.push(0x80 | left as u8);
        left >>= 7;
    }
    out.push(left as u8);
}
