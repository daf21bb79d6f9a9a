//! Frames of the client (RFC 9113 §5, §6).

use std::time::Duration;

use super::super::ConnectionError;
use super::super::error::H2Error;
use super::super::frame::{
    self, FRAME_HEADER, FrameHeader, MAX_FRAME_SIZE, PREFACE, flag, kind, number, setting,
};
use super::super::reason::Reason;
use super::super::request_head::{RequestBuilder, RequestError, TrailersBuilder};
use super::super::stream_table::{Stream, StreamKey};
use super::block::{Block, HeadersFrame};
use super::{Event, KEEPALIVE, MAX_STREAM_ID, SHUTDOWN, STREAM_WINDOW, STREAMS, Session, Shutdown, millis};

/// The bytes of the priority that HEADERS may begin with, and of the payload of PRIORITY.
const PRIORITY: usize = 5;
/// The largest flow-control window (RFC 9113 §6.9.1).
const MAX_WINDOW: i64 = i32::MAX as i64;
/// CONTINUATION frames of one field block beyond those that its size needs: some clients cut a small head into many.
const EXTRA_CONTINUATIONS: usize = 256;
/// A malformed field block whose fields have more bytes than this is an attack (HPACK bomb).
const HPACK_BOMB: usize = 1 << 20;

type Received = Result<Option<Event>, H2Error>;

