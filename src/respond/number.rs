//! Numbers as text.

/// A number in decimal, written into the end of `digits`.
pub fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

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
        for number in [0, 7, 10, 1_234_567_890, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
            assert_eq!(hex(number), *format!("{number:016x}").as_bytes());
        }
    }
}
