//! The names of messages.

use std::fmt;
use std::str::FromStr;

/// The name of a message: 128 random bits, so that nobody guesses the name of somebody else's. Written as 32 hexadecimal
/// digits in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub [u8; 16]);

/// A text that is not an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnId;

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Id {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return Err(NotAnId); // one spelling for each
        }
        u128::from_str_radix(text, 16).map(|number| Self(number.to_be_bytes())).map_err(|_| NotAnId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        let id = Id(0x0123_4567_89ab_cdef_0000_0000_0000_00ff_u128.to_be_bytes());
        assert_eq!(id.to_string(), "0123456789abcdef00000000000000ff");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "+123456789abcdef00000000000000ff", "0123456789ABCDEF00000000000000FF", "ff"] {
            assert_eq!(text.parse::<Id>(), Err(NotAnId), "{text}");
        }
    }
}
