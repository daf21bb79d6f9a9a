//! Numbers in decimal and hexadecimal text.

/// Formats numbers as decimal digits.
pub use itoa::Buffer as Decimal;

/// Appends a number in decimal.
#[inline]
pub fn write_decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(Decimal::new().format(number).as_bytes());
}

/// Reads a number of 1 to 19 decimal digits and nothing else, as Content-Length has it (RFC 9110 §8.6).
#[inline]
pub fn read_decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, b| b.is_ascii_digit().then(|| sum * 10 + u64::from(b - b'0')))
}

/// A number as 16 hexadecimal digits in lower case.
#[inline]
pub fn hex(number: u64) -> [u8; 16] {
    // Spreads the half bytes over eight bytes, the highest first, then turns all eight into digits at once.
    let spread = |half: u64| {
        let half = (half | half << 16) & 0x0000_ffff_0000_ffff;
        let half = (half | half << 8) & 0x00ff_00ff_00ff_00ff;
        (half | half << 4) & 0x0f0f_0f0f_0f0f_0f0f
    };
    let digits = |halves: u64| {
        let letters = (halves + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101; // one in each byte that is ten or more
        halves + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'9' - 1)
    };
    let mut text = [0; 16];
    text[..8].copy_from_slice(&digits(spread(number >> 32)).to_be_bytes());
    text[8..].copy_from_slice(&digits(spread(number & 0xffff_ffff)).to_be_bytes());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_decimal_takes_digits_only() {
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
    fn numbers_are_written_as_format_writes_them() {
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
