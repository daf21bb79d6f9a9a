//! What is written for the client.

use http::{HeaderMap, StatusCode};

use super::super::frame::{self, HEAD, MOST, flag, kind};
use super::super::head::is_of_connection;
use super::super::hpack;
use super::super::streams::Key;
use super::Session;
use crate::fields::Fields;
use crate::trailers::may_come_behind;

/// The head of an answer.
pub(in super::super) struct Answer<'a> {
    pub(in super::super) status: StatusCode,
    pub(in super::super) headers: &'a Fields,
    /// The time of day, if the fields do not have it.
    pub(in super::super) date: [u8; 29],
    /// Nothing comes behind it.
    pub(in super::super) ends: bool,
}

impl Session {
    /// Writes the head of an answer. Whether there is somebody to have it.
    pub(in super::super) fn answer(&mut self, key: Key, answer: &Answer<'_>) -> bool {
        let Some(stream) = self.streams.get(key) else { return false };
        stream.answered = true;
        self.watch.sent_head();
        let at = self.begin_block(answer.headers.written());
        let Self { out, encoder, .. } = self;
        encoder.begin(out);
        hpack::status(out, answer.status);
        let mut dated = false;
        for (name, value) in answer.headers.iter() {
            match name {
                b"te" => continue, // only requests have it
                name if is_of_connection(name) => continue,
                b"date" => dated = true,
                _ => {}
            }
            encoder.field(out, name, value);
        }
        if !dated {
            encoder.field(out, b"date", &answer.date);
        }
        self.end_block(key, at, answer.ends);
        true
    }

    /// Writes an interim answer, if its client is still to have the answer and takes what it is sent.
    pub(in super::super) fn interim(&mut self, key: Key, status: StatusCode, headers: &Fields) {
        if self.is_full() || self.streams.get(key).is_none_or(|stream| stream.answered) {
            return;
        }
        let at = self.begin_block(headers.written());
        let Self { out, encoder, .. } = self;
        encoder.begin(out);
        hpack::status(out, status);
        for (name, value) in headers.iter() {
            if !is_of_connection(name) {
                encoder.field(out, name, value);
            }
        }
        self.end_block(key, at, false);
        self.call();
    }

    /// Writes what stands behind the body of an answer.
    pub(in super::super) fn trail(&mut self, key: Key, trailers: &HeaderMap) {
        if self.streams.get(key).is_none() {
            return;
        }
        let mut trailers = trailers.iter().filter(|(name, _)| may_come_behind(name)).peekable();
        if trailers.peek().is_none() {
            return self.send_data(key, &[], true);
        }
        self.watch.sent_trailers();
        let at = self.begin_block(0);
        let Self { out, encoder, .. } = self;
        encoder.begin(out);
        for (name, value) in trailers {
            encoder.field(out, name.as_ref(), value.as_bytes());
        }
        self.end_block(key, at, true);
    }

    /// Makes room for the head of a frame; where it is.
    fn begin_block(&mut self, length: usize) -> usize {
        let at = self.out.len();
        self.out.reserve(HEAD + length);
        self.out.extend_from_slice(&[0; HEAD]);
        at
    }

    fn end_block(&mut self, key: Key, at: usize, ends: bool) {
        let flags = if ends { flag::END_STREAM } else { 0 };
        frame::headers(&mut self.out, at, flags, key.id, MOST);
        if ends {
            self.end(key);
        }
    }

    /// The answer has ended.
    fn end(&mut self, key: Key) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.sent = true;
        self.waiting -= usize::from(std::mem::take(&mut stream.waits));
        if stream.received {
            self.remove(key);
        }
    }

    /// Whether a request that has no answer yet is to go on: while the client takes nothing no head is fetched for it, and
    /// the request is woken when there is room.
    pub(in super::super) fn goes_on(&mut self, key: Key) -> bool {
        if !self.is_full() {
            return true;
        }
        let Some(stream) = self.streams.get(key) else { return true };
        self.waiting += usize::from(!std::mem::replace(&mut stream.waits, true));
        false
    }

    /// How much data there is room for in one frame; if there is none, the answer is woken when there is some. `None` if
    /// nobody is there to have it.
    pub(in super::super) fn room(&mut self, key: Key) -> Option<usize> {
        let room = self.room_now(key)?;
        if room == 0 {
            let stream = self.streams.get(key)?;
            self.waiting += usize::from(!std::mem::replace(&mut stream.waits, true));
        }
        Some(room)
    }

    /// The same, of an answer that does not wait for it.
    pub(in super::super) fn room_now(&mut self, key: Key) -> Option<usize> {
        let window = self.streams.get(key)?.window.min(self.window);
        Some(if self.is_full() { 0 } else { usize::try_from(window).unwrap_or(0).min(MOST) })
    }

    /// Has an answer that has more to send wait for its turn, if others wait for theirs. Whether it does.
    pub(in super::super) fn yields(&mut self, key: Key) -> bool {
        if self.waiting == 0 {
            return false;
        }
        if let Some(stream) = self.streams.get(key) {
            self.waiting += usize::from(!std::mem::replace(&mut stream.waits, true));
        }
        true
    }

    /// Writes data that there is room for.
    pub(in super::super) fn send_data(&mut self, key: Key, data: &[u8], ends: bool) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.window -= data.len() as i64;
        self.window -= data.len() as i64;
        let flags = if ends { flag::END_STREAM } else { 0 };
        self.out.reserve(HEAD + data.len());
        frame::head(&mut self.out, data.len(), kind::DATA, flags, key.id);
        self.out.extend_from_slice(data);
        self.watch.sent_data();
        if ends {
            self.end(key);
        }
    }
}
