//! Header compression (RFC 7541): field blocks to fields, and fields to field blocks. It knows nothing of frames.
//!
//! `decode` reads field blocks with the tables in `table`; `huffman` decodes strings. `encode` writes fields without state,
//! `encoder_table` adds a dynamic table for fields that responses repeat.

mod decode;
mod encode;
mod encoder_table;
mod error;
mod huffman;
mod table;
#[cfg(test)]
mod tests;

pub use self::decode::Decoder;
#[cfg(test)]
pub(super) use self::encode::field;
pub use self::encode::status;
pub use self::encoder_table::Encoder;
pub use self::error::HpackError;
pub use self::table::DEFAULT_TABLE_SIZE;
