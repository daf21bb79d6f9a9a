//! An HTTP/2 connection without its socket: frames of the client come in, events come out, and frames for the client are
//! written into one buffer. `receive` handles what arrives, `send` writes.

mod block;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;

use self::block::Block;
pub use self::send::ResponseHead;
use super::flood_detector::FloodDetector;
use super::frame::{self, setting};
use super::hpack::{self, Decoder, Encoder};
use super::reason::Reason;
use super::request_head::{HeadLimits, Request, RequestError};
use super::stream_table::{Stream, StreamKey, StreamTable};
use super::{AbortReason, FloodLimits};
use crate::Headers;

/// SETTINGS_MAX_CONCURRENT_STREAMS: the most streams that a client may have open.
pub const STREAMS: usize = 100;
/// The receive window of a stream, in bytes.
const STREAM_WINDOW: usize = 64 << 10;
/// The receive window of the connection, in bytes. While bodies that are not read hold half of it, it is extended up to the sum
/// of the windows of the streams.
const CONNECTION_WINDOW: usize = 1 << 20;
/// The window of both sides before SETTINGS (RFC 9113 §6.9.2).
const DEFAULT_WINDOW: usize = 65_535;
/// Nothing is added to the send buffer while it has more bytes than this.
const SEND_BUFFER: usize = 40 << 10;
/// The payloads of our PINGs: the keepalive, and the one that precedes the last GOAWAY.
const KEEPALIVE: [u8; 8] = *b"alive?..";
const SHUTDOWN: [u8; 8] = *b"parting.";
/// The highest stream identifier; also the mask of the reserved bit.
const MAX_STREAM_ID: u32 = u32::MAX >> 1;

/// The next frame of a body, if there is one, and whether the body ends with it.
pub type BodyFrame = (Option<Frame<Bytes>>, bool);

/// The stream of a body was reset or has ended with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream was closed")]
pub struct StreamClosed;

/// What a frame of the client means for its requests.
#[derive(Debug)]
pub enum Event {
    /// A request arrived.
    Request {
        /// Its stream.
        key: StreamKey,
        /// Its head, and its Content-Length if there is one; or why it is refused.
        head: Result<Request, RequestError>,
        /// The request has no body.
        ended: bool,
        /// The method is HEAD: the response has no body.
        is_head: bool,
    },
    /// The stream in this slot was closed; its request must not be served further.
    Reset(usize),
}

/// How far the graceful shutdown of the connection has come (RFC 9113 §6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    /// It has not begun.
    No,
    /// The client is asked to open no more streams; those that it opens meanwhile are served.
    Announced,
    /// Streams above this identifier are ignored.
    Last(u32),
}

/// A connection.
#[derive(Debug)]
pub struct Session {
    /// The send buffer: whole frames, of which the first `written` bytes were sent.
    out: Vec<u8>,
    written: usize,
    /// The task of the connection, to be woken when frames are written outside of it.
    task: Option<Waker>,
    /// The task is being polled.
    is_polled: bool,
    decoder: Decoder,
    encoder: Encoder,
    floods: FloodDetector,
    /// Why the client was told ENHANCE_YOUR_CALM, until it is asked for; and that it was told.
    abort: Option<AbortReason>,
    is_aborted: bool,
    streams: StreamTable,
    limits: HeadLimits,
    /// Bytes of the connection preface that were received.
    preface_received: usize,
    /// The first SETTINGS were received.
    has_settings: bool,
    /// The highest stream identifier of the client.
    last_stream: u32,
    /// A field block that is not complete.
    block: Option<Block>,
    /// The client's SETTINGS_INITIAL_WINDOW_SIZE.
    initial_window: i64,
    /// The send window of the connection.
    send_window: i64,
    /// The receive window of the connection.
    receive_window: usize,
    /// Bytes that were read and are not returned to the client by WINDOW_UPDATE yet.
    unreturned: usize,
    /// By how much the receive window is above [`CONNECTION_WINDOW`] because bodies that are not read hold much of it.
    extra_window: usize,
    /// The number of streams that are blocked on the send buffer or on a send window.
    blocked: usize,
    /// The slot whose turn it is among them.
    next_slot: usize,
    shutdown: Shutdown,
    /// The client has sent GOAWAY.
    client_goes_away: bool,
    /// The client has answered the last keepalive.
    is_alive: bool,
    /// The final GOAWAY was sent.
    has_goaway: bool,
}

