//! Header blocks that are read.

use std::ops::Range;

use super::huffman;
use super::table::{Dynamic, OVERHEAD, STATIC, TABLE};

/// What the lines of one block may come to, counted as in the table: well above any head that is taken. A byte can name
/// a line of 4 KiB, and have it copied.
const BLOCK: usize = 4 << 20;
/// What is kept of the room for strings that are Huffman coded.
const KEPT: usize = 1 << 10;
/// The bytes of a number behind its first; no number that is due needs more.
const MORE: usize = 4;

/// A block that cannot be read. The table is out of step with the client's: the connection ends (RFC 7541 §2.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Malformed;

/// Reads the header blocks of a connection, in the order in which they came.
#[derive(Debug)]
pub(in super::super) struct Decoder {
    table: Dynamic,
    /// How large the client may make the table.
    max: usize,
    /// Strings of one line that were Huffman coded.
    strings: Vec<u8>,
}

/// A string of a block.
enum Text<'a> {
    Plain(&'a [u8]),
    /// Where it is in the decoder's strings.
    Decoded(Range<usize>),
}

impl<'a> Text<'a> {
    fn bytes<'b>(&self, strings: &'b [u8]) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Decoded(range) => &strings[range.clone()],
        }
    }
}

impl Decoder {
    /// A decoder for a connection whose client was told `max` as its SETTINGS_HEADER_TABLE_SIZE, in bytes. Less than the
    /// default of 4096 is not enforced before the client says that it knows.
    pub(in super::super) fn new(max: usize) -> Self {
        Self { table: Dynamic::new(TABLE), max, strings: Vec::new() }
    }

    /// Reads a whole block: what HEADERS and its CONTINUATIONs carry, put together. `line` is given each name and value, in
    /// order, as they came: nothing is known of them but their length. A block whose lines are not wanted has to be read
    /// all the same, because the next ones build on it.
    ///
    /// # Errors
    ///
    /// The block breaks RFC 7541, or its lines come to more than any head may; an error of the connection either way.
    pub(in super::super) fn decode(
        &mut self,
        block: &[u8],
        mut line: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Malformed> {
        let mut rest = block;
        let mut left = BLOCK;
        // Only here may the table's size change (RFC 7541 §4.2).
        while let Some(first) = rest.first()
            && first & 0xe0 == 0x20
        {
            let limit = number(&mut rest, 5)?;
            if limit > self.max {
                return Err(Malformed);
            }
            self.table.resize(limit);
        }
        while let Some(first) = rest.first() {
            let length = if first & 0x80 != 0 {
                let (name, value) = self.table.line(number(&mut rest, 7)?)?;
                line(name, value);
                name.len() + value.len()
            } else if first & 0x40 != 0 {
                self.literal(&mut rest, 6, true, &mut line)?
            } else if first & 0x20 == 0 {
                self.literal(&mut rest, 4, false, &mut line)?
            } else {
                return Err(Malformed);
            };
            left = left.checked_sub(length + OVERHEAD).ok_or(Malformed)?;
        }
        if self.strings.capacity() > KEPT {
            self.strings = Vec::new();
        }
        Ok(())
    }

    /// Reads a line whose value, and maybe name, is in the block (RFC 7541 §6.2). Its length.
    fn literal(
        &mut self,
        rest: &mut &[u8],
        prefix: u32,
        keep: bool,
        line: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, Malformed> {
        let Self { table, strings, .. } = self;
        strings.clear();
        let index = number(rest, prefix)?;
        let name = match index {
            0 => string(rest, strings)?,
            1..=61 => Text::Plain(STATIC[index - 1].0.as_bytes()),
            _ => {
                // Copied: the line that it is in may have to make room for this one.
                strings.extend_from_slice(table.line(index)?.0);
                Text::Decoded(0..strings.len())
            }
        };
        let value = string(rest, strings)?;
        let (name, value) = (name.bytes(strings), value.bytes(strings));
        line(name, value);
        if keep {
            table.insert(name, value);
        }
        Ok(name.len() + value.len())
    }
}

/// A string (RFC 7541 §5.2).
fn string<'a>(rest: &mut &'a [u8], strings: &mut Vec<u8>) -> Result<Text<'a>, Malformed> {
    let coded = rest.first().is_some_and(|first| first & 0x80 != 0);
    let length = number(rest, 7)?;
    let (bytes, behind) = rest.split_at_checked(length).ok_or(Malformed)?;
    *rest = behind;
    if !coded {
        return Ok(Text::Plain(bytes));
    }
    let start = strings.len();
    huffman::decode(bytes, strings)?;
    Ok(Text::Decoded(start..strings.len()))
}

/// A number that begins in the last `prefix` bits of a byte (RFC 7541 §5.1).
#[inline]
fn number(rest: &mut &[u8], prefix: u32) -> Result<usize, Malformed> {
    let (first, behind) = rest.split_first().ok_or(Malformed)?;
    let most = (1 << prefix) - 1;
    let number = usize::from(*first) & most;
    *rest = behind;
    if number < most { Ok(number) } else { long_number(rest, number) }
}

/// What follows a first byte that is full.
fn long_number(rest: &mut &[u8], mut number: usize) -> Result<usize, Malformed> {
    for at in 0..MORE {
        let (byte, behind) = rest.split_first().ok_or(Malformed)?;
        *rest = behind;
        number += usize::from(byte & 0x7f) << (7 * at); // 28 bits at the most
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed)
}
