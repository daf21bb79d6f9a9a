//! What a connection of HTTP/2 is, without its socket: frames of the client come in, and say what happened; frames for it
//! are written into one buffer. `receive` reads them, `send` writes.

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

pub(super) use self::send::Answer;
use super::frame::{self, Reason, setting};
use super::head::{Most, Read, Wrong};
use super::hpack::{self, Decoder, Encoder};
use super::requests::SLOTS;
use super::streams::{Key, Stream, Streams};
use super::watch::Watch;
use crate::config::H2Config;
use crate::fields::Fields;
use crate::metrics::AbortReason;
use crate::server::inbound::InboundError;

/// Requests at once on one connection.
const STREAMS: usize = 100;
const _: () = assert!(STREAMS <= SLOTS, "each has a slot");
/// What a client may send of one request before it was read.
const WINDOW: usize = 64 << 10;
/// And of all together, unless bodies that nobody reads hold half of it: then others are given more, as far as the windows
/// of single requests go.
const WINDOWS: usize = 1 << 20;
/// The window that each side has before anything is said of it (RFC 9113 §6.9.2).
const DEFAULT: usize = 65_535;
/// What may lie unsent on a connection before more is added to it.
const UNSENT: usize = 40 << 10;
/// What tells the PINGs of the gateway apart: those that ask whether the client lives, and the one before the end.
const ALIVE: [u8; 8] = *b"alive?..";
const PARTING: [u8; 8] = *b"parting.";
/// The highest stream there can be; and all bits of a number but the first, which is reserved.
const LAST: u32 = u32::MAX >> 1;

/// A piece of a body, if there is one more, and whether it is the last.
pub(super) type Piece = (Option<Frame<Bytes>>, bool);

/// What happened to a request.
#[derive(Debug)]
pub(super) enum Event {
    /// One came.
    Request {
        /// Its stream.
        key: Key,
        /// Its head, and how long it says that its body is.
        head: Result<Read, Wrong>,
        /// Whether the head is all.
        ended: bool,
        /// Whether it asks for an answer without its body.
        bodiless: bool,
    },
    /// The one in this slot is nobody's any more.
    Reset(usize),
}

/// How far the gateway has told the client that the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parting {
    No,
    /// It is not to send new requests; what is under way to here is served.
    Announced,
    /// Requests beyond this stream are not served.
    Begun(u32),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Session {
    /// What is to be sent: whole frames, of which some part was sent already.
    pub(super) out: Vec<u8>,
    /// How much of it was sent.
    pub(super) written: usize,
    /// Its task, for those that add something outside of it.
    task: Option<Waker>,
    /// It is being polled.
    is_polled: bool,
    decoder: Decoder,
    encoder: Encoder,
    watch: Watch,
    /// Why the client was told that it is aborted, until somebody asks; and that it was.
    abort: Option<AbortReason>,
    is_aborted: bool,
    streams: Streams,
    /// What heads may come to.
    most: Most,
    /// How much of the client's preface came.
    preface: usize,
    /// Whether its SETTINGS came.
    greeted: bool,
    /// The highest stream of the client.
    last: u32,
    /// A head that is not whole.
    block: Option<receive::Block>,
    /// What may be sent on a stream that is opened.
    initial: i64,
    /// What may be sent on all streams together.
    window: i64,
    /// What the client may still send on all streams together.
    room: usize,
    /// What was read of that and is not given back to the client yet.
    used: usize,
    /// What the client was given beyond [`WINDOWS`] while bodies that nobody reads hold much of it.
    grown: usize,
    /// Answers that wait for room.
    waiting: usize,
    /// Whose turn it is among them.
    turn: usize,
    parting: Parting,
    /// The client has told that it leaves.
    leaves: bool,
    /// The client has answered whether it lives.
    lives: bool,
    ended: bool,
}

impl Session {
    /// A connection on which nothing was said; `now` is since the start of the gateway.
    pub(super) fn new(most: Most, config: Arc<H2Config>, now: Duration) -> Self {
        let mut session = Self {
            out: Vec::new(),
            written: 0,
            task: None,
            is_polled: false,
            decoder: Decoder::new(hpack::TABLE),
            encoder: Encoder::new(),
            watch: Watch::new(config, millis(now)),
            abort: None,
            is_aborted: false,
            streams: Streams::default(),
            most,
            preface: 0,
            greeted: false,
            last: 0,
            block: None,
            initial: DEFAULT as i64,
            window: DEFAULT as i64,
            room: WINDOWS,
            used: 0,
            grown: 0,
            waiting: 0,
            turn: 0,
            parting: Parting::No,
            leaves: false,
            lives: false,
            ended: false,
        };
        let list = u32::try_from(most.bytes).unwrap_or(u32::MAX);
        let settings = [
            (setting::MAX_CONCURRENT_STREAMS, STREAMS as u32),
            (setting::INITIAL_WINDOW_SIZE, WINDOW as u32),
            (setting::MAX_HEADER_LIST_SIZE, list),
        ];
        frame::settings(&mut session.out, &settings);
        frame::window_update(&mut session.out, 0, (WINDOWS - DEFAULT) as u32);
        session
    }