impl Session {
    /// A new connection; `now` is the time of its start on a clock of the caller, which [`set_time`](Self::set_time)
    /// continues.
    pub fn new(limits: HeadLimits, floods: Arc<FloodLimits>, now: Duration) -> Self {
        let mut session = Self {
            out: Vec::new(),
            written: 0,
            task: None,
            is_polled: false,
            decoder: Decoder::new(hpack::DEFAULT_TABLE_SIZE),
            encoder: Encoder::default(),
            floods: FloodDetector::new(floods, millis(now)),
            abort: None,
            is_aborted: false,
            streams: StreamTable::default(),
            limits,
            preface_received: 0,
            has_settings: false,
            last_stream: 0,
            block: None,
            initial_window: DEFAULT_WINDOW as i64,
            send_window: DEFAULT_WINDOW as i64,
            receive_window: CONNECTION_WINDOW,
            unreturned: 0,
            extra_window: 0,
            blocked: 0,
            next_slot: 0,
            shutdown: Shutdown::No,
            client_goes_away: false,
            is_alive: false,
            has_goaway: false,
        };
        let list = u32::try_from(limits.bytes).unwrap_or(u32::MAX);
        let settings = [
            (setting::MAX_CONCURRENT_STREAMS, STREAMS as u32),
            (setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW as u32),
            (setting::MAX_HEADER_LIST_SIZE, list),
        ];
        frame::settings(&mut session.out, &settings);
        frame::window_update(&mut session.out, 0, (CONNECTION_WINDOW - DEFAULT_WINDOW) as u32);
        session
    }

