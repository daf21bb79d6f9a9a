//! Memory of a worker that its connections read into and write from: one that waits holds none.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use jiff::fmt::rfc2822::DateTimePrinter;
use tokio::io::{AsyncRead, AsyncReadExt};

/// What connections read into, piece by piece.
const PIECE: usize = 32 << 10;
/// What is written from is kept unless it grew beyond this.
const KEPT: usize = 64 << 10;
/// So many are written from at once: one for a client, and one for a server while the former is.
const SPARE: usize = 2;

/// The buffers of a worker, and the time of day as answers tell it.
pub struct Buffers {
    piece: RefCell<BytesMut>,
    /// The same for those that keep nothing of what they read.
    piece_of_frames: Cell<Vec<u8>>,
    out: RefCell<Vec<Vec<u8>>>,
    date: Cell<[u8; 29]>,
    second: Cell<i64>,
}

impl Buffers {
    /// Buffers that have no memory yet, at this time.
    pub(crate) fn new(now: jiff::Timestamp) -> Self {
        let buffers = Self {
            piece: RefCell::default(),
            out: RefCell::default(),
            date: Cell::new([b' '; 29]),
            second: Cell::new(i64::MIN),
            piece_of_frames: Cell::default(),
        };
        buffers.set_date(now);
        buffers
    }

    /// Reads some more, which costs its reader no memory before it is there; nothing at the end. There is `room` for so
    /// many bytes at least.
    pub(crate) fn poll_read(
        &self,
        stream: &mut (impl AsyncRead + Unpin),
        context: &mut Context<'_>,
        room: usize,
    ) -> Poll<io::Result<BytesMut>> {
        let mut piece = self.piece.borrow_mut();
        // If nobody has any of it any more it is read into from its beginning, which the processor has at hand.
        if piece.capacity() < PIECE && !piece.try_reclaim(PIECE) && piece.capacity() < room {
            piece.reserve(PIECE);
        }
        // A read keeps nothing between polls, so a new one each time loses nothing.
        ready!(pin!(stream.read_buf(&mut *piece)).poll(context))?;
        Poll::Ready(Ok(piece.split()))
    }

    /// A buffer to read into, whatever stands in it.
    pub(crate) fn take_in(&self) -> Vec<u8> {
        let mut piece = self.piece_of_frames.take();
        piece.resize(PIECE, 0);
        piece
    }

    /// Gives it back for the next.
    pub(crate) fn give_in(&self, piece: Vec<u8>) {
        self.piece_of_frames.set(piece);
    }

    /// An empty buffer to write into.
    pub(crate) fn take_out(&self) -> Vec<u8> {
        self.out.borrow_mut().pop().unwrap_or_default()
    }

    /// Gives it back for the next.
    pub(crate) fn give_back(&self, mut out: Vec<u8>) {
        let mut spare = self.out.borrow_mut();
        if out.capacity() <= KEPT && spare.len() < SPARE {
            out.clear();
            spare.push(out);
        }
    }

    /// The time of day for the header Date (RFC 9110 §5.6.7).
    pub(crate) fn date(&self) -> [u8; 29] {
        self.date.get()
    }

    /// Notes the time of day.
    pub(crate) fn set_date(&self, now: jiff::Timestamp) {
        if now.as_second() == self.second.replace(now.as_second()) {
            return;
        }
        let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&now);
        if let Some(date) = text.ok().and_then(|text| text.as_bytes().try_into().ok()) {
            self.date.set(date);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_as_http_has_it() {
        let buffers = Buffers::new(jiff::Timestamp::from_second(784_111_777).unwrap());
        assert_eq!(&buffers.date(), b"Sun, 06 Nov 1994 08:49:37 GMT");
        buffers.set_date(jiff::Timestamp::from_second(1_795_000_000).unwrap());
        assert_eq!(&buffers.date(), b"Wed, 18 Nov 2026 11:06:40 GMT");
    }
}
