//! What the client sends (RFC 9113 §5, §6).

use std::time::Duration;

use super::super::fault::Fault;
use super::super::frame::{self, Head, PREFACE, Reason, flag, kind, number, setting};
use super::super::head::{Reader, Trailers, Wrong};
use super::super::streams::{Key, Stream};
use super::{ALIVE, Event, LAST, PARTING, Parting, STREAMS, Session, WINDOW, millis};

/// What the payload of HEADERS begins with if its flag says so: the stream that it depends on, and a weight.
const PRIORITY: usize = 5;
/// The largest window (RFC 9113 §6.9.1).
const LARGEST: i64 = i32::MAX as i64;
/// CONTINUATIONs of one head beyond those that it needs.
const PIECES: usize = 8;
/// Lines that come to so much are no mistake, but an attempt to have them copied.
const BOMB: usize = 1 << 20;

/// A head that is not whole.
#[derive(Debug)]
pub(super) struct Block {
    open: Open,
    bytes: Vec<u8>,
    pieces: usize,
}

/// What the first frame of a head says.
#[derive(Clone, Copy, Debug)]
struct Open {
    stream: u32,
    /// Nothing comes behind it.
    ends: bool,
    /// The stream depends on itself.
    loops: bool,
    /// It is the first of its stream.
    is_new: bool,
}

type Received = Result<Option<Event>, Fault>;

impl Session {
    /// Looks whether what came first is the client's preface, as far as it is there: takes it from `bytes`. Whether it is
    /// whole.
    pub(in super::super) fn greet(&mut self, bytes: &mut &[u8]) -> Result<bool, Fault> {
        let wanted = &PREFACE[self.preface..];
        let length = wanted.len().min(bytes.len());
        if bytes[..length] != wanted[..length] {
            return Err(Fault::PROTOCOL);
        }
        *bytes = &bytes[length..];
        self.preface += length;
        Ok(self.preface == PREFACE.len())
    }

    /// Whether a frame came.
    pub(in super::super) fn was_greeted(&self) -> bool {
        self.greeted
    }

    /// Whether a head has begun that is not whole.
    pub(in super::super) fn in_head(&self) -> bool {
        self.block.is_some()
    }

    /// Something comes; `now` is since the start of the gateway.
    pub(in super::super) fn hear(&mut self, now: Duration) {
        self.watch.fill(millis(now));
    }

    /// Takes a whole frame.
    pub(in super::super) fn receive(&mut self, head: &Head, payload: &[u8]) -> Received {
        self.watch.received(head);
        let received = self.frame(head, payload);
        let received = match received {
            Err(Fault::Stream(id, reason)) => {
                let key = self.streams.find(id);
                match key {
                    Some(key) => self.reset(key, reason),
                    None => self.say_reset(id, reason),
                }
                Ok(key.map(|key| Event::Reset(key.slot)))
            }
            received => received,
        };
        match self.watch.take_abort() {
            None => {}
            // It was told, and goes on.
            Some(reason) if self.is_aborted => return Err(Fault::Aborted(reason)),
            Some(reason) if received.is_ok() => self.abort(reason),
            Some(reason) => return Err(Fault::Aborted(reason)),
        }
        received
    }

    fn frame(&mut self, head: &Head, payload: &[u8]) -> Received {
        let is_first = !std::mem::replace(&mut self.greeted, true);
        if (self.block.is_some() && head.kind != kind::CONTINUATION)
            || (is_first && (head.kind != kind::SETTINGS || is_answer(head)))
        {
            return Err(Fault::PROTOCOL);
        }
        match head.kind {
            kind::DATA => self.data(head, payload),
            kind::HEADERS => self.headers(head, payload),
            kind::CONTINUATION => self.continuation(head, payload),
            kind::PRIORITY => priority(head, payload),
            kind::RST_STREAM => self.rst_stream(head, payload),
            kind::SETTINGS => self.settings(head, payload),
            kind::PUSH_PROMISE => Err(Fault::PROTOCOL),
            kind::PING => self.ping(head, payload),
            kind::GOAWAY => self.goaway(head, payload),
            kind::WINDOW_UPDATE => self.window_update(head, payload),
            _ => Ok(None),
        }
    }

    /// Whether a stream was never used.
    fn is_idle(&self, id: u32) -> bool {
        id.is_multiple_of(2) || id > self.last
    }

