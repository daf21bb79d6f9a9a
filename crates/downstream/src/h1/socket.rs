//! The socket of an HTTP/1.1 connection, shared by its task and the reader of the request body.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http_body::Frame;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::peer_probe::{PeerState, probe};
use super::state::{MAX_DISCARD, Reader, Reading, State, Writing};
use super::timeouts;
use crate::ClientStream;
use crate::Connection;
use crate::RequestBodyError;
use crate::body_rate::ReceiveRate;
use sluicegate_wire::HeadError;
use sluicegate_wire::h1::{BodyDecoder, Decoded, Request, RequestDecoder};

/// Bytes of further requests that are read before the response to the present one.
const READ_AHEAD: usize = 16 << 10;

/// The socket of a connection.
pub struct Socket {
    /// The connection that it belongs to.
    pub connection: Rc<Connection>,
    /// The connection closes after the present response.
    pub ends: Cell<bool>,
    /// Whether a request is in progress.
    in_progress: Cell<bool>,
    state: RefCell<State>,
}

/// What comes next on a connection.
pub enum Next {
    /// A request.
    Request,
    /// A malformed request; `None` if it did not arrive in time.
    Refused(Option<HeadError>),
    /// The connection ends.
    End,
}

impl Socket {
    /// The socket of a new connection, of which `read` has been read.
    pub fn new(connection: Rc<Connection>, stream: ClientStream, read: BytesMut) -> Self {
        Self {
            connection,
            ends: Cell::new(false),
            in_progress: Cell::new(false),
            state: RefCell::new(State::new(stream, read)),
        }
    }

    /// Waits for the next request, within the timeouts, and writes it to `into`. `max_head` returns the most bytes of its head. Polled by hand, because
    /// every request passes here and an arrived one must be served before a timeout or a shutdown is considered.
    pub async fn next(&self, into: &mut Option<Request>, max_head: impl Fn() -> usize) -> Next {
        let deadline = &self.connection.deadline;
        let empty = self.state.borrow().read.is_empty();
        let times = self.connection.worker.client();
        let mut decoder = RequestDecoder::new(times.max_target);
        self.set_timeout(if empty { times.idle } else { times.head });
        let backlog = &self.connection.worker.backlog;
        let mut has_waited = false;
        poll_fn(|cx| {
            deadline.set_waker(cx);
            let state = &mut *self.state.borrow_mut();
            loop {
                match decoder.decode_into(&mut state.read, &max_head, times.max_headers, into) {
                    Ok(true) => return Poll::Ready(Next::Request),
                    Ok(false) => {}
                    Err(error) => return Poll::Ready(Next::Refused(Some(error))),
                }
                let nothing = state.read.is_empty();
                if nothing && !has_waited && backlog.is_long() && state.is_readable(cx) {
                    has_waited = true;
                    backlog.wait(cx.waker().clone());
                    return Poll::Pending;
                }
                match state.poll_fill(cx, &self.connection) {
                    // Read first: a request that has arrived is served before the connection ends.
                    Poll::Pending if nothing && deadline.take_closing() => return self.end("draining"),
                    Poll::Pending if !deadline.socket_passed() => return Poll::Pending,
                    Poll::Pending if nothing => {
                        return self.end("no request arrived within the idle timeout");
                    }
                    Poll::Pending => return Poll::Ready(Next::Refused(None)),
                    Poll::Ready(Ok(0)) if !nothing => {
                        let what = HeadError::Malformed("the request ended before its head did");
                        return Poll::Ready(Next::Refused(Some(what)));
                    }
                    Poll::Ready(Ok(0)) => return self.end("the client closed it between requests"),
                    Poll::Ready(Err(error)) => return self.end(error),
                    Poll::Ready(Ok(_)) if nothing => self.set_timeout(times.head),
                    Poll::Ready(Ok(_)) => {}
                }
            }
        })
        .await
    }

    fn end(&self, reason: impl std::fmt::Display) -> Poll<Next> {
        self.connection.log_close(reason);
        Poll::Ready(Next::End)
    }

    /// Sets the deadline of the socket to `span` from now.
    pub fn set_timeout(&self, span: std::time::Duration) {
        self.connection.deadline.set_socket(Some(self.connection.worker.deadlines.after(span)));
    }

    /// Begins a request. Returns the number by which its body is read.
    pub fn begin(&self, decoder: BodyDecoder, expects_continue: bool, is_http10: bool) -> u64 {
        self.in_progress.set(true);
        self.connection.worker.backlog.begin();
        let state = &mut *self.state.borrow_mut();
        state.number += 1;
        let reader = match decoder {
            BodyDecoder::Ended => Reader::Connection,
            _ => Reader::Handler(None),
        };
        state.reading = Reading::Body { decoder, reader, expects_continue };
        state.writing = Writing::Interim { is_http10, probed: false };
        state.discard_left = MAX_DISCARD;
        state.rate = ReceiveRate::default();
        state.number
    }

