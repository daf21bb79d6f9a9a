//! Numbers as text.

/// A number in decimal, written into the end of `digits`.
pub fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
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
    const HEX: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|i| HEX[(number >> (60 - 4 * i)) as usize & 15])
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
        for number in [0, 7, 10, 99, 100, 101, 999, 1000, 1_234_567_890, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
            assert_eq!(hex(number), *format!("{number:016x}").as_bytes());
        }
    }
}