    fn data(&mut self, head: &Head, payload: &[u8]) -> Received {
        if self.is_idle(head.stream) {
            return Err(Fault::PROTOCOL);
        }
        let data = head.unpadded(payload)?;
        let ends = head.has(flag::END_STREAM);
        if data.is_empty() && !ends {
            self.watch.empty_data();
        }
        self.room =
            self.room.checked_sub(payload.len()).ok_or(Fault::Connection(Reason::FLOW_CONTROL_ERROR))?;
        let Some(key) = self.streams.find(head.stream) else {
            self.give_back(None, payload.len());
            return match self.streams.was_reset(head.stream) || self.is_ignored(head.stream) {
                true => {
                    self.watch.stray();
                    Ok(None)
                }
                false => {
                    self.streams.remember(head.stream);
                    Err(Fault::Stream(head.stream, Reason::STREAM_CLOSED))
                }
            };
        };
        let Some(stream) = self.streams.get(key) else { return Ok(None) };
        if stream.received {
            return Err(Fault::Connection(Reason::STREAM_CLOSED));
        }
        let wrong = match (stream.room.checked_sub(payload.len()), &mut stream.left) {
            (None, _) => Some(Reason::FLOW_CONTROL_ERROR),
            (Some(_), Some(left)) if *left < data.len() as u64 || (ends && *left > data.len() as u64) => {
                Some(Reason::PROTOCOL_ERROR)
            }
            (Some(room), left) => {
                stream.room = room;
                left.as_mut().into_iter().for_each(|left| *left -= data.len() as u64);
                None
            }
        };
        if let Some(reason) = wrong {
            self.give_back(None, payload.len());
            return Err(Fault::Stream(head.stream, reason));
        }
        stream.received = ends;
        stream.expects = false;
        let unread = if stream.has_reader { data.len() } else { 0 };
        if unread > 0 {
            // Copied: a piece of a large buffer would hold all of it, however small it is.
            stream.data.extend_from_slice(data);
        }
        if let Some(reader) = stream.reader.take() {
            reader.wake();
        }
        let padding = payload.len() - data.len();
        let (has_reader, is_over) = (stream.has_reader, ends && stream.sent);
        self.give_back(Some(key).filter(|_| has_reader), padding);
        self.give_back(None, data.len() - unread);
        if is_over {
            self.remove(key);
        }
        Ok(None)
    }

    /// Whether the client was told that this stream is not served.
    fn is_ignored(&self, id: u32) -> bool {
        matches!(self.parting, Parting::Begun(last) if id > last)
    }

    fn headers(&mut self, head: &Head, payload: &[u8]) -> Received {
        if head.stream.is_multiple_of(2) {
            return Err(Fault::PROTOCOL);
        }
        let mut block = head.unpadded(payload)?;
        let mut loops = false;
        if head.has(flag::PRIORITY) {
            let (priority, rest) = block.split_at_checked(PRIORITY).ok_or(Fault::SIZE)?;
            loops = number(priority) & LAST == head.stream;
            block = rest;
        }
        let is_new = head.stream > self.last;
        if is_new {
            self.last = head.stream;
            self.watch.opened(head.length == 0);
        }
        let open = Open { stream: head.stream, ends: head.has(flag::END_STREAM), loops, is_new };
        if head.has(flag::END_HEADERS) {
            return self.whole(open, block);
        }
        self.block = Some(Block { open, bytes: Vec::new(), pieces: 0 });
        self.more(block)
    }

    fn continuation(&mut self, head: &Head, payload: &[u8]) -> Received {
        if self.block.as_ref().is_none_or(|block| block.open.stream != head.stream) {
            return Err(Fault::PROTOCOL);
        }
        self.more(payload)?;
        if !head.has(flag::END_HEADERS) {
            return Ok(None);
        }
        match self.block.take() {
            Some(block) => self.whole(block.open, &block.bytes),
            None => Ok(None),
        }
    }

    /// More of the head that is under way, in bounds: of one that is too large the client is told so, if it is not larger
    /// than all reason.
    fn more(&mut self, bytes: &[u8]) -> Received {
        let most = 2 * self.most.bytes + frame::MOST;
        if let Some(block) = &mut self.block {
            block.pieces += 1;
            block.bytes.extend_from_slice(bytes);
            if block.bytes.len() > most || block.pieces > PIECES + most / frame::MOST {
                return Err(Fault::Connection(Reason::ENHANCE_YOUR_CALM));
            }
        }
        Ok(None)
    }

