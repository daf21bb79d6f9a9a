//! The open streams of a connection (RFC 9113 §5.1), each in a slot, and the identifiers of those that were reset last.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::BytesMut;
use http::HeaderMap;

/// How many reset streams are remembered, because frames for them may still arrive: more than may be open.
const REMEMBERED_RESETS: usize = 256;

/// Identifies a stream. A slot is reused by later streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamKey {
    /// The slot of the stream, below [`STREAMS`](super::STREAMS).
    pub slot: usize,
    /// The stream identifier.
    pub id: u32,
}

/// A stream that is open, or half closed.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// When it was opened, in milliseconds.
    pub(super) opened: u64,
    /// The send window in bytes; negative if the client reduced it by SETTINGS (RFC 9113 §6.9.2).
    pub(super) send_window: i64,
    /// The head of the response was sent.
    pub(super) has_response: bool,
    /// We have ended the stream.
    pub(super) is_sent: bool,
    /// The response waits for room in the send buffer or window.
    pub(super) is_blocked: bool,
    /// The receive window in bytes.
    pub(super) receive_window: usize,
    /// Bytes that were read and are not returned to the client by WINDOW_UPDATE yet.
    pub(super) unreturned: usize,
    /// Bytes of the request body that are still to come, if Content-Length was given.
    pub(super) body_left: Option<u64>,
    /// Data that was received and not read.
    pub(super) data: BytesMut,
    pub(super) trailers: Option<HeaderMap>,
    /// The client has ended the stream.
    pub(super) is_received: bool,
    /// The task that reads the body, while it waits.
    pub(super) reader: Option<Waker>,
    /// The client waits for `100 Continue`.
    pub(super) expects_continue: bool,
    /// The body is still wanted.
    pub(super) has_reader: bool,
    /// The request is being served.
    pub(super) is_served: bool,
}

/// The streams of a connection.
#[derive(Debug, Default)]
pub(super) struct StreamTable {
    slots: Vec<Stream>,
    /// The stream identifiers in the same order; zero if a slot is free.
    ids: Vec<u32>,
    open: usize,
    reset: VecDeque<u32>,
}

impl StreamTable {
    /// The number of open streams.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Adds a stream.
    pub(super) fn insert(&mut self, stream: Stream) -> StreamKey {
        let id = stream.id;
        self.open += 1;
        match self.ids.iter().position(|id| *id == 0) {
            Some(slot) => {
                self.ids[slot] = id;
                self.slots[slot] = stream;
                StreamKey { slot, id }
            }
            None => {
                self.ids.push(id);
                self.slots.push(stream);
                StreamKey { slot: self.ids.len() - 1, id }
            }
        }
    }

    /// The key of a stream, if it is open.
    pub(super) fn find(&self, id: u32) -> Option<StreamKey> {
        self.ids.iter().position(|known| *known == id).filter(|_| id != 0).map(|slot| StreamKey { slot, id })
    }

    /// A stream, if it is open.
    pub(super) fn get(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.slots.get_mut(key.slot).filter(|stream| stream.id == key.id)
    }

    /// All open streams, from the slot `from` on, then those before it.
    pub(super) fn from(&mut self, from: usize) -> impl Iterator<Item = (usize, &mut Stream)> {
        let from = from.min(self.slots.len());
        let (before, behind) = self.slots.split_at_mut(from);
        let behind = behind.iter_mut().enumerate().map(move |(at, stream)| (from + at, stream));
        behind.chain(before.iter_mut().enumerate()).filter(|(_, stream)| stream.id != 0)
    }

    /// A stream whose response has ended while its request has not.
    pub(super) fn answered(&self) -> Option<StreamKey> {
        let slot =
            self.slots.iter().position(|stream| stream.id != 0 && stream.is_sent && !stream.is_served)?;
        Some(StreamKey { slot, id: self.ids[slot] })
    }

    /// Removes a stream.
    pub(super) fn remove(&mut self, key: StreamKey) -> Option<Stream> {
        let stream = std::mem::take(self.get(key)?);
        self.ids[key.slot] = 0;
        self.open -= 1;
        Some(stream)
    }

    /// Remembers that a stream was reset while its client may still have sent on it.
    pub(super) fn remember(&mut self, id: u32) {
        if self.reset.len() == REMEMBERED_RESETS {
            self.reset.pop_front();
        }
        self.reset.push_back(id);
    }

    /// Whether a stream is remembered as reset.
    pub(super) fn was_reset(&self, id: u32) -> bool {
        self.reset.contains(&id)
    }

    /// Releases memory if no stream is open.
    pub(super) fn shrink(&mut self) {
        if self.open == 0 && self.ids.len() > 1 {
            self.ids = Vec::new();
            self.slots = Vec::new();
        }
    }
}