    /// The response begins.
    pub fn begin_response(&self) {
        self.end_progress();
        self.state.borrow_mut().writing = Writing::Response;
        self.connection.deadline.set_socket(None);
    }

    /// The next bytes are the last ones, and [`close`](Self::close) follows at once.
    pub fn hold_back(&self) {
        if let Some(stream) = &mut self.state.borrow_mut().stream {
            stream.socket_mut().hold_back();
        }
    }

    fn end_progress(&self) {
        if self.in_progress.take() {
            self.connection.worker.backlog.end();
        }
    }

    /// Runs `work` for the client and sends interim responses meanwhile; `None` if the client disconnects. Polled by hand,
    /// because every request passes here and interim responses are taken right after the poll that produced them.
    pub async fn while_connected<T>(&self, mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        poll_fn(|cx| {
            let polled = work.as_mut().poll(cx);
            if let Some(interims) = self.connection.take_interims() {
                let state = &mut *self.state.borrow_mut();
                if matches!(state.writing, Writing::Interim { is_http10: false, .. }) {
                    state.interim.add(&interims, &self.connection.worker);
                    let _ = state.poll_interim(cx); // the rest is sent before the response
                }
            }
            if let Poll::Ready(done) = polled {
                return Poll::Ready(Some(done));
            }
            self.poll_disconnected(cx).map(|()| None)
        })
        .await
    }