    /// A head is whole.
    fn whole(&mut self, open: Open, block: &[u8]) -> Received {
        let key = self.streams.find(open.stream);
        match key {
            _ if open.is_new && !self.is_ignored(open.stream) => self.request(open, block),
            Some(key) => self.trailers(key, open, block),
            None if open.is_new || self.streams.was_reset(open.stream) || self.is_ignored(open.stream) => {
                self.watch.stray();
                // Read all the same: the next ones build on it.
                let read = self.decoder.decode(block, |_, _| ());
                read.map(|()| None).map_err(|_| Fault::Connection(Reason::COMPRESSION_ERROR))
            }
            None => Err(Fault::Connection(Reason::STREAM_CLOSED)),
        }
    }

    fn request(&mut self, open: Open, block: &[u8]) -> Received {
        let mut reader = Reader::new(self.most, block.len());
        if self.decoder.decode(block, |name, value| reader.line(name, value)).is_err() {
            let is_bomb = reader.size() > BOMB;
            let reason = if is_bomb { Reason::ENHANCE_YOUR_CALM } else { Reason::COMPRESSION_ERROR };
            return Err(Fault::Connection(reason));
        }
        if self.streams.open() >= STREAMS
            && let Some(key) = self.streams.answered()
        {
            self.reset(key, Reason::NO_ERROR); // its request was refused, and what still comes of it is not wanted
        }
        if self.streams.open() >= STREAMS {
            self.streams.remember(open.stream);
            return Err(Fault::Stream(open.stream, Reason::REFUSED_STREAM));
        }
        let (bodiless, expects) = (reader.is_head(), reader.expects());
        let head = reader.finish();
        let length = head.as_ref().ok().and_then(|(_, length)| *length);
        let is_short = open.ends && length.is_some_and(|length| length > 0);
        if open.loops || is_short || matches!(head, Err(Wrong::Malformed)) {
            if !open.ends {
                self.streams.remember(open.stream);
            }
            return Err(Fault::Stream(open.stream, Reason::PROTOCOL_ERROR));
        }
        if matches!(head, Err(Wrong::TooLarge)) {
            self.watch.large_head();
        }
        let key = self.streams.insert(Stream {
            id: open.stream,
            opened: self.watch.now(),
            window: self.initial,
            room: WINDOW,
            received: open.ends,
            left: length,
            expects: expects && !open.ends,
            has_reader: !open.ends && head.is_ok(),
            is_served: true,
            ..Stream::default()
        });
        Ok(Some(Event::Request { key, head, ended: open.ends, bodiless }))
    }

    fn trailers(&mut self, key: Key, open: Open, block: &[u8]) -> Received {
        let mut trailers = Trailers::new(self.most);
        let read = self.decoder.decode(block, |name, value| trailers.line(name, value));
        read.map_err(|_| Fault::Connection(Reason::COMPRESSION_ERROR))?;
        let Some(stream) = self.streams.get(key) else { return Ok(None) };
        if stream.received {
            return Err(Fault::Connection(Reason::STREAM_CLOSED));
        }
        let is_short = stream.left.is_some_and(|left| left > 0);
        let trailers = trailers.finish().filter(|_| open.ends && !open.loops && !is_short);
        let Some(trailers) = trailers else {
            return Err(Fault::Stream(open.stream, Reason::PROTOCOL_ERROR));
        };
        stream.received = true;
        stream.trailers = Some(trailers).filter(|trailers| stream.has_reader && !trailers.is_empty());
        if let Some(reader) = stream.reader.take() {
            reader.wake();
        }
        if stream.sent {
            self.remove(key);
        }
        Ok(None)
    }

    fn rst_stream(&mut self, head: &Head, payload: &[u8]) -> Received {
        if payload.len() != 4 {
            return Err(Fault::SIZE);
        }
        if self.is_idle(head.stream) {
            return Err(Fault::PROTOCOL);
        }
        let key = self.streams.find(head.stream);
        self.watch.reset(key.and_then(|key| self.streams.get(key)).map(|stream| stream.opened));
        let Some(key) = key else { return Ok(None) };
        self.remove(key);
        Ok(Some(Event::Reset(key.slot)))
    }

