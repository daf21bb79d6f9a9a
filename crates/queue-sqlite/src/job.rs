//! What is written.

use crate::error::QueueError;
use sluicegate_queue::{
    Accepted, Bounds, Cancelled, Claims, DeadLetters, End, Id, Message, Overdue, Refused,
};

/// One change of the file.
#[derive(Debug)]
pub(crate) enum Change {
    Accept(Box<Message>, Bounds),
    Claim { limit: String, times: Times, max: usize },
    End { id: Id, claim: u64, end: End, times: Times },
    Cancel { id: Id, owner: [u8; 32], times: Times },
    Expire { limit: String, times: Times, max: usize },
    Retry { which: DeadLetters, now: u64, expires: u64 },
    Drop(DeadLetters),
    Wake(String),
    Recover,
}

/// What a change is answered.
#[derive(Debug)]
pub(crate) enum Answer {
    Accepted(Result<Accepted, Refused>),
    Claimed(Claims),
    /// Whether the attempt was still in progress.
    Ended(bool),
    Cancelled(Cancelled),
    Overdue(Overdue),
    /// How many messages were changed.
    Count(u64),
}

impl Answer {
    pub(crate) fn accepted(self) -> Result<Result<Accepted, Refused>, QueueError> {
        if let Self::Accepted(accepted) = self { Ok(accepted) } else { Err(self.unexpected()) }
    }

    pub(crate) fn claimed(self) -> Result<Claims, QueueError> {
        if let Self::Claimed(claimed) = self { Ok(claimed) } else { Err(self.unexpected()) }
    }

    pub(crate) fn ended(self) -> Result<bool, QueueError> {
        if let Self::Ended(was_in_progress) = self { Ok(was_in_progress) } else { Err(self.unexpected()) }
    }

    pub(crate) fn cancelled(self) -> Result<Cancelled, QueueError> {
        if let Self::Cancelled(cancelled) = self { Ok(cancelled) } else { Err(self.unexpected()) }
    }

    pub(crate) fn overdue(self) -> Result<Overdue, QueueError> {
        if let Self::Overdue(overdue) = self { Ok(overdue) } else { Err(self.unexpected()) }
    }

    pub(crate) fn count(self) -> Result<u64, QueueError> {
        if let Self::Count(count) = self { Ok(count) } else { Err(self.unexpected()) }
    }

    #[cold]
    fn unexpected(&self) -> QueueError {
        QueueError::Storage(format!("the writer has answered another question: {self:?}"))
    }
}

/// When a message ends, and when it is removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) now: u64,
    pub(crate) keep_until: u64,
}
