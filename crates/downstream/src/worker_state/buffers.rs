//! Buffers of a worker that its connections share: a connection that waits holds none.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use jiff::fmt::rfc2822::DateTimePrinter;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The size of the read buffers, in bytes. Bodies of 32 and 64 KiB come in one and two pieces together with their heads, instead
/// of with a last piece of some hundred bytes. Larger buffers fit the caches of processors worse: with 64 KiB, bodies of 1 MiB
/// took 1.4 times as long.
pub const READ_SIZE: usize = 36 << 10;
/// The largest write buffer that is kept, in bytes.
const MAX_KEPT: usize = 64 << 10;
/// The most write buffers that are kept: one for a client and one for a server are in use at the same time.
const SPARE: usize = 2;

/// The buffers of a worker, and the present value of the Date header.
pub struct Buffers {
    /// The read buffer for readers that keep parts of it.
    shared: RefCell<BytesMut>,
    /// The read buffer for readers that return it.
    read: Cell<Vec<u8>>,
    write: RefCell<Vec<Vec<u8>>>,
    date: Cell<[u8; 29]>,
    second: Cell<i64>,
}

impl Buffers {
    /// Buffers without memory; `now` is the time for the Date header.
    pub(crate) fn new(now: jiff::Timestamp) -> Self {
        let buffers = Self {
            shared: RefCell::default(),
            read: Cell::default(),
            write: RefCell::default(),
            date: Cell::new([b' '; 29]),
            second: Cell::new(i64::MIN),
        };
        buffers.set_date(now);
        buffers
    }

    /// Reads from a stream; the result is empty at its end. Memory is taken only when bytes have arrived. At least `room` bytes
    /// fit.
    pub fn poll_read(
        &self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
        room: usize,
    ) -> Poll<io::Result<BytesMut>> {
        let mut buffer = self.shared.borrow_mut();
        // If no part of it is referenced any more, it is reused from its beginning, which is likely in the processor's cache.
        if buffer.capacity() < READ_SIZE && !buffer.try_reclaim(READ_SIZE) && buffer.capacity() < room {
            buffer.reserve(READ_SIZE);
        }
        // `ReadBuf` has no state between polls, so a new one at each poll is correct.
        ready!(pin!(stream.read_buf(&mut *buffer)).poll(cx))?;
        Poll::Ready(Ok(buffer.split()))
    }

    /// Takes a buffer to read into. Its content is arbitrary.
    pub fn take_read_buffer(&self) -> Vec<u8> {
        let mut buffer = self.read.take();
        buffer.resize(READ_SIZE, 0);
        buffer
    }

    /// Returns it for reuse.
    pub fn return_read_buffer(&self, buffer: Vec<u8>) {
        self.read.set(buffer);
    }

    /// Takes an empty buffer to write into.
    pub fn take_write_buffer(&self) -> Vec<u8> {
        self.write.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns it for reuse.
    pub fn return_write_buffer(&self, mut buffer: Vec<u8>) {
        let mut spare = self.write.borrow_mut();
        if buffer.capacity() <= MAX_KEPT && spare.len() < SPARE {
            buffer.clear();
            spare.push(buffer);
        }
    }

    /// The value of the Date header (RFC 9110 §5.6.7).
    pub fn date(&self) -> [u8; 29] {
        self.date.get()
    }

    /// Sets the time for the Date header.
    pub fn set_date(&self, now: jiff::Timestamp) {
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