    fn settings(&mut self, head: &Head, payload: &[u8]) -> Received {
        if head.stream != 0 {
            return Err(Fault::PROTOCOL);
        }
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() || (is_answer(head) && !payload.is_empty()) {
            return Err(Fault::SIZE);
        }
        if is_answer(head) {
            self.watch.told();
            return Ok(None);
        }
        for [a, b, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*a, *b]) {
                setting::ENABLE_PUSH if value > 1 => return Err(Fault::PROTOCOL),
                setting::INITIAL_WINDOW_SIZE => self.set_initial(i64::from(value))?,
                setting::MAX_FRAME_SIZE if !(1 << 14..1 << 24).contains(&value) => {
                    return Err(Fault::PROTOCOL);
                }
                setting::HEADER_TABLE_SIZE => self.encoder.resize(value as usize),
                // Frames are no larger than all clients take.
                _ => {}
            }
        }
        frame::settings_ack(&mut self.out);
        Ok(None)
    }

    /// The client allows another window for each stream, also for those that are open.
    fn set_initial(&mut self, window: i64) -> Result<(), Fault> {
        if window > LARGEST {
            return Err(Fault::Connection(Reason::FLOW_CONTROL_ERROR));
        }
        let more = window - self.initial;
        self.initial = window;
        for (_, stream) in self.streams.from(0) {
            stream.window += more;
            if stream.window > LARGEST {
                return Err(Fault::Connection(Reason::FLOW_CONTROL_ERROR));
            }
        }
        Ok(())
    }

    fn ping(&mut self, head: &Head, payload: &[u8]) -> Received {
        if head.stream != 0 {
            return Err(Fault::PROTOCOL);
        }
        let payload = <[u8; 8]>::try_from(payload).map_err(|_| Fault::SIZE)?;
        match payload {
            _ if !is_answer(head) => frame::ping(&mut self.out, flag::ACK, payload),
            ALIVE => self.lives = true,
            PARTING if self.parting == Parting::Announced => {
                self.parting = Parting::Begun(self.last);
                frame::goaway(&mut self.out, self.last, Reason::NO_ERROR);
            }
            _ => {}
        }
        Ok(None)
    }

    fn goaway(&mut self, head: &Head, payload: &[u8]) -> Received {
        match payload.len() {
            _ if head.stream != 0 => Err(Fault::PROTOCOL),
            0..8 => Err(Fault::SIZE),
            _ => {
                self.leaves = true;
                Ok(None)
            }
        }
    }

    fn window_update(&mut self, head: &Head, payload: &[u8]) -> Received {
        if payload.len() != 4 {
            return Err(Fault::SIZE);
        }
        let more = i64::from(number(payload) & LAST);
        if head.stream == 0 {
            self.window += more;
            return match more {
                0 => Err(Fault::PROTOCOL),
                _ if self.window > LARGEST => Err(Fault::Connection(Reason::FLOW_CONTROL_ERROR)),
                _ => Ok(None),
            };
        }
        if self.is_idle(head.stream) {
            return Err(Fault::PROTOCOL);
        }
        let Some(stream) = self.streams.find(head.stream).and_then(|key| self.streams.get(key)) else {
            return Ok(None);
        };
        stream.window += more;
        match more {
            0 => Err(Fault::Stream(head.stream, Reason::PROTOCOL_ERROR)),
            _ if stream.window > LARGEST => Err(Fault::Stream(head.stream, Reason::FLOW_CONTROL_ERROR)),
            _ => Ok(None),
        }
    }
}

/// Whether a flag of SETTINGS and PING says that they are answers.
fn is_answer(head: &Head) -> bool {
    head.has(flag::ACK)
}

/// Priorities are not used (RFC 9113 §5.3.2), only looked at.
fn priority(head: &Head, payload: &[u8]) -> Received {
    match payload.len() {
        _ if head.stream == 0 => Err(Fault::PROTOCOL),
        PRIORITY if number(payload) & LAST == head.stream => Err(Fault::PROTOCOL),
        PRIORITY => Ok(None),
        _ => Err(Fault::SIZE),
    }
}
