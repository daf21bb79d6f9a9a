//! The socket of an HTTP/1.1 connection: what was read of it and not used yet, the body that is on its way, and
//! whether the client is still there.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use tokio::io::{AsyncReadExt, AsyncWrite};

use super::interim::Interims;
use super::peer_probe::{PeerState, ResponseStage, probe};
use super::timeouts;
use crate::respond::LocalError;
use crate::server::body_rate::ReceiveRate;
use crate::server::connection::Connection;
use crate::server::request_body::RequestBodyError;
use crate::server::stream::ClientStream;
use sluicegate_wire::h1::{BodyDecoder, Decoded, Request, RequestDecoder};

/// What is read of further requests before the one before them is answered.
const AHEAD: usize = 16 << 10;
/// What is read at once behind something that is there already.
const MORE: usize = 4 << 10;
/// Bytes of a body that nobody wants which are read and thrown away, so that the client sees the answer.
pub(super) const MOST: u64 = 16 << 20;
/// The socket of a connection, shared by its task and whoever reads the body of its request.
pub(super) struct Socket {
    pub(super) connection: Rc<Connection>,
    /// The connection ends behind the answer that is under way.
    pub(super) ends: Cell<bool>,
    state: RefCell<State>,
}

struct State {
    /// `None` once it is closed.
    stream: Option<ClientStream>,
    /// What was read and not used yet.
    read: BytesMut,
    /// The client sends nothing more.
    finished: bool,
    /// What was done about a client that sends nothing more and waits for its answer.
    asked_back: bool,
    /// An interim answer on its way out.
    interim: Interims,
    /// The answer has begun: no interim answer may be sent any more.
    answering: bool,
    /// Which request the body is of.
    turn: u64,
    decoder: BodyDecoder,
    /// Somebody else than the connection reads the body.
    lent: bool,
    /// The client waits for leave to send it.
    expects: bool,
    /// It broke off or is malformed: nothing more can be read of this connection.
    broken: bool,
    /// What may still be read of it and thrown away.
    left: u64,
    pace: ReceiveRate,
    /// The task of the connection, while somebody else reads.
    waker: Option<Waker>,
    /// Whoever reads the body, while it waits.
    reader: Option<Waker>,
}

/// What comes next on a connection.
#[allow(clippy::large_enum_variant, reason = "the large one is what nearly always comes")]
pub(super) enum Next {
    /// A request.
    Request(Request),
    /// What is no request, or came too late to be one.
    Refused(LocalError),
    /// Nothing.
    End,
}

impl Socket {
    pub(super) fn new(connection: &Rc<Connection>, stream: ClientStream, read: BytesMut) -> Self {
        Self {
            connection: Rc::clone(connection),
            ends: Cell::new(false),
            state: RefCell::new(State {
                stream: Some(stream),
                read,
                finished: false,
                asked_back: false,
                interim: Interims::default(),
                answering: false,
                turn: 0,
                decoder: BodyDecoder::Ended,
                lent: false,
                expects: false,
                broken: false,
                left: 0,
                pace: ReceiveRate::default(),
                waker: None,
                reader: None,
            }),
        }
    }

