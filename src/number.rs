//! Numbers as text.

/// All numbers of two digits.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut at = 0;
    while at < 100 {
        pairs[at] = [b'0' + (at / 10) as u8, b'0' + (at % 10) as u8];
        at += 1;
    }
    pairs
};

/// Numbers of eight digits at most are written in one go.
const EIGHT: u64 = 100_000_000;

/// Eight digits of a number that has no more.
fn digits(number: u64) -> [u8; 8] {
    let (high, low) = (number / 10_000 % 10_000, number % 10_000);
    let pairs = [high / 100, high % 100, low / 100, low % 100].map(|pair| PAIRS[pair as usize]);
    let mut digits = [0; 8];
    digits.as_chunks_mut().0.copy_from_slice(&pairs);
    digits
}

/// Writes a number in decimal.
#[inline]
pub fn write_decimal(out: &mut Vec<u8>, number: u64) {
    match number {
        0..10 => out.push(b'0' + number as u8),
        10..100 => out.extend_from_slice(&PAIRS[number as usize]),
        _ => write_long(out, number),
    }
}

fn write_long(out: &mut Vec<u8>, number: u64) {
    if number >= EIGHT {
        write_long(out, number / EIGHT);
        out.extend_from_slice(&digits(number % EIGHT));
        return;
    }
    let digits = u64::from_le_bytes(digits(number));
    // Zeros in front are moved out: the first of the eight is the lowest byte.
    let zeros = ((digits ^ u64::from_le_bytes([b'0'; 8])).trailing_zeros() / 8).min(7);
    out.extend_from_slice(&(digits >> (8 * zeros)).to_le_bytes());
    out.truncate(out.len() - zeros as usize);
}

/// The number that these digits are, 19 at most, with nothing else between or around them: a Content-Length.
pub fn read_decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, b| b.is_ascii_digit().then(|| sum * 10 + u64::from(b - b'0')))
}

/// A number as 16 hexadecimal digits.
pub fn hex(number: u64) -> [u8; 16] {
    // Half a byte to each byte, the highest first, then all sixteen into digits at once.
    let spread = |half: u64| {
        let half = (half | half << 16) & 0x0000_ffff_0000_ffff;
        let half = (half | half << 8) & 0x00ff_00ff_00ff_00ff;
        (half | half << 4) & 0x0f0f_0f0f_0f0f_0f0f
    };
    let digits = |halves: u64| {
        let letters = (halves + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101; // one where it is ten or more
        halves + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'9' - 1)
    };
    let mut text = [0; 16];
    text[..8].copy_from_slice(&digits(spread(number >> 32)).to_be_bytes());
    text[8..].copy_from_slice(&digits(spread(number & 0xffff_ffff)).to_be_bytes());
    text
}

/// Writes a number as 16 hexadecimal digits.
pub fn write_hex(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&hex(number));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_and_nothing_else_are_read() {
        for (text, number) in [("0", 0), ("007", 7), ("9999999999999999999", 9_999_999_999_999_999_999)] {
            assert_eq!(read_decimal(text.as_bytes()), Some(number));
        }
        for text in
            ["", "+1", "-1", " 1", "1 ", "1,1", "0x1", "1.0", "00000000000000000001", "18446744073709551616"]
        {
            assert_eq!(read_decimal(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_as_written() {
        for number in [
            0,
            7,
            10,
            0x0123_4567_89ab_cdef,
            0xfedc_ba98_7654_3210,
            99,
            100,
            101,
            999,
            1000,
            9_999,
            10_000,
            1_234_567,
            99_999_999,
            100_000_000,
            1_000_000_007,
            1_234_567_890,
            9_999_999_999_999_999,
            10_000_000_000_000_000,
            u64::MAX,
        ] {
            let mut out = b"n=".to_vec();
            write_decimal(&mut out, number);
            assert_eq!(out, format!("n={number}").as_bytes());
            assert_eq!(hex(number), *format!("{number:016x}").as_bytes());
        }
    }
}
