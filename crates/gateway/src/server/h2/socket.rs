//! The socket of an HTTP/2 connection: reads and writes frames, with timeouts for incomplete frames and for clients that do not
//! read. While it waits it holds no buffer.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use sluicegate_wire::h2::frame::kind;
use sluicegate_wire::h2::{AbortReason, ConnectionError, Event, Reason, Session};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use sluicegate_downstream::worker_state::Deadline;
use sluicegate_downstream::{ClientStream, Connection};
use sluicegate_observe::metrics::AbortCounts;

/// The most bytes that are discarded before an aborted connection is closed: closing a socket with unread data resets the
/// connection, and the client would not see the GOAWAY.
const MAX_DISCARD: usize = 64 << 10;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum End {
    /// The client has disconnected, or the connection failed.
    #[error("the client has disconnected, or the connection failed")]
    Gone,
    /// Either side has ended the connection, and all requests are done.
    #[error("all requests are done")]
    Done,
    /// The client is sent GOAWAY with this error code, unless it was sent one before.
    #[error("GOAWAY {}", .0)]
    GoAway(Reason),
    /// The connection is aborted because of the behaviour of the client.
    #[error("aborted: {}", AbortReason::NAMES[*.0 as usize])]
    Aborted(AbortReason),
}

/// The socket of a connection. Times are in the worker's milliseconds.
pub(super) struct Socket {
    stream: ClientStream,
    connection: Rc<Connection>,
    /// An incomplete frame.
    rest: Vec<u8>,
    /// Bytes that were read before the protocol was known.
    prefix: Bytes,
    /// Wakes the task for the two deadlines below.
    timers: Rc<Deadline>,
    /// When the incomplete frame must be complete.
    frame_deadline: Option<u64>,
    /// When the client must have read some of the send buffer.
    write_deadline: Option<u64>,
    /// When data arrived last.
    last_read: u64,
}

impl Socket {
    /// A socket from which `prefix` was read already.
    pub(super) fn new(stream: ClientStream, connection: &Rc<Connection>, prefix: Bytes) -> Self {
        let deadlines = &connection.worker.deadlines;
        Self {
            stream,
            connection: Rc::clone(connection),
            rest: Vec::new(),
            prefix,
            timers: deadlines.register(u64::MAX), // no group: it ends with its connection
            frame_deadline: None,
            write_deadline: None,
            last_read: deadlines.now(),
        }
    }

    /// When data arrived last, in the worker's milliseconds.
    pub(super) fn last_read(&self) -> u64 {
        self.last_read
    }

