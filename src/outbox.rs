//! An HTTP/1.1 message on its way out, a request or an answer (RFC 9112 §6, §7.1): its head and small pieces of its body are
//! gathered and written together, larger pieces are written from where they are.

use std::io;
use std::task::{Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;

use crate::fields::write_line;
use crate::trailers::may_come_behind;

/// What is gathered before it is written; a larger piece is written from where it is.
const FLAT: usize = 16 << 10;

/// How the rest of a body goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// There is none, or no more.
    Ended,
    /// This many bytes are still to come.
    Length(u64),
    /// In chunks.
    Chunked,
    /// Until the connection closes.
    UntilClose,
}

/// A body is longer or shorter than the head says.
#[derive(Debug)]
pub(crate) struct Mismatch;

/// A message on its way out.
pub(crate) struct Outbox {
    out: Vec<u8>,
    /// How much of `out` is written.
    written: usize,
    /// A piece that is too large to be gathered, behind `out`.
    piece: Bytes,
    coding: Coding,
}

impl Outbox {
    /// A message with this head, of which nothing is written yet.
    #[inline]
    pub(crate) fn new(head: Vec<u8>, coding: Coding) -> Self {
        // Of a body of this length nothing is to come.
        let coding = if coding == Coding::Length(0) { Coding::Ended } else { coding };
        Self { out: head, written: 0, piece: Bytes::new(), coding }
    }

    /// Whether more of the body can be gathered.
    pub(crate) fn has_room(&self) -> bool {
        self.piece.is_empty() && self.out.len() - self.written < FLAT
    }

    /// Whether all of the body is gathered.
    pub(crate) fn has_all(&self) -> bool {
        self.coding == Coding::Ended
    }

    /// Gathers a body as a whole, as long as the head says.
    #[inline]
    pub(crate) fn whole(&mut self, body: &[u8]) {
        self.out.extend_from_slice(body);
        self.coding = Coding::Ended;
    }

    /// Gathers some of the body.
    pub(crate) fn data(&mut self, data: Bytes) -> Result<(), Mismatch> {
        if data.is_empty() {
            return Ok(()); // an empty chunk would be the last
        }
        if self.written >= FLAT {
            self.out.drain(..self.written); // what is written does not add up while some is always left
            self.written = 0;
        }
        match &mut self.coding {
            Coding::Length(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(Mismatch)?;
                if *left == 0 {
                    self.coding = Coding::Ended;
                }
            }
            Coding::Chunked => write_size(&mut self.out, data.len()),
            Coding::UntilClose => {}
            Coding::Ended => return Err(Mismatch),
        }
        if data.len() <= FLAT {
            self.out.extend_from_slice(&data);
            self.end_chunk();
        } else {
            self.piece = data;
        }
        Ok(())
    }

    /// The body has ended.
    pub(crate) fn end(&mut self, trailers: Option<&HeaderMap>) -> Result<(), Mismatch> {
        match self.coding {
            Coding::Length(_) => return Err(Mismatch),
            Coding::Chunked => {
                self.out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().flatten().filter(|(name, _)| may_come_behind(name))
                {
                    write_line(&mut self.out, name.as_ref(), value.as_bytes());
                }
                self.out.extend_from_slice(b"\r\n");
            }
            Coding::UntilClose | Coding::Ended => {}
        }
        self.coding = Coding::Ended;
        Ok(())
    }

    fn end_chunk(&mut self) {
        if self.coding == Coding::Chunked {
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// Writes all that is gathered. The end of a large chunk is left to go with what comes next.
    pub(crate) fn poll(
        &mut self,
        mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        let mut write = |bytes: &[u8]| match ready!(write(bytes)) {
            Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            result => Poll::Ready(result),
        };
        while self.written < self.out.len() {
            self.written += ready!(write(&self.out[self.written..]))?;
        }
        self.out.clear();
        self.written = 0;
        while !self.piece.is_empty() {
            let written = ready!(write(&self.piece))?;
            self.piece.advance(written);
            if self.piece.is_empty() {
                self.end_chunk();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The memory that it was written from.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }
}

/// Writes the line of a chunk's size.
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

    /// All that is written of these pieces, three bytes at a time.
    fn written(coding: Coding, pieces: &[&[u8]]) -> Result<Vec<u8>, Mismatch> {
        let (mut outbox, mut all) = (Outbox::new(b"head ".to_vec(), coding), Vec::new());
        let mut flush = |outbox: &mut Outbox| {
            let done = outbox.poll(|bytes| {
                let some = bytes.len().min(3);
                all.extend_from_slice(&bytes[..some]);
                Poll::Ready(Ok(some))
            });
            assert!(matches!(done, Poll::Ready(Ok(()))));
        };
        for piece in pieces {
            outbox.data(Bytes::copy_from_slice(piece))?;
            assert_eq!(outbox.has_room(), piece.len() < FLAT);
            flush(&mut outbox);
        }
        outbox.end(None)?;
        assert!(outbox.has_all());
        flush(&mut outbox);
        Ok(all)
    }

    #[test]
    fn a_body_goes_out_as_it_is_framed() {
        assert_eq!(written(Coding::Length(5), &[b"he", b"", b"llo"]).unwrap(), b"head hello");
        assert_eq!(written(Coding::UntilClose, &[b"he", b"llo"]).unwrap(), b"head hello");
        assert_eq!(
            written(Coding::Chunked, &[b"he", b"", b"llo"]).unwrap(),
            b"head 2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
        );
        let large = vec![b'x'; FLAT + 1];
        let chunked = written(Coding::Chunked, &[b"y", &large, b"z"]).unwrap();
        let wanted = [b"head 1\r\ny\r\n4001\r\n", &large[..], b"\r\n1\r\nz\r\n0\r\n\r\n"].concat();
        assert!(chunked == wanted);
    }

    #[test]
    fn no_more_and_no_less_goes_out_than_the_head_says() {
        assert!(written(Coding::Length(5), &[b"hello!"]).is_err());
        assert!(written(Coding::Length(5), &[b"hello", b"!"]).is_err());
        assert!(written(Coding::Length(5), &[b"hell"]).is_err());
        assert!(written(Coding::Length(0), &[b"x"]).is_err());
        assert_eq!(written(Coding::Length(0), &[]).unwrap(), b"head ");
    }
}
