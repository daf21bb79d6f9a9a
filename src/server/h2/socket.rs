//! The socket of an HTTP/2 connection: frames are read off it and written to it, with deadlines for a frame that is begun
//! and not ended, and for a client that takes nothing. While it waits it holds no buffer.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use sluicegate_wire::h2::frame::kind;
use sluicegate_wire::h2::{AbortReason, ConnectionError, Event, Reason, Session};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::client_connection::{ClientStream, Connection};
use crate::metrics::AbortCounts;
use crate::worker_state::Deadline;

/// What is still read of a client that is aborted, so that closing does not take back what it was told.
const LEFT: usize = 64 << 10;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum End {
    /// The client, or the path to it, is gone.
    #[error("the client, or the path to it, is gone")]
    Gone,
    /// All is done.
    #[error("all requests are done")]
    Done,
    /// The client was told why, or is now.
    #[error("GOAWAY {}", .0)]
    Told(Reason),
    /// It is aborted.
    #[error("aborted: {}", AbortReason::NAMES[*.0 as usize])]
    Aborted(AbortReason),
}

/// A socket with frames on it.
pub(super) struct Socket {
    stream: ClientStream,
    link: Rc<Connection>,
    /// What was read and is no whole frame yet.
    rest: Vec<u8>,
    /// The same, of what was read before it was known that this is HTTP/2.
    prefix: Bytes,
    /// One for a frame that is not whole, one for room for what is written. They only wake.
    wakes: Rc<Deadline>,
    /// When the frame that is not whole has to be.
    whole_by: Option<u64>,
    /// When there has to be room for what is written.
    room_by: Option<u64>,
    /// When something came last: the worker's milliseconds.
    heard: u64,
}

impl Socket {
    /// A socket off which `prefix` was read already.
    pub(super) fn new(stream: ClientStream, link: &Rc<Connection>, prefix: Bytes) -> Self {
        let deadlines = &link.worker.deadlines;
        Self {
            stream,
            link: Rc::clone(link),
            rest: Vec::new(),
            prefix,
            wakes: deadlines.register(u64::MAX), // no group: it ends with its connection
            whole_by: None,
            room_by: None,
            heard: deadlines.now(),
        }
    }

    /// When something came last: the worker's milliseconds.
    pub(super) fn heard(&self) -> u64 {
        self.heard
    }

