//! Header values and small bodies without an allocation each: they are cut from one piece of memory a worker.

use std::cell::RefCell;
use std::fmt::{Display, Write as _};

use bytes::{Bytes, BytesMut};
use http::HeaderValue;

/// A piece lasts for some hundred values; one that is used up lives on in the values that were cut from it.
const PIECE: usize = 8 << 10;

/// Numbers that are remembered: those of a second are the same again and again.
const REMEMBERED: usize = 1024;

/// Memory that answers are cut from.
pub struct Scratch {
    piece: RefCell<BytesMut>,
    /// Each under its last digits. They own their memory: a piece is not kept for one of them.
    numbers: RefCell<Box<[(u64, HeaderValue)]>>,
}

/// Writes one value.
pub struct Writer<'a>(&'a mut BytesMut);

impl Default for Scratch {
    fn default() -> Self {
        let numbers = (0..REMEMBERED as u64).map(|number| (number, HeaderValue::from(number))).collect();
        Self { piece: RefCell::new(BytesMut::new()), numbers: RefCell::new(numbers) }
    }
}

impl Scratch {
    /// A number as a header value.
    pub fn number(&self, number: u64) -> HeaderValue {
        let entry = &mut self.numbers.borrow_mut()[number as usize % REMEMBERED];
        if entry.0 != number {
            *entry = (number, HeaderValue::from(number));
        }
        entry.1.clone()
    }

    /// The bytes that `write` writes.
    pub fn bytes(&self, write: impl FnOnce(&mut Writer<'_>)) -> Bytes {
        let mut piece = self.piece.borrow_mut();
        if piece.capacity() < 64 {
            *piece = BytesMut::with_capacity(PIECE);
        }
        write(&mut Writer(&mut piece));
        piece.split().freeze()
    }

    /// The value that `write` writes; empty if it is none that a header can have.
    pub fn value(&self, write: impl FnOnce(&mut Writer<'_>)) -> HeaderValue {
        HeaderValue::from_maybe_shared(self.bytes(write)).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

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

impl Writer<'_> {
    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Writes a number in decimal.
    pub fn number(&mut self, number: u64) {
        self.bytes(decimal(number, &mut [0; 20]));
    }

    /// Writes 16 hexadecimal digits.
    pub fn hex(&mut self, number: u64) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let digits: [u8; 16] = std::array::from_fn(|i| HEX[(number >> (60 - 4 * i)) as usize & 15]);
        self.bytes(&digits);
    }

    /// Writes what a value displays.
    pub fn display(&mut self, value: &impl Display) {
        let _ = write!(self.0, "{value}"); // memory grows; nothing fails
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_as_written() {
        let scratch = Scratch::default();
        for number in [0, 7, 10, 1_234_567_890, u64::MAX] {
            assert_eq!(scratch.number(number), number.to_string());
        }
        assert_eq!(scratch.value(|out| out.hex(0xab)), "00000000000000ab");
        assert_eq!(scratch.value(|out| out.bytes(b"a\nb")), "", "what no header can have is not sent");
    }
}