    /// The task of the connection is being polled: it is not woken until [`exit`](Self::exit).
    pub fn enter(&mut self, context: &Context<'_>) {
        self.is_polled = true;
        if !self.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
            self.task = Some(context.waker().clone());
        }
    }

    /// The task of the connection waits: it is woken when frames are written meanwhile.
    #[inline]
    pub fn exit(&mut self) {
        self.is_polled = false;
    }

    /// Gives the session a send buffer, if it has none.
    #[inline]
    pub fn lend_buffer(&mut self, buffer: impl FnOnce() -> Vec<u8>) {
        if self.out.capacity() == 0 {
            self.out = buffer();
        }
    }

    /// Takes the send buffer back, if nothing is left to be sent.
    #[inline]
    pub fn return_buffer(&mut self) -> Option<Vec<u8>> {
        (self.unsent() == 0).then(|| std::mem::take(&mut self.out))
    }

    /// The bytes to be sent.
    #[inline]
    pub fn output(&self) -> &[u8] {
        &self.out[self.written..]
    }

    /// The number of bytes to be sent.
    #[inline]
    pub fn unsent(&self) -> usize {
        self.out.len() - self.written
    }

    /// The first `length` bytes of [`output`](Self::output) were sent.
    #[inline]
    pub fn advance(&mut self, length: usize) {
        self.written += length;
        // Moves the rest to the front when it is shorter than what was sent.
        if self.written >= self.unsent() {
            self.out.drain(..self.written);
            self.written = 0;
        }
    }

    /// Whether the send buffer is full: responses wait, and no more frames of the client should be read.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.unsent() > SEND_BUFFER
    }

    /// Whether the connection can be closed: either side has announced its end, and no stream is open.
    pub fn is_over(&self) -> bool {
        let is_ending = self.client_goes_away || matches!(self.shutdown, Shutdown::Last(_));
        is_ending && self.streams.open() == 0
    }

    /// Sends a PING that a live client answers.
    pub fn send_keepalive(&mut self) {
        self.is_alive = false;
        frame::ping(&mut self.out, 0, KEEPALIVE);
    }

    /// Whether the client has answered the last keepalive.
    pub fn keepalive_answered(&self) -> bool {
        self.is_alive
    }

    /// Begins a graceful shutdown: GOAWAY with the highest stream identifier, then a PING. When the client answers the PING,
    /// it has seen the GOAWAY, and a second one names the last stream that is served (RFC 9113 §6.8).
    pub fn begin_shutdown(&mut self) {
        if self.shutdown == Shutdown::No {
            self.shutdown = Shutdown::Announced;
            frame::goaway(&mut self.out, MAX_STREAM_ID, Reason::NO_ERROR);
            frame::ping(&mut self.out, 0, SHUTDOWN);
        }
    }

    /// Sends the final GOAWAY, unless it was sent.
    pub fn go_away(&mut self, reason: Reason) {
        if !std::mem::replace(&mut self.has_goaway, true) {
            let last = match self.shutdown {
                Shutdown::Last(last) => last, // it must not increase
                _ => self.last_stream,
            };
            tracing::debug!(last_stream = last, %reason, "GOAWAY sent");
            frame::goaway(&mut self.out, last, reason);
        }
    }

    /// A flood was detected: new requests are ignored, and the client is told why. See [`take_abort`](Self::take_abort).
    fn abort_connection(&mut self, reason: AbortReason) {
        (self.abort, self.is_aborted) = (Some(reason), true);
        self.go_away(Reason::ENHANCE_YOUR_CALM);
        if !matches!(self.shutdown, Shutdown::Last(_)) {
            self.shutdown = Shutdown::Last(self.last_stream);
        }
    }

    /// Whether the connection was aborted because of a flood.
    pub fn is_aborted(&self) -> bool {
        self.is_aborted
    }

    /// Why the connection was aborted, once, and the slots of the requests that must not be served further. After a flood of
    /// resets the remaining requests are served; otherwise those without a response are part of the flood.
    pub fn take_abort(&mut self) -> Option<(AbortReason, Vec<usize>)> {
        let reason = self.abort.take()?;
        let unanswered = |stream: &Stream| reason != AbortReason::Resets && !stream.has_response;
        let keys: Vec<StreamKey> = self
            .streams
            .from(0)
            .filter(|(_, stream)| unanswered(stream))
            .map(|(slot, stream)| StreamKey { slot, id: stream.id })
            .collect();
        let slots = keys.iter().map(|key| key.slot).collect();
        keys.into_iter().for_each(|key| self.remove(key));
        Some((reason, slots))
    }

    /// The connection has ended: readers of bodies are woken and get [`StreamClosed`].
    pub fn close(&mut self) {
        self.task = None;
        let keys: Vec<StreamKey> =
            self.streams.from(0).map(|(slot, stream)| StreamKey { slot, id: stream.id }).collect();
        keys.into_iter().for_each(|key| self.remove(key));
    }

    /// Releases memory if no stream is open. Returns whether that is so.
    pub fn shrink(&mut self) -> bool {
        let is_idle = self.streams.open() == 0;
        if is_idle {
            self.streams.shrink();
        }
        is_idle
    }

    /// Whether a stream is blocked on the send buffer or on a send window.
    #[inline]
    pub fn has_blocked(&self) -> bool {
        self.blocked > 0
    }

    /// The next frame of a request body. A client that waits for it gets `100 Continue`.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn poll_body(
        &mut self,
        key: StreamKey,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BodyFrame, StreamClosed>> {
        let Some(stream) = self.streams.get(key) else {
            return Poll::Ready(Err(StreamClosed));
        };
        if !stream.data.is_empty() {
            let data = std::mem::take(&mut stream.data).freeze(); // an empty rest would keep its memory
            let ended = stream.is_received && stream.trailers.is_none();
            self.release_window(Some(key), data.len());
            return Poll::Ready(Ok((Some(Frame::data(data)), ended)));
        }
        if stream.is_received {
            return Poll::Ready(Ok((stream.trailers.take().map(Frame::trailers), true)));
        }
        let expects = std::mem::take(&mut stream.expects_continue);
        if !stream.reader.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            stream.reader = Some(cx.waker().clone());
        }
        if expects {
            self.send_interim(key, StatusCode::CONTINUE, &Headers::default());
        }
        Poll::Pending
    }

    /// Whether a request body was received and read to its end.
    pub fn body_is_read(&mut self, key: StreamKey) -> bool {
        let stream = self.streams.get(key);
        stream.is_some_and(|stream| stream.is_received && stream.data.is_empty() && stream.trailers.is_none())
    }

    /// The rest of a request body is not wanted.
    pub fn stop_reading(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.has_reader = false;
        stream.reader = None;
        let unread = std::mem::take(&mut stream.data).len();
        self.release_window(None, unread);
        self.close_if_done(key);
    }

    /// A request is no longer served. Its stream is reset unless the response was sent.
    pub fn stop_serving(&mut self, key: StreamKey) {
        let is_crowded = self.streams.open() > STREAMS / 2;
        let Some(stream) = self.streams.get(key) else { return };
        stream.is_served = false;
        match stream.is_sent {
            false => self.reset(key, Reason::CANCEL),
            true if is_crowded => self.reset(key, Reason::NO_ERROR), // makes room for other streams
            true => self.close_if_done(key),
        }
    }

    /// After the response, asks the client to stop sending a body that nobody reads (RFC 9113 §8.1).
    fn close_if_done(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.get(key)
            && stream.is_sent
            && !stream.is_served
            && !stream.has_reader
        {
            self.reset(key, Reason::NO_ERROR);
        }
    }

    /// Returns `length` bytes to the receive windows of the connection and, if given, of a stream. WINDOW_UPDATE is sent when a
    /// large part of a window can be returned.
    fn release_window(&mut self, of: Option<StreamKey>, length: usize) {
        let Self { out, streams, .. } = self;
        let mut is_updated = false;
        if let Some(stream) = of.and_then(|key| streams.get(key)).filter(|stream| !stream.is_received) {
            stream.unreturned += length;
            if stream.unreturned >= STREAM_WINDOW / 2 {
                is_updated = true;
                stream.receive_window += stream.unreturned;
                frame::window_update(out, stream.id, std::mem::take(&mut stream.unreturned) as u32);
            }
        }
        let owed = length.min(self.extra_window);
        self.extra_window -= owed;
        self.unreturned += length - owed;
        let free = self.receive_window + self.unreturned;
        if free < CONNECTION_WINDOW / 2 {
            self.extra_window += CONNECTION_WINDOW / 2 - free;
            self.unreturned += CONNECTION_WINDOW / 2 - free;
        }
        // While unread bodies hold most of the window, the rest is returned in smaller parts.
        if 2 * self.unreturned >= self.receive_window && self.unreturned > 0 {
            is_updated = true;
            self.receive_window += self.unreturned;
            frame::window_update(out, 0, std::mem::take(&mut self.unreturned) as u32);
        }
        if is_updated {
            self.wake_task();
        }
    }

    /// Wakes the task of the connection to send frames that were written outside of it.
    fn wake_task(&mut self) {
        if let Some(task) = self.task.as_ref().filter(|_| !self.is_polled) {
            task.wake_by_ref();
        }
    }

    /// Closes a stream.
    fn remove(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.remove(key) else { return };
        self.blocked -= usize::from(stream.is_blocked);
        if let Some(reader) = stream.reader {
            reader.wake();
        }
        self.release_window(None, stream.data.len());
    }

    /// Resets a stream with this error code.
    pub fn reset(&mut self, key: StreamKey, reason: Reason) {
        let Some(stream) = self.streams.get(key) else { return };
        if !stream.is_received {
            self.streams.remember(key.id);
        }
        self.remove(key);
        self.write_reset(key.id, reason);
    }

    fn write_reset(&mut self, id: u32, reason: Reason) {
        tracing::debug!(stream = id, %reason, "RST_STREAM sent");
        frame::reset(&mut self.out, id, reason);
        self.floods.sent_reset(reason);
        self.wake_task();
    }

    /// Unblocks streams for which there is room now, round-robin and as many as can write one frame each. `wake` is called with
    /// their slots.
    pub fn wake_blocked(&mut self, mut wake: impl FnMut(usize)) {
        if self.blocked == 0 {
            return;
        }
        let room = SEND_BUFFER.saturating_sub(self.unsent());
        let mut left = room.div_ceil(frame::MAX_FRAME_SIZE);
        let window = usize::try_from(self.send_window).unwrap_or(0);
        let mut data = room.min(window).div_ceil(frame::MAX_FRAME_SIZE);
        let mut next_slot = self.next_slot;
        for (slot, stream) in self.streams.from(self.next_slot).filter(|(_, stream)| stream.is_blocked) {
            if left == 0 {
                break;
            }
            // Only DATA needs a window.
            if stream.has_response {
                if data == 0 || stream.send_window <= 0 {
                    continue;
                }
                data -= 1;
            }
            stream.is_blocked = false;
            self.blocked -= 1;
            wake(slot);
            next_slot = slot + 1;
            left -= 1;
        }
        self.next_slot = next_slot;
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