    /// The connection's task is polled.
    pub(super) fn enter(&mut self, context: &Context<'_>) {
        self.is_polled = true;
        if !self.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
            self.task = Some(context.waker().clone());
        }
    }

    /// It waits again.
    pub(super) fn exit(&mut self) {
        self.is_polled = false;
    }

    /// What lies unsent.
    pub(super) fn unsent(&self) -> usize {
        self.out.len() - self.written
    }

    /// So much more was sent. What was is let go before it is more than what was not.
    pub(super) fn was_sent(&mut self, length: usize) {
        self.written += length;
        if self.written >= self.unsent() {
            self.out.drain(..self.written);
            self.written = 0;
        }
    }

    /// Whether so much lies unsent that nothing more is to be added.
    pub(super) fn is_full(&self) -> bool {
        self.unsent() > UNSENT
    }

    /// Whether all is over: the client knows that the connection ends, and nothing is under way.
    pub(super) fn is_over(&self) -> bool {
        let told = self.leaves || matches!(self.parting, Parting::Begun(_));
        told && self.streams.open() == 0
    }

    /// Asks the client whether it lives.
    pub(super) fn ask(&mut self) {
        self.lives = false;
        frame::ping(&mut self.out, 0, ALIVE);
    }

    /// Whether it has said so since it was asked.
    pub(super) fn lives(&self) -> bool {
        self.lives
    }

    /// Tells the client that the connection ends, while requests that it sends meanwhile are still served: it hears of that
    /// before the last one is named (RFC 9113 §6.8).
    pub(super) fn part(&mut self) {
        if self.parting == Parting::No {
            self.parting = Parting::Announced;
            frame::goaway(&mut self.out, LAST, Reason::NO_ERROR);
            frame::ping(&mut self.out, 0, PARTING);
        }
    }

    /// Tells the client that the connection ends here, and why.
    pub(super) fn leave(&mut self, reason: Reason) {
        if !std::mem::replace(&mut self.ended, true) {
            let last = match self.parting {
                Parting::Begun(last) => last, // which may not rise again
                _ => self.last,
            };
            frame::goaway(&mut self.out, last, reason);
        }
    }

    /// The client has sent too much of something: new requests are refused, and it is told why. Answers that it did not
    /// spoil run to their end.
    fn abort(&mut self, reason: AbortReason) {
        (self.abort, self.is_aborted) = (Some(reason), true);
        self.leave(Reason::ENHANCE_YOUR_CALM);
        if !matches!(self.parting, Parting::Begun(_)) {
            self.parting = Parting::Begun(self.last);
        }
    }

    /// Whether the client was told that it is aborted.
    pub(super) fn was_aborted(&self) -> bool {
        self.is_aborted
    }

    /// Why the client is aborted, once; and the slots of requests that are broken off for it: whoever takes back requests
    /// may still want those that it left, otherwise those that have no answer yet are part of the flood.
    pub(super) fn take_abort(&mut self) -> Option<(AbortReason, Vec<usize>)> {
        let reason = self.abort.take()?;
        let unanswered = |stream: &Stream| reason != AbortReason::Resets && !stream.answered;
        let keys: Vec<Key> = self
            .streams
            .from(0)
            .filter(|(_, stream)| unanswered(stream))
            .map(|(slot, stream)| Key { slot, id: stream.id })
            .collect();
        let slots = keys.iter().map(|key| key.slot).collect();
        keys.into_iter().for_each(|key| self.remove(key));
        Some((reason, slots))
    }

    /// The connection has ended: who still reads a body hears of it.
    pub(super) fn close(&mut self) {
        self.task = None;
        let keys: Vec<Key> = self.streams.from(0).map(|(slot, stream)| Key { slot, id: stream.id }).collect();
        keys.into_iter().for_each(|key| self.remove(key));
    }

    /// Gives back memory that is of no use while nothing is under way; whether that is so.
    pub(super) fn shrink(&mut self) -> bool {
        let is_idle = self.streams.open() == 0;
        if is_idle {
            self.streams.shrink();
        }
        is_idle
    }

    /// Whether an answer waits for room.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// The next piece of a body, for its reader, and whether it is the last.
    pub(super) fn read(&mut self, key: Key, context: &mut Context<'_>) -> Poll<Result<Piece, InboundError>> {
        let Some(stream) = self.streams.get(key) else {
            return Poll::Ready(Err(InboundError::Http2));
        };
        if !stream.data.is_empty() {
            let data = std::mem::take(&mut stream.data).freeze(); // an empty rest would hold its memory
            let ended = stream.received && stream.trailers.is_none();
            self.give_back(Some(key), data.len());
            return Poll::Ready(Ok((Some(Frame::data(data)), ended)));
        }
        if stream.received {
            return Poll::Ready(Ok((stream.trailers.take().map(Frame::trailers), true)));
        }
        let expects = std::mem::take(&mut stream.expects);
        if !stream.reader.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            stream.reader = Some(context.waker().clone());
        }
        if expects {
            self.interim(key, StatusCode::CONTINUE, &Fields::default());
        }
        Poll::Pending
    }

    /// Whether a body has come and was read.
    pub(super) fn is_read(&mut self, key: Key) -> bool {
        let stream = self.streams.get(key);
        stream.is_some_and(|stream| stream.received && stream.data.is_empty() && stream.trailers.is_none())
    }

    /// A body is read no further.
    pub(super) fn read_no_more(&mut self, key: Key) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.has_reader = false;
        stream.reader = None;
        let unread = std::mem::take(&mut stream.data).len();
        self.give_back(None, unread);
        self.settle(key);
    }

    /// A request is served no further; what was not answered is reset.
    pub(super) fn serve_no_more(&mut self, key: Key) {
        let is_crowded = self.streams.open() > STREAMS / 2;
        let Some(stream) = self.streams.get(key) else { return };
        stream.is_served = false;
        match stream.sent {
            false => self.reset(key, Reason::CANCEL),
            true if is_crowded => self.reset(key, Reason::NO_ERROR), // others may need its place
            true => self.settle(key),
        }
    }

    /// A request that was answered and whose body nobody reads needs not be sent further (RFC 9113 §8.1).
    fn settle(&mut self, key: Key) {
        if let Some(stream) = self.streams.get(key)
            && stream.sent
            && !stream.is_served
            && !stream.has_reader
        {
            self.reset(key, Reason::NO_ERROR);
        }
    }

    /// So much was read: the client may send as much again, and is told when it is a good part of what it may.
    fn give_back(&mut self, of: Option<Key>, length: usize) {
        let Self { out, streams, .. } = self;
        let mut told = false;
        if let Some(stream) = of.and_then(|key| streams.get(key)).filter(|stream| !stream.received) {
            stream.used += length;
            if stream.used >= WINDOW / 2 {
                told = true;
                stream.room += stream.used;
                frame::window_update(out, stream.id, std::mem::take(&mut stream.used) as u32);
            }
        }
        let owed = length.min(self.grown);
        self.grown -= owed;
        self.used += length - owed;
        let free = self.room + self.used;
        if free < WINDOWS / 2 {
            self.grown += WINDOWS / 2 - free;
            self.used += WINDOWS / 2 - free;
        }
        // Where bodies that nobody reads hold most of the window, what is left of it is given back in smaller parts.
        if 2 * self.used >= self.room && self.used > 0 {
            told = true;
            self.room += self.used;
            frame::window_update(out, 0, std::mem::take(&mut self.used) as u32);
        }
        if told {
            self.call();
        }
    }

    /// Has the connection's task send what was added outside of it.
    fn call(&mut self) {
        if let Some(task) = self.task.as_ref().filter(|_| !self.is_polled) {
            task.wake_by_ref();
        }
    }

    /// A stream is closed.
    fn remove(&mut self, key: Key) {
        let Some(stream) = self.streams.remove(key) else { return };
        self.waiting -= usize::from(stream.waits);
        if let Some(reader) = stream.reader {
            reader.wake();
        }
        self.give_back(None, stream.data.len());
    }

    /// Resets a stream, and tells the client why.
    pub(super) fn reset(&mut self, key: Key, reason: Reason) {
        let Some(stream) = self.streams.get(key) else { return };
        if !stream.received {
            self.streams.remember(key.id);
        }
        self.remove(key);
        self.say_reset(key.id, reason);
    }

    fn say_reset(&mut self, id: u32, reason: Reason) {
        frame::reset(&mut self.out, id, reason);
        self.watch.sent_reset(reason);
        self.call();
    }

    /// Requests that are to go on and answers that there is room for now: `wake` is told their slots, one frame's worth each,
    /// whoever had none last first.
    pub(super) fn wake_waiting(&mut self, mut wake: impl FnMut(usize)) {
        if self.waiting == 0 {
            return;
        }
        let room = UNSENT.saturating_sub(self.unsent());
        let mut left = room.div_ceil(frame::MOST);
        let window = usize::try_from(self.window).unwrap_or(0);
        let mut data = room.min(window).div_ceil(frame::MOST);
        let mut turn = self.turn;
        for (slot, stream) in self.streams.from(self.turn).filter(|(_, stream)| stream.waits) {
            if left == 0 {
                break;
            }
            // Heads need no window.
            if stream.answered {
                if data == 0 || stream.window <= 0 {
                    continue;
                }
                data -= 1;
            }
            stream.waits = false;
            self.waiting -= 1;
            wake(slot);
            turn = slot + 1;
            left -= 1;
        }
        self.turn = turn;
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