impl Session {
    /// Handles the complete frames at the start of `bytes` and removes them, until one of them is an event. `None` when no
    /// complete frame is left: the caller keeps the rest and appends what arrives next.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub fn next_event(&mut self, bytes: &mut &[u8]) -> Result<Option<Event>, ConnectionError> {
        self.next(bytes).map_err(|error| match error {
            H2Error::Connection(reason) | H2Error::Stream(_, reason) => ConnectionError::Protocol(reason),
            H2Error::Abort(reason) => ConnectionError::Flood(reason),
        })
    }

    fn next(&mut self, bytes: &mut &[u8]) -> Received {
        if self.preface_received < PREFACE.len() && !self.receive_preface(bytes)? {
            return Ok(None);
        }
        while let Some(header) = FrameHeader::read(bytes) {
            if header.length > MAX_FRAME_SIZE {
                return Err(H2Error::SIZE);
            }
            let Some(payload) = bytes.get(FRAME_HEADER..FRAME_HEADER + header.length) else { break };
            *bytes = &bytes[FRAME_HEADER + header.length..];
            if let Some(event) = self.receive(&header, payload)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Compares the start of `bytes` with the connection preface and removes it. Returns whether the preface is complete.
    pub(super) fn receive_preface(&mut self, bytes: &mut &[u8]) -> Result<bool, H2Error> {
        let expected = &PREFACE[self.preface_received..];
        let length = expected.len().min(bytes.len());
        if bytes[..length] != expected[..length] {
            return Err(H2Error::PROTOCOL);
        }
        *bytes = &bytes[length..];
        self.preface_received += length;
        Ok(self.preface_received == PREFACE.len())
    }

    /// Whether the first SETTINGS of the client were received.
    pub fn has_settings(&self) -> bool {
        self.has_settings
    }

    /// Whether a field block has begun and is not complete.
    pub fn has_partial_head(&self) -> bool {
        self.block.is_some()
    }

    /// Sets the time of the frames that are received next, on the clock of [`new`](Self::new).
    pub fn set_time(&mut self, now: Duration) {
        self.floods.fill(millis(now));
    }

    /// Handles one frame.
    pub(super) fn receive(&mut self, head: &FrameHeader, payload: &[u8]) -> Received {
        self.floods.received(head);
        let received = self.frame(head, payload);
        let received = match received {
            Err(H2Error::Stream(id, reason)) => {
                let key = self.streams.find(id);
                match key {
                    Some(key) => self.reset(key, reason),
                    None => self.write_reset(id, reason),
                }
                Ok(key.map(|key| Event::Reset(key.slot)))
            }
            Err(error) => {
                tracing::debug!(frame = head.kind, stream = head.stream, ?error, "HTTP/2 connection error");
                received
            }
            Ok(_) => received,
        };
        match self.floods.take_abort() {
            None => {}
            // It was told and continues.
            Some(reason) if self.is_aborted => return Err(H2Error::Abort(reason)),
            Some(reason) if received.is_ok() => self.abort_connection(reason),
            Some(reason) => return Err(H2Error::Abort(reason)),
        }
        received
    }

    fn frame(&mut self, head: &FrameHeader, payload: &[u8]) -> Received {
        let is_first = !std::mem::replace(&mut self.has_settings, true);
        if (self.block.is_some() && head.kind != kind::CONTINUATION)
            || (is_first && (head.kind != kind::SETTINGS || is_ack(head)))
        {
            return Err(H2Error::PROTOCOL);
        }
        match head.kind {
            kind::DATA => self.data(head, payload),
            kind::HEADERS => self.headers(head, payload),
            kind::CONTINUATION => self.continuation(head, payload),
            kind::PRIORITY => priority(head, payload),
            kind::RST_STREAM => self.rst_stream(head, payload),
            kind::SETTINGS => self.settings(head, payload),
            kind::PUSH_PROMISE => Err(H2Error::PROTOCOL),
            kind::PING => self.ping(head, payload),
            kind::GOAWAY => self.goaway(head, payload),
            kind::WINDOW_UPDATE => self.window_update(head, payload),
            _ => Ok(None),
        }
    }

    /// Whether a stream is in the idle state.
    fn is_idle(&self, id: u32) -> bool {
        id.is_multiple_of(2) || id > self.last_stream
    }

    fn data(&mut self, head: &FrameHeader, payload: &[u8]) -> Received {
        if self.is_idle(head.stream) {
            return Err(H2Error::PROTOCOL);
        }
        let data = head.unpadded(payload)?;
        let ends = head.has(flag::END_STREAM);
        if data.is_empty() && !ends {
            self.floods.empty_data();
        }
        self.receive_window = self
            .receive_window
            .checked_sub(payload.len())
            .ok_or(H2Error::Connection(Reason::FLOW_CONTROL_ERROR))?;
        let Some(key) = self.streams.find(head.stream) else {
            self.release_window(None, payload.len());
            return match self.streams.was_reset(head.stream) || self.is_ignored(head.stream) {
                true => {
                    self.floods.for_closed_stream();
                    Ok(None)
                }
                false => {
                    self.streams.remember(head.stream);
                    Err(H2Error::Stream(head.stream, Reason::STREAM_CLOSED))
                }
            };
        };
        let Some(stream) = self.streams.get(key) else { return Ok(None) };
        let wrong = match (stream.receive_window.checked_sub(payload.len()), &mut stream.body_left) {
            _ if stream.is_received => Some(Reason::STREAM_CLOSED), // RFC 9113 §5.1, half-closed (remote)
            (None, _) => Some(Reason::FLOW_CONTROL_ERROR),
            (Some(_), Some(left)) if *left < data.len() as u64 || (ends && *left > data.len() as u64) => {
                Some(Reason::PROTOCOL_ERROR)
            }
            (Some(room), left) => {
                stream.receive_window = room;
                left.as_mut().into_iter().for_each(|left| *left -= data.len() as u64);
                None
            }
        };
        if let Some(reason) = wrong {
            self.release_window(None, payload.len());
            return Err(H2Error::Stream(head.stream, reason));
        }
        stream.is_received = ends;
        stream.expects_continue = false;
        let unread = if stream.has_reader { data.len() } else { 0 };
        if unread > 0 {
            // Copied: a slice would keep the whole read buffer alive.
            stream.data.extend_from_slice(data);
        }
        if let Some(reader) = stream.reader.take() {
            reader.wake();
        }
        let padding = payload.len() - data.len();
        let (has_reader, is_over) = (stream.has_reader, ends && stream.is_sent);
        self.release_window(Some(key).filter(|_| has_reader), padding);
        self.release_window(None, data.len() - unread);
        if is_over {
            self.remove(key);
        }
        Ok(None)
    }

    /// Whether the client was told by GOAWAY that this stream is not served.
    fn is_ignored(&self, id: u32) -> bool {
        matches!(self.shutdown, Shutdown::Last(last) if id > last)
    }

    fn headers(&mut self, head: &FrameHeader, payload: &[u8]) -> Received {
        if head.stream.is_multiple_of(2) {
            return Err(H2Error::PROTOCOL);
        }
        let mut block = head.unpadded(payload)?;
        let mut is_circular = false;
        if head.has(flag::PRIORITY) {
            let (priority, rest) = block.split_at_checked(PRIORITY).ok_or(H2Error::SIZE)?;
            is_circular = number(priority) & MAX_STREAM_ID == head.stream;
            block = rest;
        }
        let is_new = head.stream > self.last_stream;
        if is_new {
            self.last_stream = head.stream;
            self.floods.opened(head.length == 0);
        }
        let headers =
            HeadersFrame { stream: head.stream, ends: head.has(flag::END_STREAM), is_circular, is_new };
        if head.has(flag::END_HEADERS) {
            return self.field_block(headers, block);
        }
        self.block = Some(Block { headers, bytes: Vec::new(), frames: 0 });
        self.extend_block(block)
    }

    fn continuation(&mut self, head: &FrameHeader, payload: &[u8]) -> Received {
        if self.block.as_ref().is_none_or(|block| block.headers.stream != head.stream) {
            return Err(H2Error::PROTOCOL);
        }
        self.extend_block(payload)?;
        if !head.has(flag::END_HEADERS) {
            return Ok(None);
        }
        match self.block.take() {
            Some(block) => self.field_block(block.headers, &block.bytes),
            None => Ok(None),
        }
    }

    /// Appends to the incomplete field block. Blocks above the limits of heads are kept up to a bound, so that the client can be
    /// told that its request is too large.
    fn extend_block(&mut self, bytes: &[u8]) -> Received {
        let most = 2 * self.limits.bytes + frame::MAX_FRAME_SIZE;
        if let Some(block) = &mut self.block {
            block.frames += 1;
            block.bytes.extend_from_slice(bytes);
            if block.bytes.len() > most || block.frames > EXTRA_CONTINUATIONS + most / frame::MAX_FRAME_SIZE {
                return Err(H2Error::Connection(Reason::ENHANCE_YOUR_CALM));
            }
        }
        Ok(None)
    }

    /// A field block is complete.
    fn field_block(&mut self, headers: HeadersFrame, block: &[u8]) -> Received {
        let key = self.streams.find(headers.stream);
        match key {
            _ if headers.is_new && !self.is_ignored(headers.stream) => self.request(headers, block),
            Some(key) => self.trailers(key, headers, block),
            None if headers.is_new
                || self.streams.was_reset(headers.stream)
                || self.is_ignored(headers.stream) =>
            {
                self.floods.for_closed_stream();
                // Decoded all the same: it may change the dynamic table.
                let read = self.decoder.decode(block, |_, _| ());
                read.map(|()| None).map_err(|_| H2Error::Connection(Reason::COMPRESSION_ERROR))
            }
            None => Err(H2Error::Connection(Reason::STREAM_CLOSED)),
        }
    }

    fn request(&mut self, headers: HeadersFrame, block: &[u8]) -> Received {
        let mut request = RequestBuilder::new(self.limits, block.len());
        if self.decoder.decode(block, |name, value| request.add(name, value)).is_err() {
            let is_bomb = request.size() > HPACK_BOMB;
            let reason = if is_bomb { Reason::ENHANCE_YOUR_CALM } else { Reason::COMPRESSION_ERROR };
            return Err(H2Error::Connection(reason));
        }
        if self.streams.open() >= STREAMS
            && let Some(key) = self.streams.answered()
        {
            self.reset(key, Reason::NO_ERROR); // its response was sent, and the rest of its body is not wanted
        }
        if self.streams.open() >= STREAMS {
            self.streams.remember(headers.stream);
            return Err(H2Error::Stream(headers.stream, Reason::REFUSED_STREAM));
        }
        let (is_head, expects) = (request.is_head(), request.expects_continue());
        let head = request.finish();
        let length = head.as_ref().ok().and_then(|(_, length)| *length);
        let is_short = headers.ends && length.is_some_and(|length| length > 0);
        if headers.is_circular || is_short || matches!(head, Err(RequestError::Malformed)) {
            if !headers.ends {
                self.streams.remember(headers.stream);
            }
            return Err(H2Error::Stream(headers.stream, Reason::PROTOCOL_ERROR));
        }
        if matches!(head, Err(RequestError::TooLarge)) {
            self.floods.large_head();
        }
        let key = self.streams.insert(Stream {
            id: headers.stream,
            opened: self.floods.now(),
            send_window: self.initial_window,
            receive_window: STREAM_WINDOW,
            is_received: headers.ends,
            body_left: length,
            expects_continue: expects && !headers.ends,
            has_reader: !headers.ends && head.is_ok(),
            is_served: true,
            ..Stream::default()
        });
        Ok(Some(Event::Request { key, head, ended: headers.ends, is_head }))
    }

    fn trailers(&mut self, key: StreamKey, headers: HeadersFrame, block: &[u8]) -> Received {
        let mut trailers = TrailersBuilder::new(self.limits);
        let read = self.decoder.decode(block, |name, value| trailers.add(name, value));
        read.map_err(|_| H2Error::Connection(Reason::COMPRESSION_ERROR))?;
        let Some(stream) = self.streams.get(key) else { return Ok(None) };
        if stream.is_received {
            return Err(H2Error::Stream(headers.stream, Reason::STREAM_CLOSED));
        }
        let is_short = stream.body_left.is_some_and(|left| left > 0);
        let trailers = trailers.finish().filter(|_| headers.ends && !headers.is_circular && !is_short);
        let Some(trailers) = trailers else {
            return Err(H2Error::Stream(headers.stream, Reason::PROTOCOL_ERROR));
        };
        stream.is_received = true;
        stream.trailers = Some(trailers).filter(|trailers| stream.has_reader && !trailers.is_empty());
        if let Some(reader) = stream.reader.take() {
            reader.wake();
        }
        if stream.is_sent {
            self.remove(key);
        }
        Ok(None)
    }

    fn rst_stream(&mut self, head: &FrameHeader, payload: &[u8]) -> Received {
        if payload.len() != 4 {
            return Err(H2Error::SIZE);
        }
        if self.is_idle(head.stream) {
            return Err(H2Error::PROTOCOL);
        }
        tracing::debug!(stream = head.stream, reason = %Reason(number(payload)), "RST_STREAM received");
        let key = self.streams.find(head.stream);
        self.floods.reset(key.and_then(|key| self.streams.get(key)).map(|stream| stream.opened));
        let Some(key) = key else { return Ok(None) };
        self.remove(key);
        Ok(Some(Event::Reset(key.slot)))
    }

    fn settings(&mut self, head: &FrameHeader, payload: &[u8]) -> Received {
        if head.stream != 0 {
            return Err(H2Error::PROTOCOL);
        }
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() || (is_ack(head) && !payload.is_empty()) {
            return Err(H2Error::SIZE);
        }
        if is_ack(head) {
            self.floods.acknowledged();
            return Ok(None);
        }
        for [a, b, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*a, *b]) {
                setting::ENABLE_PUSH if value > 1 => return Err(H2Error::PROTOCOL),
                setting::INITIAL_WINDOW_SIZE => self.set_initial_window(i64::from(value))?,
                setting::MAX_FRAME_SIZE if !(1 << 14..1 << 24).contains(&value) => {
                    return Err(H2Error::PROTOCOL);
                }
                setting::HEADER_TABLE_SIZE => self.encoder.resize(value as usize),
                // MAX_FRAME_SIZE: larger frames are not used.
                _ => {}
            }
        }
        frame::settings_ack(&mut self.out);
        Ok(None)
    }

    /// Applies SETTINGS_INITIAL_WINDOW_SIZE to open streams too (RFC 9113 §6.9.2).
    fn set_initial_window(&mut self, window: i64) -> Result<(), H2Error> {
        if window > MAX_WINDOW {
            return Err(H2Error::Connection(Reason::FLOW_CONTROL_ERROR));
        }
        let more = window - self.initial_window;
        self.initial_window = window;
        for (_, stream) in self.streams.from(0) {
            stream.send_window += more;
            if stream.send_window > MAX_WINDOW {
                return Err(H2Error::Connection(Reason::FLOW_CONTROL_ERROR));
            }
        }
        Ok(())
    }

    fn ping(&mut self, head: &FrameHeader, payload: &[u8]) -> Received {
        if head.stream != 0 {
            return Err(H2Error::PROTOCOL);
        }
        let payload = <[u8; 8]>::try_from(payload).map_err(|_| H2Error::SIZE)?;
        match payload {
            _ if !is_ack(head) => frame::ping(&mut self.out, flag::ACK, payload),
            KEEPALIVE => self.is_alive = true,
            SHUTDOWN if self.shutdown == Shutdown::Announced => {
                self.shutdown = Shutdown::Last(self.last_stream);
                frame::goaway(&mut self.out, self.last_stream, Reason::NO_ERROR);
            }
            _ => {}
        }
        Ok(None)
    }

    fn goaway(&mut self, head: &FrameHeader, payload: &[u8]) -> Received {
        match payload.len() {
            _ if head.stream != 0 => Err(H2Error::PROTOCOL),
            0..8 => Err(H2Error::SIZE),
            _ => {
                tracing::debug!(reason = %Reason(number(&payload[4..])), "GOAWAY received");
                self.client_goes_away = true;
                Ok(None)
            }
        }
    }

    fn window_update(&mut self, head: &FrameHeader, payload: &[u8]) -> Received {
        if payload.len() != 4 {
            return Err(H2Error::SIZE);
        }
        let more = i64::from(number(payload) & MAX_STREAM_ID);
        if head.stream == 0 {
            self.send_window += more;
            return match more {
                0 => Err(H2Error::PROTOCOL),
                _ if self.send_window > MAX_WINDOW => Err(H2Error::Connection(Reason::FLOW_CONTROL_ERROR)),
                _ => Ok(None),
            };
        }
        if self.is_idle(head.stream) {
            return Err(H2Error::PROTOCOL);
        }
        let Some(stream) = self.streams.find(head.stream).and_then(|key| self.streams.get(key)) else {
            return Ok(None);
        };
        stream.send_window += more;
        match more {
            0 => Err(H2Error::Stream(head.stream, Reason::PROTOCOL_ERROR)),
            _ if stream.send_window > MAX_WINDOW => {
                Err(H2Error::Stream(head.stream, Reason::FLOW_CONTROL_ERROR))
            }
            _ => Ok(None),
        }
    }
}

/// Whether SETTINGS or PING has the ACK flag.
fn is_ack(head: &FrameHeader) -> bool {
    head.has(flag::ACK)
}

/// Priorities are checked and ignored (RFC 9113 §5.3.2).
fn priority(head: &FrameHeader, payload: &[u8]) -> Received {
    match payload.len() {
        _ if head.stream == 0 => Err(H2Error::PROTOCOL),
        PRIORITY if number(payload) & MAX_STREAM_ID == head.stream => Err(H2Error::PROTOCOL),
        PRIORITY => Ok(None),
        _ => Err(H2Error::SIZE),
    }
}
