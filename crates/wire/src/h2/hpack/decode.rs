//! Decodes field blocks.

use std::ops::Range;

use super::error::HpackError;
use super::huffman;
use super::table::{DEFAULT_TABLE_SIZE, Dynamic, OVERHEAD, STATIC};

/// The largest header list of one field block, with the overhead of RFC 7541 §4.1: well above any head that is accepted. One
/// byte can refer to a field of 4 KiB.
const MAX_LIST: usize = 4 << 20;
/// Bytes of the buffer for decoded strings that are kept between field blocks.
const KEPT: usize = 1 << 10;
/// The most bytes of an integer after its first one.
const MORE: usize = 4;

/// Decodes the field blocks of a connection in the order in which they arrive.
#[derive(Debug)]
pub struct Decoder {
    table: Dynamic,
    /// The largest size of the dynamic table that the peer may choose.
    max: usize,
    /// The strings of one field that were Huffman coded.
    strings: Vec<u8>,
}

/// A string of a field block.
enum Text<'a> {
    Plain(&'a [u8]),
    /// Its position in the decoder's strings.
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
    /// A decoder for a connection on which SETTINGS_HEADER_TABLE_SIZE is `max` bytes. Values below the default of 4096 are not
    /// enforced before the peer changes the size.
    pub fn new(max: usize) -> Self {
        Self { table: Dynamic::new(DEFAULT_TABLE_SIZE), max, strings: Vec::new() }
    }

    /// Decodes a complete field block. `field` is called with each name and value in order; neither is checked. Blocks whose
    /// fields are not wanted have to be decoded too, because later ones may refer to them.
    ///
    /// # Errors
    /// The block violates RFC 7541, or its fields have more than 4 MiB.
    pub fn decode(&mut self, block: &[u8], mut field: impl FnMut(&[u8], &[u8])) -> Result<(), HpackError> {
        let mut rest = block;
        let mut left = MAX_LIST;
        // Size updates come first in a block (RFC 7541 §4.2).
        while let Some(first) = rest.first()
            && first & 0xe0 == 0x20
        {
            let limit = number(&mut rest, 5)?;
            if limit > self.max {
                return Err(HpackError);
            }
            self.table.resize(limit);
        }
        while let Some(first) = rest.first() {
            let length = if first & 0x80 != 0 {
                let (name, value) = self.table.line(number(&mut rest, 7)?)?;
                field(name, value);
                name.len() + value.len()
            } else if first & 0x40 != 0 {
                self.literal(&mut rest, 6, true, &mut field)?
            } else if first & 0x20 == 0 {
                self.literal(&mut rest, 4, false, &mut field)?
            } else {
                return Err(HpackError);
            };
            left = left.checked_sub(length + OVERHEAD).ok_or(HpackError)?;
        }
        if self.strings.capacity() > KEPT {
            self.strings = Vec::new();
        }
        Ok(())
    }

    /// Decodes a literal field (RFC 7541 §6.2). Returns its length in bytes.
    fn literal(
        &mut self,
        rest: &mut &[u8],
        prefix: u32,
        keep: bool,
        field: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, HpackError> {
        let Self { table, strings, .. } = self;
        strings.clear();
        let index = number(rest, prefix)?;
        let name = match index {
            0 => string(rest, strings)?,
            1..=61 => Text::Plain(STATIC[index - 1].0.as_bytes()),
            _ => {
                // Copied: inserting this field may evict the one that the name belongs to.
                strings.extend_from_slice(table.line(index)?.0);
                Text::Decoded(0..strings.len())
            }
        };
        let value = string(rest, strings)?;
        let (name, value) = (name.bytes(strings), value.bytes(strings));
        field(name, value);
        if keep {
            table.insert(name, value);
        }
        Ok(name.len() + value.len())
    }
}

/// A string (RFC 7541 §5.2).
fn string<'a>(rest: &mut &'a [u8], strings: &mut Vec<u8>) -> Result<Text<'a>, HpackError> {
    let coded = rest.first().is_some_and(|first| first & 0x80 != 0);
    let length = number(rest, 7)?;
    let (bytes, behind) = rest.split_at_checked(length).ok_or(HpackError)?;
    *rest = behind;
    if !coded {
        return Ok(Text::Plain(bytes));
    }
    let start = strings.len();
    huffman::decode(bytes, strings)?;
    Ok(Text::Decoded(start..strings.len()))
}

/// An integer that begins in the last `prefix` bits of a byte (RFC 7541 §5.1).
#[inline]
fn number(rest: &mut &[u8], prefix: u32) -> Result<usize, HpackError> {
    let (first, behind) = rest.split_first().ok_or(HpackError)?;
    let most = (1 << prefix) - 1;
    let number = usize::from(*first) & most;
    *rest = behind;
    if number < most { Ok(number) } else { long_number(rest, number) }
}

/// The rest of an integer that does not fit into its first byte.
fn long_number(rest: &mut &[u8], mut number: usize) -> Result<usize, HpackError> {
    for at in 0..MORE {
        let (byte, behind) = rest.split_first().ok_or(HpackError)?;
        *rest = behind;
        number += usize::from(byte & 0x7f) << (7 * at); // 28 bits at the most
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(HpackError)
}
