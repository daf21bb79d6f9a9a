//! What can be seen of a message and of a queue.

use crate::id::Id;

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for its turn, or for the time of its next attempt.
    Waiting = 0,
    /// It waits until an earlier message of its key has ended.
    Blocked = 1,
    /// An attempt to deliver it is in progress.
    Claimed = 2,
    /// The upstream took it.
    Delivered = 3,
    /// It is a dead letter.
    Failed = 4,
    /// Its time was over before it could be delivered.
    Expired = 5,
    /// Its owner cancelled it.
    Cancelled = 6,
}

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Blocked,
        Self::Claimed,
        Self::Delivered,
        Self::Failed,
        Self::Expired,
        Self::Cancelled,
    ];

    /// The state of this number.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting | Self::Blocked => "queued",
            Self::Claimed => "delivering",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing more becomes of it.
    pub fn has_ended(self) -> bool {
        !matches!(self, Self::Waiting | Self::Blocked | Self::Claimed)
    }
}

/// A message as its owner and operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub id: Id,
    /// Its place in the order in which messages were accepted, to list those after it.
    pub number: u64,
    /// The limit whose queue it is in.
    pub limit: String,
    /// Who it belongs to.
    pub consumer: String,
    /// Who may see it.
    pub owner: [u8; 32],
    /// Its state.
    pub state: State,
    /// About how many are delivered before it; 0 if it has ended.
    pub ahead: u64,
    /// The attempts that were begun.
    pub attempts: u32,
    /// When it was accepted.
    pub accepted: u64,
    /// When it is not delivered any more.
    pub expires: u64,
    /// When it is tried next, if it waits.
    pub due: u64,
    /// When it ended.
    pub ended: Option<u64>,
    /// What went wrong last.
    pub reason: Option<String>,
    /// The answer of the upstream.
    pub answer: Option<Vec<u8>>,
    /// The bytes of its request.
    pub size: u64,
}

/// The figures of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Messages that have not ended.
    pub length: u64,
    /// The bytes of their requests, and of dead letters.
    pub bytes: u64,
    /// When the oldest of them was accepted.
    pub oldest: Option<u64>,
    /// Dead letters.
    pub failed: u64,
}
