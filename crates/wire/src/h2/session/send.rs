//! Frames for the client.

use http::{HeaderMap, StatusCode};

use super::super::frame::{self, FRAME_HEADER, MAX_FRAME_SIZE, flag, kind};
use super::super::hpack;
use super::super::request_head::is_connection_specific;
use super::super::stream_table::StreamKey;
use super::Session;
use crate::Headers;
use crate::trailers::is_allowed_in_trailers;

/// The head of a response.
pub struct ResponseHead<'a> {
    /// The status.
    pub status: StatusCode,
    /// The header fields. Those that are specific to HTTP/1.1 connections are dropped.
    pub headers: &'a Headers,
    /// The Date to send if the fields have none.
    pub date: [u8; 29],
    /// The response has no body.
    pub ends: bool,
}

impl Session {
    /// Writes the head of a response. Returns false if the stream is closed.
    pub fn send_head(&mut self, key: StreamKey, response: &ResponseHead<'_>) -> bool {
        let Some(stream) = self.streams.get(key) else { return false };
        stream.has_response = true;
        self.floods.sent_head();
        let at = self.begin_block(response.headers.written_len());
        let Self { out, encoder, .. } = self;
        encoder.begin(out);
        hpack::status(out, response.status);
        let mut dated = false;
        for (name, value) in response.headers.iter() {
            match name {
                b"te" => continue, // a field of requests
                name if is_connection_specific(name) => continue,
                b"date" => dated = true,
                _ => {}
            }
            encoder.field(out, name, value);
        }
        if !dated {
            encoder.field(out, b"date", &response.date);
        }
        self.end_block(key, at, response.ends);
        true
    }

    /// Writes an interim response, unless the response has begun or the send buffer is full.
    pub fn send_interim(&mut self, key: StreamKey, status: StatusCode, headers: &Headers) {
        if self.is_full() || self.streams.get(key).is_none_or(|stream| stream.has_response) {
            return;
        }
        let at = self.begin_block(headers.written_len());
        let Self { out, encoder, .. } = self;
        encoder.begin(out);
        hpack::status(out, status);
        for (name, value) in headers.iter() {
            if !is_connection_specific(name) {
                encoder.field(out, name, value);
            }
        }
        self.end_block(key, at, false);
        self.wake_task();
    }

    /// Writes trailers and ends the stream. Fields that are not allowed in trailers are dropped.
    pub fn send_trailers(&mut self, key: StreamKey, trailers: &HeaderMap) {
        if self.streams.get(key).is_none() {
            return;
        }
        let mut trailers = trailers.iter().filter(|(name, _)| is_allowed_in_trailers(name)).peekable();
        if trailers.peek().is_none() {
            return self.send_data(key, &[], true);
        }
        self.floods.sent_trailers();
        let at = self.begin_block(0);
        let Self { out, encoder, .. } = self;
        encoder.begin(out);
        for (name, value) in trailers {
            encoder.field(out, name.as_ref(), value.as_bytes());
        }
        self.end_block(key, at, true);
    }

    /// Begins a field block: reserves room for a frame header and returns its position.
    fn begin_block(&mut self, length: usize) -> usize {
        let at = self.out.len();
        self.out.reserve(FRAME_HEADER + length);
        self.out.extend_from_slice(&[0; FRAME_HEADER]);
        at
    }

    fn end_block(&mut self, key: StreamKey, at: usize, ends: bool) {
        let flags = if ends { flag::END_STREAM } else { 0 };
        frame::headers(&mut self.out, at, flags, key.id, MAX_FRAME_SIZE);
        if ends {
            self.end_stream(key);
        }
    }

    /// The response was written to its end.
    fn end_stream(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.is_sent = true;
        self.blocked -= usize::from(std::mem::take(&mut stream.is_blocked));
        if stream.is_received {
            self.remove(key);
        }
    }

    /// Whether a request without a response may proceed. While the send buffer is full it may not, and its stream is unblocked by
    /// [`wake_blocked`](Self::wake_blocked) later.
    pub fn can_proceed(&mut self, key: StreamKey) -> bool {
        if !self.is_full() {
            return true;
        }
        let Some(stream) = self.streams.get(key) else { return true };
        self.blocked += usize::from(!std::mem::replace(&mut stream.is_blocked, true));
        false
    }

    /// How many bytes of DATA can be written in one frame. If it is zero, the stream is blocked until
    /// [`wake_blocked`](Self::wake_blocked). `None` if the stream is closed.
    pub fn capacity(&mut self, key: StreamKey) -> Option<usize> {
        let room = self.capacity_now(key)?;
        if room == 0 {
            let stream = self.streams.get(key)?;
            self.blocked += usize::from(!std::mem::replace(&mut stream.is_blocked, true));
        }
        Some(room)
    }

    /// Like [`capacity`](Self::capacity), but does not block the stream.
    pub fn capacity_now(&mut self, key: StreamKey) -> Option<usize> {
        let window = self.streams.get(key)?.send_window.min(self.send_window);
        Some(if self.is_full() { 0 } else { usize::try_from(window).unwrap_or(0).min(MAX_FRAME_SIZE) })
    }

    /// Blocks a stream that has more to send, if other streams are blocked. Returns whether it did.
    pub fn yield_turn(&mut self, key: StreamKey) -> bool {
        if self.blocked == 0 {
            return false;
        }
        if let Some(stream) = self.streams.get(key) {
            self.blocked += usize::from(!std::mem::replace(&mut stream.is_blocked, true));
        }
        true
    }

    /// Writes a DATA frame within [`capacity`](Self::capacity).
    pub fn send_data(&mut self, key: StreamKey, data: &[u8], ends: bool) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.send_window -= data.len() as i64;
        self.send_window -= data.len() as i64;
        let flags = if ends { flag::END_STREAM } else { 0 };
        self.out.reserve(FRAME_HEADER + data.len());
        frame::head(&mut self.out, data.len(), kind::DATA, flags, key.id);
        self.out.extend_from_slice(data);
        self.floods.sent_data();
        if ends {
            self.end_stream(key);
        }
    }
}