    /// Reads what is there, and takes the frames that are whole.
    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        session: &RefCell<Session>,
        mut happens: impl FnMut(Event),
    ) -> Poll<Result<(), End>> {
        if !self.prefix.is_empty() {
            let prefix = std::mem::take(&mut self.prefix);
            return Poll::Ready(self.received(&prefix, context, session, &mut happens));
        }
        let link = Rc::clone(&self.link);
        let buffers = &link.worker.buffers;
        let mut buffer = buffers.take_read_buffer();
        let mut read = ReadBuf::new(&mut buffer);
        let result = match Pin::new(&mut self.stream).poll_read(context, &mut read) {
            Poll::Pending => match self.whole_by.is_some_and(|by| link.worker.deadlines.now() >= by) {
                true => Poll::Ready(Err(End::Aborted(AbortReason::Slow))),
                false => Poll::Pending,
            },
            Poll::Ready(Err(_)) => Poll::Ready(Err(End::Gone)),
            Poll::Ready(Ok(())) if read.filled().is_empty() => Poll::Ready(Err(End::Gone)),
            Poll::Ready(Ok(())) => Poll::Ready(self.received(read.filled(), context, session, &mut happens)),
        };
        buffers.return_read_buffer(buffer);
        result
    }

    fn received(
        &mut self,
        bytes: &[u8],
        context: &Context<'_>,
        session: &RefCell<Session>,
        happens: &mut impl FnMut(Event),
    ) -> Result<(), End> {
        let (worker, deadline) = (&self.link.worker, &self.link.deadline);
        self.heard = worker.deadlines.now();
        let had_settings = session.borrow().has_settings();
        session.borrow_mut().set_time(worker.clock().uptime());
        let taken = if self.rest.is_empty() {
            let taken = frames(bytes, session, happens);
            taken.inspect(|taken| self.rest.extend_from_slice(&bytes[*taken..]))
        } else {
            self.rest.extend_from_slice(bytes);
            frames(&self.rest, session, happens).inspect(|taken| _ = self.rest.drain(..*taken))
        };
        let taken = taken.map_err(|error| match error {
            ConnectionError::Protocol(reason) => End::Told(reason),
            ConnectionError::Flood(reason) => End::Aborted(reason),
        })?;
        if self.rest.is_empty() {
            self.rest = Vec::new(); // what waits for the next frame holds nothing
        }
        let session = session.borrow();
        if !had_settings && session.has_settings() && self.link.is_idle() {
            // It speaks: from now on it may wait for its first request.
            deadline.set_socket(Some(worker.deadlines.after(worker.client().idle)));
        }
        let is_data = self.rest.get(3) == Some(&kind::DATA) && session.has_settings();
        if !session.has_partial_head() && (taken > 0 || self.rest.is_empty() || is_data) {
            self.whole_by = None; // what is there now began just now
        }
        if (session.has_partial_head() || !(self.rest.is_empty() || is_data)) && self.whole_by.is_none() {
            let by = worker.deadlines.after(worker.client().head);
            self.whole_by = Some(by);
            self.wakes.set_waker(context);
            self.wakes.set_request(Some(by));
        }
        Ok(())
    }

    /// Sends what lies unsent.
    pub(super) fn poll_flush(
        &mut self,
        context: &mut Context<'_>,
        session: &mut Session,
    ) -> Poll<Result<(), End>> {
        while session.unsent() > 0 {
            let written = Pin::new(&mut self.stream).poll_write(context, session.output());
            match written {
                Poll::Ready(Ok(written)) if written > 0 => {
                    session.advance(written);
                    self.room_by = None;
                }
                Poll::Ready(_) => return Poll::Ready(Err(End::Gone)),
                Poll::Pending => return self.wait_for_room(context),
            }
        }
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(Ok(())) => {
                self.room_by = None;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(End::Gone)),
            Poll::Pending => self.wait_for_room(context),
        }
    }

    /// While there is no room for what is written there is a deadline; with any room it is put off.
    fn wait_for_room(&mut self, context: &Context<'_>) -> Poll<Result<(), End>> {
        let worker = &self.link.worker;
        match self.room_by {
            Some(by) if worker.deadlines.now() >= by => {
                return Poll::Ready(Err(End::Aborted(AbortReason::Slow)));
            }
            Some(_) => {}
            None => {
                let by = worker.deadlines.after(worker.client().write);
                self.room_by = Some(by);
                self.wakes.set_waker(context);
                self.wakes.set_socket(Some(by));
            }
        }
        Poll::Pending
    }

    /// Ends the connection: the client is told why, as far as it listens.
    pub(super) fn poll_end(
        &mut self,
        context: &mut Context<'_>,
        session: &mut Session,
        end: End,
        aborts: &AbortCounts,
    ) {
        match end {
            End::Gone | End::Done | End::Told(Reason::NO_ERROR) => {}
            End::Told(_) => aborts.count(AbortReason::Protocol),
            End::Aborted(_) if session.is_aborted() => {}
            End::Aborted(reason) => aborts.count(reason),
        }
        match end {
            End::Gone | End::Done => {}
            End::Told(reason) => session.go_away(reason),
            End::Aborted(_) => session.go_away(Reason::ENHANCE_YOUR_CALM),
        }
        if self.poll_flush(context, session) != Poll::Ready(Ok(())) {
            return;
        }
        let _ = Pin::new(&mut self.stream).poll_shutdown(context);
        let mut left = LEFT;
        let mut buffer = [0; 4 << 10];
        while left > 0 {
            let mut read = ReadBuf::new(&mut buffer);
            let Poll::Ready(Ok(())) = Pin::new(&mut self.stream).poll_read(context, &mut read) else { break };
            if read.filled().is_empty() {
                break;
            }
            left = left.saturating_sub(read.filled().len());
        }
    }
}

/// Has the session handle the complete frames in `all`, and reports their events. Returns how many bytes they were. The
/// session is not borrowed while an event is handled.
fn frames(
    all: &[u8],
    session: &RefCell<Session>,
    happens: &mut impl FnMut(Event),
) -> Result<usize, ConnectionError> {
    let mut bytes = all;
    loop {
        let event = session.borrow_mut().next_event(&mut bytes)?;
        match event {
            Some(event) => happens(event),
            None => return Ok(all.len() - bytes.len()),
        }
    }
}
