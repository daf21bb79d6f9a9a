//! Bodies of HTTP/1.1 messages in the chunked transfer coding.

use std::task::Poll;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use sluicegate_wire::h1::{BodyDecoder, BodyFraming, Decoded, MessageEncoder};

use super::{in_pieces, piece_lengths};

/// What a decoder may leave unused while it waits for more: less than the longest trailer section.
const WAITING: usize = 8 << 10;

/// A body and its trailers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Body {
    data: Vec<u8>,
    trailers: Option<HeaderMap>,
}

/// Decodes a body that arrives in these pieces, and returns what is left behind it; or `None` if it is not complete.
fn decode<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> Result<Option<(Body, Vec<u8>)>, &'static str> {
    let (mut decoder, mut body) = (BodyDecoder::chunked(), Body::default());
    in_pieces(pieces, |read| {
        loop {
            assert!(
                body.trailers.is_none() || decoder == BodyDecoder::Ended,
                "nothing comes behind trailers"
            );
            let before = read.len();
            match decoder.decode(read)? {
                Decoded::End => return Ok(Some(body.clone())),
                Decoded::NeedMore => {
                    assert!(
                        read.len() < WAITING && read.len() <= before,
                        "{} bytes are not used",
                        read.len()
                    );
                    return Ok(None);
                }
                Decoded::Frame(frame) => match frame.into_data() {
                    Ok(data) => {
                        assert!(!data.is_empty() && read.len() + data.len() <= before);
                        body.data.extend_from_slice(&data);
                    }
                    Err(frame) => body.trailers = frame.into_trailers().ok(),
                },
            }
        }
    })
}

/// The bytes of a chunked body and what follows it.
///
/// - In any pieces the body, its trailers, and what is left are the same, and an error is an error.
/// - What is not used while more is needed is bounded.
/// - Bytes behind the body do not change it, and no part of it is a body.
/// - A body that was accepted is, written by our encoder, read as the same.
pub fn chunked_body(data: &[u8]) {
    let whole = decode(std::iter::once(data));
    for length in piece_lengths(data) {
        let split = decode(data.chunks(length));
        match &whole {
            Ok(whole) => assert_eq!(split.as_ref(), Ok(whole), "in pieces of {length}"),
            Err(_) => assert!(split.is_err(), "in pieces of {length}"),
        }
    }
    let Ok(Some((body, rest))) = whole else { return };
    let used = data.len() - rest.len();
    assert_eq!(rest[..], data[used..]);
    assert!(data[..used].ends_with(b"\r\n"));
    assert_eq!(decode(std::iter::once(&data[..used])), Ok(Some((body.clone(), Vec::new()))));
    for end in (0..used).rev().take(60) {
        assert_eq!(decode(std::iter::once(&data[..end])), Ok(None), "at {end} of {used}");
    }
    let shortest = if body.data.len() <= 200 { 1 } else { 97 };
    for length in [shortest, 20 << 10] {
        let written = encode(&body, length);
        assert_eq!(decode(std::iter::once(&written[..])), Ok(Some((body.clone(), Vec::new()))));
    }
}

/// Writes a body in chunks of this length.
fn encode(body: &Body, length: usize) -> Vec<u8> {
    let mut encoder = MessageEncoder::new(Vec::new(), BodyFraming::Chunked);
    let mut written = BytesMut::new();
    let mut flush = |encoder: &mut MessageEncoder| {
        let all = encoder.poll_write(|slices| {
            let before = written.len();
            written.extend(slices.iter().flat_map(|slice| slice.iter()).take(1_000));
            Poll::Ready(Ok(written.len() - before))
        });
        assert!(matches!(all, Poll::Ready(Ok(()))));
    };
    for chunk in body.data.chunks(length) {
        if !encoder.has_room() {
            flush(&mut encoder);
        }
        encoder.write_data(Bytes::copy_from_slice(chunk)).expect("chunks have any length");
    }
    encoder.finish(body.trailers.as_ref()).expect("chunks have any length");
    assert!(encoder.is_complete());
    flush(&mut encoder);
    written.to_vec()
}
