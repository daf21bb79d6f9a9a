//! What is written.

use sluicegate_queue::{Accepted, Bounds, End, Id, Message, Refused, State, Taken};

/// One change of the file.
#[derive(Debug)]
pub(crate) enum Change {
    Accept(Box<Message>, Bounds),
    Take { limit: String, now: u64, most: usize },
    End { id: Id, attempt: u32, end: End, times: Times },
    Cancel { id: Id, owner: [u8; 32], times: Times },
    Expire { times: Times, most: usize },
    Retry { which: Which, now: u64, expires: u64 },
    Drop(Which),
    Recover,
}

/// What a change is answered.
#[derive(Debug)]
pub(crate) enum Answer {
    Accepted(Result<Accepted, Refused>),
    Taken(Vec<Taken>),
    /// Whether the attempt was still in progress.
    Ended(bool),
    Cancelled(Cancelled),
    /// How many messages were changed.
    Count(u64),
}

/// When a message ends, and when it is removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) now: u64,
    pub(crate) forget: u64,
}

/// Dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// One.
    One(Id),
    /// All of a queue.
    All(String),
}

/// What became of a wish to cancel a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It is cancelled.
    Done,
    /// There is none of this name and owner.
    NotFound,
    /// It has begun or has ended.
    TooLate(State),
}
