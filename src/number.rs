//! Numbers as text.

/// A number in decimal, written into the end of `digits`.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    while number >= 100 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[(number % 100) as usize]);
        number /= 100;
    }
    if number >= 10 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[number as usize]);
    } else {
        at -= 1;
        digits[at] = b'0' + number as u8;
    }
    &digits[at..]
}

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

/// Writes a number in decimal.
pub fn write_decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(decimal(number, &mut [0; 20]));
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
            1_234_567_890,
            u64::MAX,
        ] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
            assert_eq!(hex(number), *format!("{number:016x}").as_bytes());
        }
    }
}
