//! Strings in the Huffman code of RFC 7541 (§5.2).

use super::error::HpackError;

/// The end-of-string symbol. Strings must not contain it; a prefix of its code is the padding.
pub(super) const EOS: usize = 256;
/// The longest code.
const LONGEST: usize = 30;
/// The length in bits up to which codes are decoded by one table lookup: those of letters, digits and common punctuation.
const SHORT: usize = 8;

/// The length in bits of the code of each symbol (RFC 7541 appendix B). The code is canonical: codes are ordered by length, and
/// codes of equal length by symbol. So the lengths determine the codes.
#[rustfmt::skip]
pub(super) const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30, // EOS
];

/// The symbols in the order of their codes.
static SYMBOLS: [u16; 257] = symbols();
/// By length: the end of the codes of at most that length, aligned to the left of 32 bits.
static ENDS: [u64; LONGEST + 1] = ends();
/// By length: the offset from a code to its index in `SYMBOLS`, modulo 2^32.
static OFFSETS: [u32; LONGEST + 1] = offsets();
/// By the next `SHORT` bits: the symbol and the length of a short code; the length is 0 if the code is longer.
static SHORTS: [(u8, u8); 1 << SHORT] = shorts();

const fn symbols() -> [u16; 257] {
    let mut symbols = [0; 257];
    let (mut bits, mut found) = (1, 0);
    while bits <= LONGEST {
        let mut symbol = 0;
        while symbol <= EOS {
            if LENGTHS[symbol] as usize == bits {
                symbols[found] = symbol as u16;
                found += 1;
            }
            symbol += 1;
        }
        bits += 1;
    }
    symbols
}

/// The number of codes of this length.
const fn codes(bits: usize) -> u32 {
    let (mut symbol, mut count) = (0, 0);
    while symbol <= EOS {
        count += (LENGTHS[symbol] as usize == bits) as u32;
        symbol += 1;
    }
    count
}

const fn ends() -> [u64; LONGEST + 1] {
    let mut ends = [0; LONGEST + 1];
    let mut bits = 1;
    while bits <= LONGEST {
        ends[bits] = ends[bits - 1] + ((codes(bits) as u64) << (32 - bits));
        bits += 1;
    }
    ends
}

const fn offsets() -> [u32; LONGEST + 1] {
    let ends = ends();
    let mut offsets = [0; LONGEST + 1];
    let (mut bits, mut before) = (1, 0_u32);
    while bits <= LONGEST {
        let first = (ends[bits - 1] >> (32 - bits)) as u32; // has at most 30 bits
        offsets[bits] = before.wrapping_sub(first);
        before += codes(bits);
        bits += 1;
    }
    offsets
}

const fn shorts() -> [(u8, u8); 1 << SHORT] {
    let (symbols, ends, offsets) = (symbols(), ends(), offsets());
    let mut shorts = [(0, 0); 1 << SHORT];
    let mut next = 0;
    while next < shorts.len() {
        let mut bits = 1;
        while bits <= SHORT && (next as u64) << (32 - SHORT) >= ends[bits] {
            bits += 1;
        }
        if bits <= SHORT {
            let code = (next >> (SHORT - bits)) as u32;
            shorts[next] = (symbols[code.wrapping_add(offsets[bits]) as usize] as u8, bits as u8);
        }
        next += 1;
    }
    shorts
}

/// The symbol of the leftmost code in `next`, and the length of the code; `None` for the end-of-string symbol.
#[inline]
fn symbol(next: u64) -> Option<(u8, u32)> {
    match SHORTS[(next >> (64 - SHORT)) as usize] {
        (_, 0) => long((next >> 32) as u32),
        (symbol, bits) => Some((symbol, u32::from(bits))),
    }
}

/// The same for a code of more than `SHORT` bits.
fn long(next: u32) -> Option<(u8, u32)> {
    let mut bits = SHORT + 1;
    // Ends, because the last end exceeds all 32-bit numbers.
    while u64::from(next) >= ENDS[bits] {
        bits += 1;
    }
    let index = (next >> (32 - bits)).wrapping_add(OFFSETS[bits]);
    let symbol = u8::try_from(SYMBOLS[index as usize]).ok()?;
    Some((symbol, bits as u32))
}

/// Decodes the string `coded` and appends it to `out`.
///
/// # Errors
///
/// It contains the end-of-string symbol, or its padding is longer than seven bits or has zeros.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let mut at = out.len();
    out.resize(at + coded.len() * 8 / 5, 0); // no code is shorter than five bits
    let decoded = &mut out[..];
    let mut rest = coded;
    // The next bits, aligned to the left, and their number.
    let (mut window, mut have) = (0_u64, 0_u32);
    while let Some((four, behind)) = rest.split_first_chunk() {
        window |= u64::from(u32::from_be_bytes(*four)) << (32 - have);
        have += 32;
        rest = behind;
        while have >= 32 {
            let (symbol, bits) = symbol(window).ok_or(HpackError)?;
            decoded[at] = symbol;
            at += 1;
            window <<= bits;
            have -= bits;
        }
    }
    for byte in rest {
        window |= u64::from(*byte) << (56 - have);
        have += 8;
    }
    loop {
        // Bits after the end are set to one, like the padding: a prefix of the code of the end-of-string symbol only.
        let next = window | u64::MAX >> have;
        if next == u64::MAX && have < 8 {
            break;
        }
        let (symbol, bits) = symbol(next).filter(|(_, bits)| *bits <= have).ok_or(HpackError)?;
        decoded[at] = symbol;
        at += 1;
        window <<= bits;
        have -= bits;
    }
    out.truncate(at);
    Ok(())
}
