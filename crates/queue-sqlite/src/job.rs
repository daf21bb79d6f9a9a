//! What is written.

use sluicegate_queue::{Accepted, Bounds, Claimed, End, Id, Message, Refused, State};

/// One change of the file.
#[derive(Debug)]
pub(crate) enum Change {
    Accept(Box<Message>, Bounds),
    Claim { limit: String, times: Times, max: usize },
    End { id: Id, attempt: u32, end: End, times: Times },
    Cancel { id: Id, owner: [u8; 32], times: Times },
    Expire { times: Times, max: usize },
    Retry { which: DeadLetters, now: u64, expires: u64 },
    Drop(DeadLetters),
    Recover,
}

/// What a change is answered.
#[derive(Debug)]
pub(crate) enum Answer {
    Accepted(Result<Accepted, Refused>),
    Claimed(Vec<Claimed>),
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
    pub(crate) keep_until: u64,
}

/// Which dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadLetters {
    /// One.
    One(Id),
    /// All of a queue.
    AllOf(String),
}

/// Whether a message could be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It is cancelled.
    Done,
    /// There is none of this name and owner.
    NotFound,
    /// It has begun or has ended.
    TooLate(State),
}