    /// Reads once and handles the complete frames. Their events are passed to `on_event`.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        session: &RefCell<Session>,
        mut on_event: impl FnMut(Event),
    ) -> Poll<Result<(), End>> {
        if !self.prefix.is_empty() {
            let prefix = std::mem::take(&mut self.prefix);
            return Poll::Ready(self.received(&prefix, cx, session, &mut on_event));
        }
        let connection = Rc::clone(&self.connection);
        let buffers = &connection.worker.buffers;
        let mut buffer = buffers.take_read_buffer();
        let mut read = ReadBuf::new(&mut buffer);
        let result = match Pin::new(&mut self.stream).poll_read(cx, &mut read) {
            Poll::Pending => {
                match self.frame_deadline.is_some_and(|by| connection.worker.deadlines.now() >= by) {
                    true => Poll::Ready(Err(End::Aborted(AbortReason::Slow))),
                    false => Poll::Pending,
                }
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(End::Gone)),
            Poll::Ready(Ok(())) if read.filled().is_empty() => Poll::Ready(Err(End::Gone)),
            Poll::Ready(Ok(())) => Poll::Ready(self.received(read.filled(), cx, session, &mut on_event)),
        };
        buffers.return_read_buffer(buffer);
        result
    }

    fn received(
        &mut self,
        bytes: &[u8],
        context: &Context<'_>,
        session: &RefCell<Session>,
        on_event: &mut impl FnMut(Event),
    ) -> Result<(), End> {
        let (worker, deadline) = (&self.connection.worker, &self.connection.deadline);
        self.last_read = worker.deadlines.now();
        let had_settings = session.borrow().has_settings();
        session.borrow_mut().set_time(worker.clock().uptime());
        let taken = if self.rest.is_empty() {
            let taken = frames(bytes, session, on_event);
            taken.inspect(|taken| self.rest.extend_from_slice(&bytes[*taken..]))
        } else {
            self.rest.extend_from_slice(bytes);
            frames(&self.rest, session, on_event).inspect(|taken| _ = self.rest.drain(..*taken))
        };
        let taken = taken.map_err(|error| match error {
            ConnectionError::Protocol(reason) => End::GoAway(reason),
            ConnectionError::Flood(reason) => End::Aborted(reason),
        })?;
        if self.rest.is_empty() {
            self.rest = Vec::new(); // a connection that waits holds no buffer
        }
        let session = session.borrow();
        if !had_settings && session.has_settings() && self.connection.is_idle() {
            // The handshake is complete: from now on the idle timeout applies.
            deadline.set_socket(Some(worker.deadlines.after(worker.client().idle)));
        }
        let is_data = self.rest.get(3) == Some(&kind::DATA) && session.has_settings();
        if !session.has_partial_head() && (taken > 0 || self.rest.is_empty() || is_data) {
            self.frame_deadline = None; // the incomplete frame began just now
        }
        if (session.has_partial_head() || !(self.rest.is_empty() || is_data)) && self.frame_deadline.is_none()
        {
            let by = worker.deadlines.after(worker.client().head);
            self.frame_deadline = Some(by);
            self.timers.set_waker(context);
            self.timers.set_request(Some(by));
        }
        Ok(())
    }

    /// Sends the send buffer of the session.
    pub(super) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        session: &mut Session,
    ) -> Poll<Result<(), End>> {
        while session.unsent() > 0 {
            let written = Pin::new(&mut self.stream).poll_write(cx, session.output());
            match written {
                Poll::Ready(Ok(written)) if written > 0 => {
                    session.advance(written);
                    self.write_deadline = None;
                }
                Poll::Ready(_) => return Poll::Ready(Err(End::Gone)),
                Poll::Pending => return self.wait_for_room(cx),
            }
        }
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(Ok(())) => {
                self.write_deadline = None;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(End::Gone)),
            Poll::Pending => self.wait_for_room(cx),
        }
    }

    /// Arms the write timeout while the send buffer of the socket is full. Progress disarms it.
    fn wait_for_room(&mut self, context: &Context<'_>) -> Poll<Result<(), End>> {
        let worker = &self.connection.worker;
        match self.write_deadline {
            Some(by) if worker.deadlines.now() >= by => {
                return Poll::Ready(Err(End::Aborted(AbortReason::Slow)));
            }
            Some(_) => {}
            None => {
                let by = worker.deadlines.after(worker.client().write);
                self.write_deadline = Some(by);
                self.timers.set_waker(context);
                self.timers.set_socket(Some(by));
            }
        }
        Poll::Pending
    }

    /// Ends the connection: sends GOAWAY, if there is room for it, and closes our side.
    pub(super) fn poll_end(
        &mut self,
        cx: &mut Context<'_>,
        session: &mut Session,
        end: End,
        aborts: &AbortCounts,
    ) {
        match end {
            End::Gone | End::Done | End::GoAway(Reason::NO_ERROR) => {}
            End::GoAway(_) => aborts.count(AbortReason::Protocol),
            End::Aborted(_) if session.is_aborted() => {}
            End::Aborted(reason) => aborts.count(reason),
        }
        match end {
            End::Gone | End::Done => {}
            End::GoAway(reason) => session.go_away(reason),
            End::Aborted(_) => session.go_away(Reason::ENHANCE_YOUR_CALM),
        }
        if self.poll_flush(cx, session) != Poll::Ready(Ok(())) {
            return;
        }
        let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
        let mut left = MAX_DISCARD;
        let mut buffer = [0; 4 << 10];
        while left > 0 {
            let mut read = ReadBuf::new(&mut buffer);
            let Poll::Ready(Ok(())) = Pin::new(&mut self.stream).poll_read(cx, &mut read) else { break };
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
    on_event: &mut impl FnMut(Event),
) -> Result<usize, ConnectionError> {
    let mut bytes = all;
    loop {
        let event = session.borrow_mut().next_event(&mut bytes)?;
        match event {
            Some(event) => on_event(event),
            None => return Ok(all.len() - bytes.len()),
        }
    }
}
