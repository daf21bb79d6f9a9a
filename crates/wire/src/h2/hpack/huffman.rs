//! Strings in the Huffman code of RFC 7541 (§5.2).

use super::HpackError;

/// The symbol that ends a string. It never stands in one: only the front of its code does, as padding.
pub(super) const EOS: usize = 256;
/// The longest code.
const LONGEST: usize = 30;
/// The bits by which a short code is looked up at once: letters, digits and what addresses are made of.
const SHORT: usize = 8;

/// How many bits the code of each symbol has (RFC 7541 appendix B). The code is canonical: codes of one length follow each
/// other in the order of the symbols, behind those that are shorter; so the lengths are all there is to know.
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
/// By length: the end of the codes of that length and all that are shorter, shifted to the left of 32 bits.
static ENDS: [u64; LONGEST + 1] = ends();
/// By length: what is added to a code to find it in `SYMBOLS`, modulo 2^32.
static PLACES: [u32; LONGEST + 1] = places();
/// By the next bits: the symbol of a code that is no longer than they are, and its length; a length of 0 says that it is.
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

/// How many codes have that many bits.
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

const fn places() -> [u32; LONGEST + 1] {
    let ends = ends();
    let mut places = [0; LONGEST + 1];
    let (mut bits, mut before) = (1, 0_u32);
    while bits <= LONGEST {
        let first = (ends[bits - 1] >> (32 - bits)) as u32; // of 30 bits
        places[bits] = before.wrapping_sub(first);
        before += codes(bits);
        bits += 1;
    }
    places
}

const fn shorts() -> [(u8, u8); 1 << SHORT] {
    let (symbols, ends, places) = (symbols(), ends(), places());
    let mut shorts = [(0, 0); 1 << SHORT];
    let mut next = 0;
    while next < shorts.len() {
        let mut bits = 1;
        while bits <= SHORT && (next as u64) << (32 - SHORT) >= ends[bits] {
            bits += 1;
        }
        if bits <= SHORT {
            let code = (next >> (SHORT - bits)) as u32;
            shorts[next] = (symbols[code.wrapping_add(places[bits]) as usize] as u8, bits as u8);
        }
        next += 1;
    }
    shorts
}

/// The symbol of the code at the left of `next`, and the length of the code; none for the end of strings.
#[inline]
fn symbol(next: u64) -> Option<(u8, u32)> {
    match SHORTS[(next >> (64 - SHORT)) as usize] {
        (_, 0) => long((next >> 32) as u32),
        (symbol, bits) => Some((symbol, u32::from(bits))),
    }
}

/// The same for a code that is longer than `SHORT`.
fn long(next: u32) -> Option<(u8, u32)> {
    let mut bits = SHORT + 1;
    // The last end is above any number of 32 bits.
    while u64::from(next) >= ENDS[bits] {
        bits += 1;
    }
    let place = (next >> (32 - bits)).wrapping_add(PLACES[bits]);
    let symbol = u8::try_from(SYMBOLS[place as usize]).ok()?;
    Some((symbol, bits as u32))
}

/// Appends to `out` what the string `coded` says.
///
/// # Errors
///
/// It holds the end of strings, or is padded with more than seven bits, or with others than ones.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let mut at = out.len();
    out.resize(at + coded.len() * 8 / 5, 0); // no code is shorter than five bits
    let decoded = &mut out[..];
    let mut rest = coded;
    // The bits that are next, at the left, and how many of them there are.
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
        // Behind the end there are ones, as in the padding: they are the front of the end's own code, and of no other.
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
