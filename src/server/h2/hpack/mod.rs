//! Header compression of HTTP/2 (RFC 7541): header blocks to lines, lines to header blocks. Knows no frame and no socket.
//!
//! `decode` reads a block, by the tables in `table`; `huffman` reads strings. `encode` writes lines and keeps nothing, `repeat`
//! those that answers repeat.

mod decode;
mod encode;
mod huffman;
mod repeat;
mod table;
#[cfg(test)]
mod tests;

pub(super) use self::decode::{Decoder, Malformed};
#[cfg(test)]
pub(super) use self::encode::field;
pub(super) use self::encode::status;
pub(super) use self::repeat::Encoder;
pub(super) use self::table::TABLE;