    /// Watches a client that waits for its response. Ready when it has disconnected.
    pub fn poll_disconnected(&self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = &self.connection.deadline;
        deadline.set_waker(cx);
        let state = &mut *self.state.borrow_mut();
        if state.is_new() && state.reading.has_ended() && !self.connection.queued.get() {
            // Most responses are available at once, and many connections have one request only: the socket is registered later.
            if !deadline.socket_passed() {
                if !deadline.socket_is_set() {
                    self.set_timeout(timeouts::PROBE_INTERVAL);
                }
                return Poll::Pending;
            }
            deadline.set_socket(None);
            if !state.register() {
                return Poll::Ready(());
            }
        }
        // Bytes that follow the request are read here, up to a limit.
        while state.reading.has_ended() && !state.half_closed && state.read.len() < READ_AHEAD {
            match state.poll_fill(cx, &self.connection) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
            }
        }
        if !state.reading.has_ended() {
            state.waker = Some(cx.waker().clone());
        }
        let queued = self.connection.queued.get();
        if state.half_closed && queued && matches!(state.writing, Writing::Interim { .. }) {
            return Poll::Ready(());
        }
        if deadline.socket_passed() {
            let peer =
                state.stream.as_mut().map_or(PeerState::Gone, |stream| probe(stream, state.half_closed, cx));
            let over = match &mut state.writing {
                _ if peer == PeerState::Gone => true,
                Writing::Response => state.half_closed,
                Writing::Interim { .. } if peer == PeerState::Open => false,
                Writing::Interim { .. } if queued => true,
                Writing::Interim { is_http10: true, .. } => state.half_closed,
                Writing::Interim { is_http10: false, probed } => {
                    // Probes a half-closed client: a live client ignores the interim response, a dead one resets.
                    if !std::mem::replace(probed, true) {
                        state.interim.add_continue();
                    }
                    false
                }
            };
            if over {
                return Poll::Ready(());
            }
            self.set_timeout(timeouts::PROBE_INTERVAL);
        } else if !deadline.socket_is_set() {
            // A socket that cannot be read has to be probed from time to time.
            self.set_timeout(match (state.half_closed, state.writing) {
                (true, Writing::Interim { probed: false, .. }) => timeouts::GRACE,
                (true, Writing::Response) => timeouts::HALF_CLOSED,
                _ => timeouts::PROBE_INTERVAL,
            });
        }
        match state.poll_interim(cx) {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    /// The next frame of the body of a request.
    pub(crate) fn poll_body(
        &self,
        number: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let state = &mut *self.state.borrow_mut();
        if number != state.number || state.stream.is_none() {
            return Poll::Ready(Some(Err(RequestBodyError::BrokenOff)));
        }
        let now = self.connection.worker.deadlines.now();
        let error = loop {
            let Reading::Body { decoder, expects_continue, .. } = &mut state.reading else {
                return Poll::Ready(Some(Err(RequestBodyError::BrokenOff)));
            };
            match decoder.decode(&mut state.read) {
                Ok(Decoded::Frame(frame)) => {
                    *expects_continue = false;
                    state.rate.add(frame.data_ref().map_or(0, Bytes::len), now);
                    if state.reading.has_ended() {
                        state.wake();
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                Ok(Decoded::End) => {
                    state.wake();
                    return Poll::Ready(None);
                }
                Ok(Decoded::NeedMore) => {}
                Err(what) => break RequestBodyError::Malformed(what),
            }
            if state.rate.is_too_slow(now, self.connection.worker.client().min_body_rate) {
                break RequestBodyError::Slow;
            }
            let expects = std::mem::take(expects_continue);
            if expects && state.read.is_empty() && matches!(state.writing, Writing::Interim { .. }) {
                state.interim.add_continue();
            }
            match state.poll_fill(cx, &self.connection) {
                Poll::Pending => {
                    state.rate.begin_wait(now);
                    if let Reading::Body { reader, .. } = &mut state.reading {
                        *reader = Reader::Handler(Some(cx.waker().clone()));
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0) | Err(_)) => break RequestBodyError::BrokenOff,
                Poll::Ready(Ok(_)) => {}
            }
        };
        tracing::debug!(peer = %self.connection.peer, %error, "request body failed");
        state.set_broken();
        Poll::Ready(Some(Err(error)))
    }

    /// Whether the body of a request has ended.
    pub(crate) fn body_has_ended(&self, number: u64) -> bool {
        let state = self.state.borrow();
        number == state.number && state.reading.has_ended()
    }

    /// The bytes of the body that are still to come, if that is known.
    pub(crate) fn body_left(&self, number: u64) -> Option<u64> {
        let state = self.state.borrow();
        if number == state.number { state.reading.remaining() } else { None }
    }

    /// The handler does not want the rest of a body.
    pub(crate) fn release(&self, number: u64) {
        let state = &mut *self.state.borrow_mut();
        if number == state.number {
            if let Reading::Body { reader, .. } = &mut state.reading {
                *reader = Reader::Connection;
            }
            state.wake();
        }
    }

    /// Takes the rest of the body from the handler after the response. False if the connection must not be read further.
    pub fn take_back(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        state.number += 1;
        state.reading.take_back();
        !state.reading.is_broken() && !state.awaits_continue()
    }

    /// Whether the body has ended, so that the next request may follow.
    pub fn has_ended(&self) -> bool {
        self.state.borrow().reading.has_ended()
    }

    /// Whether the rest of the body is short enough to be discarded.
    pub fn can_drain(&self) -> bool {
        let state = self.state.borrow();
        !state.reading.is_broken()
            && !state.awaits_continue()
            && state.reading.remaining().is_none_or(|left| left <= MAX_DISCARD)
    }

    /// Discards the rest of a body that the handler does not want. Ready with true when it has ended, and with false when it
    /// cannot be read to its end.
    pub fn poll_drain(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let state = &mut *self.state.borrow_mut();
        if state.awaits_continue() {
            return Poll::Pending;
        }
        loop {
            let decoder = match &mut state.reading {
                Reading::Body { reader: Reader::Handler(_), .. } => return Poll::Pending,
                Reading::Body { decoder, .. } => decoder,
                Reading::Broken => return Poll::Ready(false),
            };
            match decoder.decode(&mut state.read) {
                Ok(Decoded::Frame(frame)) => {
                    let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                    match state.discard_left.checked_sub(length) {
                        Some(left) => state.discard_left = left,
                        None => state.reading = Reading::Broken,
                    }
                }
                Ok(Decoded::End) => return Poll::Ready(true),
                Ok(Decoded::NeedMore) => match ready!(state.poll_fill(cx, &self.connection)) {
                    Ok(0) | Err(_) => state.reading = Reading::Broken,
                    Ok(_) => {}
                },
                Err(_) => state.reading = Reading::Broken,
            }
        }
    }

    /// Reads bytes that are not HTTP, those in the buffer first. The result is empty at the end.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn read(&self) -> io::Result<BytesMut> {
        poll_fn(|cx| {
            let state = &mut *self.state.borrow_mut();
            if state.read.is_empty() {
                ready!(state.poll_fill(cx, &self.connection))?;
            }
            Poll::Ready(Ok(std::mem::take(&mut state.read)))
        })
        .await
    }

    /// Whether the client has sent, or may be sending, bytes that nobody reads: closing at once would reset the connection, and
    /// the client might not see the response.
    pub fn has_unread(&self) -> bool {
        let state = self.state.borrow();
        !state.half_closed && (!state.read.is_empty() || !state.reading.has_ended())
    }

    /// Closes the connection; with `reset`, so that a response that ends with the connection is not taken for complete.
    pub fn close(&self, reset: bool) {
        self.end_progress();
        let state = &mut *self.state.borrow_mut();
        let stream = state.stream.take();
        state.reading.take_back();
        match stream {
            Some(stream) if reset => {
                if let Some(socket) = stream.socket().handle() {
                    let _ = socket2::SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO));
                }
            }
            Some(ClientStream::Plain(stream)) => stream.send_rest(),
            // Sends close_notify, if there is room for it in the send buffer.
            Some(ClientStream::Tls(mut stream)) => _ = stream.shutdown().now_or_never(),
            None => {}
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.end_progress();
    }
}

/// Writes follow interim responses that are not sent yet.
impl AsyncWrite for &Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let state = &mut *self.state.borrow_mut();
        ready!(state.poll_interim(cx))?;
        match &mut state.stream {
            Some(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state.borrow_mut().stream {
            Some(stream) => Pin::new(stream).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state.borrow_mut().stream {
            Some(stream) => Pin::new(stream).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}
