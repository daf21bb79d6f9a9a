//! Encodes an HTTP/1.1 message, a request or a response (RFC 9112 §6, §7.1). The head and small pieces of the body are
//! gathered and written together; larger pieces are written without a copy.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::Body;

use crate::headers::write_line;
use crate::trailers::is_allowed_in_trailers;

/// Bytes that are gathered before they are written; a larger piece of a body is not copied.
const FLAT: usize = 16 << 10;

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// The body has ended, or there is none.
    Ended,
    /// This many bytes are still to come.
    Length(u64),
    /// The chunked transfer coding.
    Chunked,
    /// The body ends when the connection closes.
    UntilClose,
}

/// Why a body was not encoded to its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError<E> {
    /// The body failed.
    #[error(transparent)]
    Body(E),
    /// The body is longer or shorter than its Content-Length.
    #[error("the body does not have the announced length")]
    Length,
}

/// A body is longer or shorter than its Content-Length.
#[derive(Debug)]
pub struct LengthMismatch;

impl<E> From<LengthMismatch> for BodyError<E> {
    fn from(LengthMismatch: LengthMismatch) -> Self {
        Self::Length
    }
}

/// A message that is being written.
pub struct MessageEncoder {
    out: Vec<u8>,
    /// How much of `out` is written.
    written: usize,
    /// A piece of the body that follows `out` and is too large to be copied into it.
    piece: Bytes,
    framing: BodyFraming,
}

impl MessageEncoder {
    /// A message that begins with this head, which must match the framing.
    #[inline]
    pub fn new(head: Vec<u8>, framing: BodyFraming) -> Self {
        let framing = if framing == BodyFraming::Length(0) { BodyFraming::Ended } else { framing };
        Self { out: head, written: 0, piece: Bytes::new(), framing }
    }

