//! What the fuzz targets of the codecs run, and what must hold for every input. `crates/wire/tests/fuzz_corpus.rs` runs
//! the same functions over the corpus and over mutations of it.

#![allow(clippy::expect_used, reason = "an input that breaks an expectation is what is searched for")]

mod chunked_body;
mod frames;
mod h2_client;
mod h2_frames;
mod h2_session;
mod hpack;
mod proxy_header;
mod request_head;
mod upstream_answer;

pub use self::chunked_body::chunked_body;
pub use self::h2_frames::h2_frames;
pub use self::h2_session::h2_session;
pub use self::hpack::hpack;
pub use self::proxy_header::proxy_header;
pub use self::request_head::request_head;
pub use self::upstream_answer::upstream_answer;

use bytes::BytesMut;
use sluicegate_wire::Headers;

/// The bytes of a fuzz input, read from the front.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// The next byte.
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next two bytes as a number, high byte first.
    fn number(&mut self) -> Option<usize> {
        Some(usize::from(self.byte()?) << 8 | usize::from(self.byte()?))
    }

    /// The next `length` bytes, or as many as there are.
    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

/// What a codec of HTTP/1.1 makes of bytes that arrive in pieces: `decode` is called with all that has arrived and is not
/// used yet, until it returns something. Returns that, and what is left.
fn in_pieces<'p, T, E>(
    pieces: impl Iterator<Item = &'p [u8]>,
    mut decode: impl FnMut(&mut BytesMut) -> Result<Option<T>, E>,
) -> Result<Option<(T, Vec<u8>)>, E> {
    let (mut read, mut done) = (BytesMut::new(), None);
    for piece in pieces {
        read.extend_from_slice(piece);
        if done.is_none() {
            done = decode(&mut read)?;
        }
    }
    Ok(done.map(|done| (done, read.to_vec())))
}

/// Lengths of pieces in which an input is tried as well, besides all at once. Long inputs are not tried byte by byte.
fn piece_lengths(data: &[u8]) -> impl Iterator<Item = usize> {
    let shortest = if data.len() <= 512 { 1 } else { 61 };
    [shortest, 3, 17, 1_000].into_iter().filter(move |length| *length >= shortest)
}

/// What holds for all fields that a decoder accepts: names are tokens in lower case, values have no control characters
/// but tabs and no blanks around them.
fn check_fields(headers: &Headers) {
    for (name, value) in headers.iter() {
        assert!(!name.is_empty());
        for byte in name {
            let is_token = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
            assert!(is_token && !byte.is_ascii_uppercase(), "{name:?}");
        }
        assert!(value.iter().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e | 0x80..)), "{value:?}");
        assert_eq!(value, value.trim_ascii());
    }
}

/// The fields, to be compared.
fn fields(headers: &Headers) -> Vec<(Vec<u8>, Vec<u8>)> {
    headers.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}
