//! The socket of an HTTP/2 connection as the library sees it: its frames are watched, and it has deadlines for a frame that
//! is begun and not ended, and for a client that takes nothing.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::connection::Connection;
use super::super::deadline::Deadline;
use super::super::stream::ClientStream;
use super::watch::Watch;
use crate::observe::Cut;

/// What is still read of a client that is cut off, so that closing does not take back what it was told.
const LEFT: usize = 64 << 10;

/// A socket whose frames are watched.
pub(super) struct Io {
    stream: ClientStream,
    link: Rc<Connection>,
    /// What was read to tell the protocols apart.
    prefix: Bytes,
    watch: Watch,
    /// One for a frame that is not whole, one for room for what is written. They only wake.
    wakes: Rc<Deadline>,
    /// When the frame that is not whole has to be.
    whole_by: Option<u64>,
    /// When there has to be room for what is written.
    room_by: Option<u64>,
    /// When something came last: the worker's milliseconds.
    heard: Rc<Cell<u64>>,
}

impl Io {
    /// `begun` counts the requests that the library passes on, `heard` is told when something comes.
    pub(super) fn new(
        stream: ClientStream,
        link: Rc<Connection>,
        prefix: Bytes,
        begun: Rc<Cell<i64>>,
        heard: Rc<Cell<u64>>,
    ) -> Self {
        let deadlines = &link.worker.deadlines;
        let watch = Watch::new(begun, deadlines.now());
        let wakes = deadlines.register(u64::MAX); // no group: it ends with its connection
        Self { stream, link, prefix, watch, wakes, whole_by: None, room_by: None, heard }
    }

    fn count(&self, cut: Cut) {
        self.link.worker.shared().metrics.cuts.count(cut);
    }

    /// Ends the connection: the client is told why, as far as it listens.
    fn cut_off(&mut self, context: &mut Context<'_>, cut: Cut) -> io::Error {
        self.count(cut);
        if let Some(farewell) = self.watch.farewell()
            && let Poll::Ready(Ok(_)) = Pin::new(&mut self.stream).poll_write(context, &farewell)
            && let Poll::Ready(Ok(())) = Pin::new(&mut self.stream).poll_flush(context)
        {
            let _ = Pin::new(&mut self.stream).poll_shutdown(context);
            let mut left = LEFT;
            let mut buffer = [0; 4 << 10];
            while left > 0 {
                let mut buffer = ReadBuf::new(&mut buffer);
                let Poll::Ready(Ok(())) = Pin::new(&mut self.stream).poll_read(context, &mut buffer) else {
                    break;
                };
                if buffer.filled().is_empty() {
                    break;
                }
                left = left.saturating_sub(buffer.filled().len());
            }
        }
        io::ErrorKind::ConnectionAborted.into()
    }

    /// Looks at what came, and sets or clears the time for the rest of a frame.
    fn received(&mut self, bytes: &[u8]) {
        let now = self.link.worker.deadlines.now();
        self.heard.set(now);
        let greeted = self.watch.greeted();
        self.watch.received(bytes, now);
        if !greeted && self.watch.greeted() && self.link.is_idle() {
            // It speaks: from now on it may wait for its first request.
            self.link
                .deadline
                .set_socket(Some(self.link.worker.deadlines.after(self.link.worker.client().idle)));
        }
        if !self.watch.unfinished() {
            self.whole_by = None;
        } else if self.whole_by.is_none() {
            let by = self.link.worker.deadlines.after(self.link.worker.client().head);
            self.whole_by = Some(by);
            self.wakes.set_request(Some(by));
        }
    }

    /// While there is no room for what is written there is a deadline; with any room it is put off.
    fn note_write<T>(&mut self, context: &Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let deadlines = &self.link.worker.deadlines;
        match (result.is_pending(), self.room_by) {
            (false, _) => self.room_by = None,
            (true, None) => {
                let by = deadlines.after(self.link.worker.client().write);
                self.room_by = Some(by);
                self.wakes.watch(context);
                self.wakes.set_socket(Some(by));
            }
            (true, Some(by)) if deadlines.now() >= by => {
                self.count(Cut::Slow);
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            (true, Some(_)) => {}
        }
        result
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = &mut *self;
        if let Some(cut) = me.watch.cut() {
            return Poll::Ready(Err(me.cut_off(context, cut)));
        }
        if me.watch.take_breath() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        if me.prefix.is_empty() {
            let polled = Pin::new(&mut me.stream).poll_read(context, buf);
            if polled.is_pending() {
                me.watch.rests();
                if me.whole_by.is_some_and(|by| me.link.worker.deadlines.now() >= by) {
                    return Poll::Ready(Err(me.cut_off(context, Cut::Slow)));
                }
                me.wakes.watch(context);
            }
            ready!(polled)?;
        } else {
            let length = me.prefix.len().min(buf.remaining());
            buf.put_slice(&me.prefix.split_to(length));
        }
        me.received(&buf.filled()[before..]);
        match me.watch.cut() {
            Some(cut) => Poll::Ready(Err(me.cut_off(context, cut))),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = result
            && self.watch.sent(&bytes[..written])
        {
            self.count(Cut::Protocol);
        }
        self.note_write(context, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
