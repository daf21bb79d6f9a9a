//! The streams of a connection that are open (RFC 9113 §5.1), each in a slot, and those that were reset a moment ago.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::BytesMut;
use http::HeaderMap;

/// Streams that were reset last, of which the client may not know yet: more than it may have open.
const REMEMBERED: usize = 256;

/// Which stream: a slot is used by one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) slot: usize,
    pub(super) id: u32,
}

/// A stream that is open, or half closed.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// When it was opened: milliseconds.
    pub(super) opened: u64,
    /// What may be sent on it; less than nothing if the client took window back.
    pub(super) window: i64,
    /// Its answer has begun.
    pub(super) answered: bool,
    /// Its answer has ended.
    pub(super) sent: bool,
    /// Its answer waits for room.
    pub(super) waits: bool,
    /// What the client may still send on it.
    pub(super) room: usize,
    /// What was read and is not given back to the client yet.
    pub(super) used: usize,
    /// What is still to come of the request's body, if its head says so.
    pub(super) left: Option<u64>,
    /// What came of it and was not read.
    pub(super) data: BytesMut,
    pub(super) trailers: Option<HeaderMap>,
    /// The request has ended.
    pub(super) received: bool,
    /// Who reads the body.
    pub(super) reader: Option<Waker>,
    /// The client waits for leave to send the body.
    pub(super) expects: bool,
    /// Whether the body is somebody's.
    pub(super) has_reader: bool,
    /// Whether the request is served.
    pub(super) is_served: bool,
}

/// The streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: Vec<Stream>,
    /// The same order: zero is nobody's.
    ids: Vec<u32>,
    open: usize,
    reset: VecDeque<u32>,
}

impl Streams {
    /// How many are open.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Opens one more.
    pub(super) fn insert(&mut self, stream: Stream) -> Key {
        let id = stream.id;
        self.open += 1;
        match self.ids.iter().position(|id| *id == 0) {
            Some(slot) => {
                self.ids[slot] = id;
                self.slots[slot] = stream;
                Key { slot, id }
            }
            None => {
                self.ids.push(id);
                self.slots.push(stream);
                Key { slot: self.ids.len() - 1, id }
            }
        }
    }

    /// Where a stream is, if it is open.
    pub(super) fn find(&self, id: u32) -> Option<Key> {
        self.ids.iter().position(|known| *known == id).filter(|_| id != 0).map(|slot| Key { slot, id })
    }

    /// A stream, if it is open.
    pub(super) fn get(&mut self, key: Key) -> Option<&mut Stream> {
        self.slots.get_mut(key.slot).filter(|stream| stream.id == key.id)
    }

    /// All that are open, from the slot `from` on, and then those before it.
    pub(super) fn from(&mut self, from: usize) -> impl Iterator<Item = (usize, &mut Stream)> {
        let from = from.min(self.slots.len());
        let (before, behind) = self.slots.split_at_mut(from);
        let behind = behind.iter_mut().enumerate().map(move |(at, stream)| (from + at, stream));
        behind.chain(before.iter_mut().enumerate()).filter(|(_, stream)| stream.id != 0)
    }

    /// One whose answer has ended, while its request has not.
    pub(super) fn answered(&self) -> Option<Key> {
        let slot = self.slots.iter().position(|stream| stream.id != 0 && stream.sent && !stream.is_served)?;
        Some(Key { slot, id: self.ids[slot] })
    }

    /// A stream is closed.
    pub(super) fn remove(&mut self, key: Key) -> Option<Stream> {
        let stream = std::mem::take(self.get(key)?);
        self.ids[key.slot] = 0;
        self.open -= 1;
        Some(stream)
    }

    /// Remembers that a stream was reset while its client may still have sent on it.
    pub(super) fn remember(&mut self, id: u32) {
        if self.reset.len() == REMEMBERED {
            self.reset.pop_front();
        }
        self.reset.push_back(id);
    }

    /// Whether that was so a moment ago.
    pub(super) fn was_reset(&self, id: u32) -> bool {
        self.reset.contains(&id)
    }

    /// Gives back the memory of streams that there were, if there is none.
    pub(super) fn shrink(&mut self) {
        if self.open == 0 && self.ids.len() > 1 {
            self.ids = Vec::new();
            self.slots = Vec::new();
        }
    }
}