    /// Waits for the next request, in the time that it may take.
    pub(super) async fn next(&self) -> Next {
        let deadline = &self.connection.deadline;
        let mut decoder = RequestDecoder::default();
        let empty = self.state.borrow().read.is_empty();
        let times = self.connection.worker.client();
        self.within(if empty { times.idle } else { times.head });
        poll_fn(|context| {
            deadline.watch(context);
            let state = &mut *self.state.borrow_mut();
            loop {
                let max = || self.connection.services.view().snapshot.config.max_head;
                match decoder.decode(&mut state.read, max, times.max_headers) {
                    Ok(Some(request)) => return Poll::Ready(Next::Request(request)),
                    Ok(None) => {}
                    Err(error) => return Poll::Ready(Next::Refused(error.into())),
                }
                let nothing = state.read.is_empty();
                match state.poll_fill(context, &self.connection) {
                    // Read first: a request that has arrived is served before the connection ends.
                    Poll::Pending if nothing && deadline.take_closing() => return Poll::Ready(Next::End),
                    Poll::Pending if !deadline.socket_passed() => return Poll::Pending,
                    Poll::Pending if nothing => return Poll::Ready(Next::End),
                    Poll::Pending => return Poll::Ready(Next::Refused(LocalError::Slow)),
                    Poll::Ready(Ok(0)) if !nothing => {
                        let what = LocalError::Malformed("the request ended before its head did");
                        return Poll::Ready(Next::Refused(what));
                    }
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Next::End),
                    Poll::Ready(Ok(_)) if nothing => self.within(times.head),
                    Poll::Ready(Ok(_)) => {}
                }
            }
        })
        .await
    }

    fn within(&self, span: std::time::Duration) {
        self.connection.deadline.set_socket(Some(self.connection.worker.deadlines.after(span)));
    }

    /// Begins a request; which body is its own.
    pub(super) fn begin(&self, decoder: BodyDecoder, expects: bool) -> u64 {
        let state = &mut *self.state.borrow_mut();
        state.turn += 1;
        state.lent = decoder != BodyDecoder::Ended;
        state.decoder = decoder;
        state.expects = expects;
        state.answering = false;
        state.asked_back = false;
        state.left = MOST;
        state.pace = ReceiveRate::default();
        state.turn
    }

    /// The answer begins.
    pub(super) fn answers(&self) {
        self.state.borrow_mut().answering = true;
        self.connection.deadline.set_socket(None);
    }

    /// Does some work for a client; `None` if it has gone meanwhile.
    pub(super) async fn attended<T>(
        &self,
        old: bool,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        poll_fn(|context| {
            let polled = work.as_mut().poll(context);
            if let Some(interims) = self.connection.take_interims()
                && !old
            {
                let state = &mut *self.state.borrow_mut();
                state.interim.add(&interims);
                let _ = state.poll_interim(context); // the rest goes before the answer
            }
            if let Poll::Ready(done) = polled {
                return Poll::Ready(Some(done));
            }
            self.poll_gone(context, ResponseStage::Waiting { old }).map(|()| None)
        })
        .await
    }

    /// Looks after a client that waits. Ready when it has gone.
    pub(super) fn poll_gone(&self, context: &mut Context<'_>, stage: ResponseStage) -> Poll<()> {
        let deadline = &self.connection.deadline;
        deadline.watch(context);
        let state = &mut *self.state.borrow_mut();
        if state.is_new() && state.decoder == BodyDecoder::Ended && !self.connection.queued.get() {
            // Most answers come at once, and many connections end with their first.
            if !deadline.socket_passed() {
                if !deadline.socket_is_set() {
                    self.within(timeouts::LOOK);
                }
                return Poll::Pending;
            }
            deadline.set_socket(None);
            if !state.watch() {
                return Poll::Ready(());
            }
        }
        // Nobody reads what comes behind the request, so it is read here, in bounds.
        while state.decoder == BodyDecoder::Ended && !state.finished && state.read.len() < AHEAD {
            match state.poll_fill(context, &self.connection) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
            }
        }
        if state.decoder != BodyDecoder::Ended {
            state.waker = Some(context.waker().clone());
        }
        let waits = matches!(stage, ResponseStage::Waiting { .. });
        if state.finished && waits && self.connection.queued.get() {
            return Poll::Ready(());
        }
        // What cannot be read has to be looked at from time to time.
        let next = match (state.finished, stage) {
            (true, ResponseStage::Waiting { .. }) if !state.asked_back => timeouts::GRACE,
            (true, ResponseStage::Answering) => timeouts::HALF_CLOSED,
            _ => timeouts::LOOK,
        };
        if deadline.socket_passed() {
            let peer = state
                .stream
                .as_mut()
                .map_or(PeerState::Gone, |stream| probe(stream, state.finished, context));
            let over = match stage {
                _ if peer == PeerState::Gone => true,
                ResponseStage::Answering => state.finished,
                ResponseStage::Waiting { .. } if peer == PeerState::Open => false,
                ResponseStage::Waiting { .. } if self.connection.queued.get() => true,
                ResponseStage::Waiting { old: true } => state.finished,
                ResponseStage::Waiting { old: false } => {
                    // Whoever still listens takes it for what it is. Whoever has gone answers with a reset.
                    if !std::mem::replace(&mut state.asked_back, true) {
                        state.interim.leave();
                    }
                    false
                }
            };
            if over {
                return Poll::Ready(());
            }
            self.within(timeouts::LOOK);
        } else if !deadline.socket_is_set() {
            self.within(next);
        }
        match state.poll_interim(context) {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    /// The next frame of the body of a request.
    pub(super) fn poll_body(
        &self,
        turn: u64,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let state = &mut *self.state.borrow_mut();
        if turn != state.turn || state.broken || state.stream.is_none() {
            return Poll::Ready(Some(Err(RequestBodyError::BrokenOff)));
        }
        let now = self.connection.worker.deadlines.now();
        let error = loop {
            match state.decoder.decode(&mut state.read) {
                Ok(Decoded::Frame(frame)) => {
                    state.expects = false;
                    state.pace.came(frame.data_ref().map_or(0, Bytes::len), now);
                    if state.decoder == BodyDecoder::Ended {
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
            if state.pace.is_too_slow(now, self.connection.worker.client().min_body_rate) {
                break RequestBodyError::Slow;
            }
            let expects = std::mem::take(&mut state.expects);
            if expects && state.read.is_empty() && !state.answering {
                state.interim.leave();
            }
            match state.poll_fill(context, &self.connection) {
                Poll::Pending => {
                    state.pace.waits(now);
                    state.reader = Some(context.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0) | Err(_)) => break RequestBodyError::BrokenOff,
                Poll::Ready(Ok(_)) => {}
            }
        };
        state.broken = true;
        state.wake();
        Poll::Ready(Some(Err(error)))
    }

    /// Whether the body of a request has ended.
    pub(super) fn body_has_ended(&self, turn: u64) -> bool {
        let state = self.state.borrow();
        turn == state.turn && state.decoder == BodyDecoder::Ended
    }

    /// The bytes of the body that are still to come, where that is known.
    pub(super) fn body_left(&self, turn: u64) -> Option<u64> {
        let state = self.state.borrow();
        if turn == state.turn { state.decoder.remaining() } else { None }
    }

    /// Nobody wants the rest of a body.
    pub(super) fn release(&self, turn: u64) {
        let state = &mut *self.state.borrow_mut();
        if turn == state.turn {
            state.lent = false;
            state.wake();
        }
    }

    /// Takes the rest of the body back from whoever reads it. False if the connection is not to be read any further.
    pub(super) fn take_back(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        state.turn += 1;
        state.lent = false;
        state.wake_reader();
        !state.broken && !state.awaits_leave()
    }

    /// Whether there is no rest of the body, so that the next request may come.
    pub(super) fn has_ended(&self) -> bool {
        self.state.borrow().decoder == BodyDecoder::Ended
    }

    /// Whether the rest of the body could be read and thrown away to its end.
    pub(super) fn can_drain(&self) -> bool {
        let state = self.state.borrow();
        !state.broken && !state.awaits_leave() && state.decoder.remaining().is_none_or(|left| left <= MOST)
    }

    /// Reads the rest of a body that nobody wants. Ready when it has ended (true), or cannot be read to its end.
    pub(super) fn poll_drain(&self, context: &mut Context<'_>) -> Poll<bool> {
        let state = &mut *self.state.borrow_mut();
        if state.lent || state.awaits_leave() {
            return Poll::Pending;
        }
        while !state.broken {
            match state.decoder.decode(&mut state.read) {
                Ok(Decoded::Frame(frame)) => {
                    let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                    match state.left.checked_sub(length) {
                        Some(left) => state.left = left,
                        None => state.broken = true,
                    }
                }
                Ok(Decoded::End) => return Poll::Ready(true),
                Ok(Decoded::NeedMore) => match ready!(state.poll_fill(context, &self.connection)) {
                    Ok(0) | Err(_) => state.broken = true,
                    Ok(_) => {}
                },
                Err(_) => state.broken = true,
            }
        }
        Poll::Ready(false)
    }

    /// Writes some of an answer.
    pub(super) fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let state = &mut *self.state.borrow_mut();
        ready!(state.poll_interim(context))?;
        match &mut state.stream {
            Some(stream) => Pin::new(stream).poll_write(context, bytes),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Writes what is under way.
    pub(super) fn poll_flush(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state.borrow_mut().stream {
            Some(stream) => Pin::new(stream).poll_flush(context),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Tells the client that nothing more is sent.
    pub(super) fn poll_shutdown(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state.borrow_mut().stream {
            Some(stream) => Pin::new(stream).poll_shutdown(context),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Reads whatever comes; nothing at the end. What was read before comes first.
    pub(super) fn poll_read(&self, context: &mut Context<'_>) -> Poll<io::Result<BytesMut>> {
        let state = &mut *self.state.borrow_mut();
        if !state.read.is_empty() {
            return Poll::Ready(Ok(state.read.split()));
        }
        ready!(state.poll_fill(context, &self.connection))?;
        Poll::Ready(Ok(std::mem::take(&mut state.read)))
    }

    /// Whether the client has sent, or may be sending, what nobody will read: closing at once would reset the
    /// connection, and the answer with it.
    pub(super) fn has_unread(&self) -> bool {
        let state = self.state.borrow();
        !state.finished && (state.broken || !state.read.is_empty() || state.decoder != BodyDecoder::Ended)
    }

    /// Says farewell, where the protocol under this one has one.
    pub(super) fn poll_farewell(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state.borrow_mut().stream {
            Some(stream) if stream.has_farewell() => Pin::new(stream).poll_shutdown(context),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Closes the connection; with `reset` so that its end is not taken for the end of the answer.
    pub(super) fn close(&self, reset: bool) {
        let state = &mut *self.state.borrow_mut();
        let stream = state.stream.take();
        state.wake_reader();
        if let Some(socket) = stream.as_ref().filter(|_| reset).and_then(|stream| stream.socket().handle()) {
            let _ = socket2::SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO));
        }
    }
}

impl State {
    /// Reads some more; zero at the end.
    fn poll_fill(&mut self, context: &mut Context<'_>, connection: &Connection) -> Poll<io::Result<usize>> {
        if !self.interim.is_empty() && self.poll_interim(context)?.is_pending() {
            return Poll::Pending;
        }
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(0)) };
        if self.finished {
            return Poll::Ready(Ok(0));
        }
        let length = if self.read.is_empty() {
            self.read = BytesMut::new(); // whoever waits keeps no memory
            self.read = ready!(connection.worker.buffers.poll_read(stream, context, MORE))?;
            self.read.len()
        } else {
            self.read.reserve(MORE);
            ready!(pin!(stream.read_buf(&mut self.read)).poll(context))?
        };
        self.finished = length == 0;
        Poll::Ready(Ok(length))
    }

    /// Whether nobody has waited for the client yet.
    fn is_new(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.socket().is_new())
    }

    /// Has the client watched from now on, if that can be done.
    fn watch(&mut self) -> bool {
        self.stream.as_mut().is_some_and(|stream| stream.socket_mut().watched().is_ok())
    }

    /// Sends the rest of interim answers.
    fn poll_interim(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.interim.poll_send(self.stream.as_mut(), context)
    }

    /// Whether the client waits for leave to send a body, and may never send it.
    fn awaits_leave(&self) -> bool {
        self.expects && self.read.is_empty() && self.decoder != BodyDecoder::Ended
    }

    /// The body that somebody reads has no more to come.
    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