    /// Whether more of the body can be added before something is written.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.piece.is_empty() && self.out.len() - self.written < FLAT
    }

    /// Whether the whole body was added.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.framing == BodyFraming::Ended
    }

    /// Adds the whole body, which has the announced length.
    #[inline]
    pub fn write_all(&mut self, body: &[u8]) {
        self.out.extend_from_slice(body);
        self.framing = BodyFraming::Ended;
    }

    /// Adds the frames of a body that are available, as long as there is room; trailers only if `trailers` is set. Pending if
    /// the next frame has to be waited for.
    ///
    /// # Errors
    /// The body failed, or does not have the announced length.
    pub fn poll_add<B: Body<Data = Bytes>>(
        &mut self,
        mut body: Pin<&mut B>,
        cx: &mut Context<'_>,
        trailers: bool,
    ) -> Poll<Result<(), BodyError<B::Error>>> {
        while self.has_room() && !self.is_complete() {
            match ready!(body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.write_data(data)?,
                    Err(frame) => self.finish(frame.trailers_ref().filter(|_| trailers))?,
                },
                Some(Err(error)) => return Poll::Ready(Err(BodyError::Body(error))),
                None => self.finish(None)?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Adds some of the body.
    ///
    /// # Errors
    /// It is longer than announced.
    pub fn write_data(&mut self, data: Bytes) -> Result<(), LengthMismatch> {
        if data.is_empty() {
            return Ok(()); // an empty chunk would end the body
        }
        if self.written >= FLAT {
            self.out.drain(..self.written); // else `out` would grow while it is never empty
            self.written = 0;
        }
        match &mut self.framing {
            BodyFraming::Length(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(LengthMismatch)?;
                if *left == 0 {
                    self.framing = BodyFraming::Ended;
                }
            }
            BodyFraming::Chunked => write_size(&mut self.out, data.len()),
            BodyFraming::UntilClose => {}
            BodyFraming::Ended => return Err(LengthMismatch),
        }
        if data.len() <= FLAT {
            self.out.extend_from_slice(&data);
            self.end_chunk();
        } else {
            self.piece = data;
        }
        Ok(())
    }

    /// Ends the body. Trailers are written if the body is chunked, except those that are not allowed.
    ///
    /// # Errors
    /// It is shorter than announced.
    pub fn finish(&mut self, trailers: Option<&HeaderMap>) -> Result<(), LengthMismatch> {
        match self.framing {
            BodyFraming::Length(_) => return Err(LengthMismatch),
            BodyFraming::Chunked => {
                self.out.extend_from_slice(b"0\r\n");
                for (name, value) in
                    trailers.into_iter().flatten().filter(|(name, _)| is_allowed_in_trailers(name))
                {
                    write_line(&mut self.out, name.as_ref(), value.as_bytes());
                }
                self.out.extend_from_slice(b"\r\n");
            }
            BodyFraming::UntilClose | BodyFraming::Ended => {}
        }
        self.framing = BodyFraming::Ended;
        Ok(())
    }

    fn end_chunk(&mut self) {
        if self.framing == BodyFraming::Chunked {
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// Has everything written that was added, by `write`, which gets one or two slices and returns how many bytes it took. The
    /// CR LF after a large chunk is left to be written together with the next one.
    ///
    /// # Errors
    /// Those of `write`, and `WriteZero` if it takes no bytes.
    pub fn poll_write(
        &mut self,
        mut write: impl FnMut(&[IoSlice<'_>]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        let has_piece = !self.piece.is_empty();
        while self.written < self.out.len() || !self.piece.is_empty() {
            let (out, piece) = (&self.out[self.written..], &self.piece[..]);
            let slices = [IoSlice::new(out), IoSlice::new(piece)];
            let written = ready!(write(match (out.is_empty(), piece.is_empty()) {
                (true, _) => &slices[1..],
                (_, true) => &slices[..1],
                _ => &slices,
            }))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_out = written.min(out.len());
            self.written += of_out;
            self.piece.advance(written - of_out);
        }
        self.out.clear();
        self.written = 0;
        if has_piece {
            self.end_chunk();
        }
        Poll::Ready(Ok(()))
    }

    /// Takes the buffer out, to be used again.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }
}

/// Appends the size line of a chunk.
fn write_size(out: &mut Vec<u8>, size: usize) {
    let digits = (67 - (size as u64).leading_zeros() as usize) / 4;
    for at in (0..digits).rev() {
        out.push(b"0123456789abcdef"[size >> (4 * at) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes these pieces and writes them three bytes at a time.
    fn written(framing: BodyFraming, pieces: &[&[u8]]) -> Result<Vec<u8>, LengthMismatch> {
        let (mut encoder, mut all) = (MessageEncoder::new(b"head ".to_vec(), framing), Vec::new());
        let mut flush = |encoder: &mut MessageEncoder| {
            let done = encoder.poll_write(|slices| {
                let bytes = slices.iter().flat_map(|slice| slice.iter());
                let before = all.len();
                all.extend(bytes.take(3));
                Poll::Ready(Ok(all.len() - before))
            });
            assert!(matches!(done, Poll::Ready(Ok(()))));
        };
        for piece in pieces {
            encoder.write_data(Bytes::copy_from_slice(piece))?;
            assert_eq!(encoder.has_room(), piece.len() < FLAT);
            flush(&mut encoder);
        }
        encoder.finish(None)?;
        assert!(encoder.is_complete());
        flush(&mut encoder);
        Ok(all)
    }

    #[test]
    fn bodies_are_framed() {
        assert_eq!(written(BodyFraming::Length(5), &[b"he", b"", b"llo"]).unwrap(), b"head hello");
        assert_eq!(written(BodyFraming::UntilClose, &[b"he", b"llo"]).unwrap(), b"head hello");
        assert_eq!(
            written(BodyFraming::Chunked, &[b"he", b"", b"llo"]).unwrap(),
            b"head 2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
        );
        let large = vec![b'x'; FLAT + 1];
        let chunked = written(BodyFraming::Chunked, &[&large]).unwrap();
        assert!(chunked == [b"head 4001\r\n", &large[..], b"\r\n0\r\n\r\n"].concat());
        let chunked = written(BodyFraming::Chunked, &[b"y", &large, b"z"]).unwrap();
        let wanted = [b"head 1\r\ny\r\n4001\r\n", &large[..], b"\r\n1\r\nz\r\n0\r\n\r\n"].concat();
        assert!(chunked == wanted);
    }

    #[test]
    fn a_body_has_the_announced_length() {
        assert!(written(BodyFraming::Length(5), &[b"hello!"]).is_err());
        assert!(written(BodyFraming::Length(5), &[b"hello", b"!"]).is_err());
        assert!(written(BodyFraming::Length(5), &[b"hell"]).is_err());
        assert!(written(BodyFraming::Length(0), &[b"x"]).is_err());
        assert_eq!(written(BodyFraming::Length(0), &[]).unwrap(), b"head ");
    }
}
