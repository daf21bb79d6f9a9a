//! A request that is stored, and the attempts to deliver it.

use crate::entry::State;
use crate::id::Id;

/// A request as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its name.
    pub id: Id,
    /// The limit at whose rate it is delivered. Each limit has its own queue.
    pub limit: String,
    /// The key that it has under that limit.
    pub key: Vec<u8>,
    /// The consumer of the fair queue: the messages of all consumers are delivered in turns.
    pub consumer: String,
    /// A digest of the credential and the key that it was accepted with: who may see and cancel it.
    pub owner: [u8; 32],
    /// What its client has sent as `Idempotency-Key`.
    pub idempotency: Option<Idempotency>,
    /// Whether messages of its key are delivered in the order in which they were accepted.
    pub order: Order,
    /// When it was accepted.
    pub accepted: u64,
    /// When it is not delivered any more.
    pub expires: u64,
    /// The request: method, target, headers, body and identity, in a form of the caller's.
    pub request: Vec<u8>,
}

/// The `Idempotency-Key` of a client: two requests with the same one are one message, unless the first was cancelled or has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// A digest of the key and of its owner.
    pub key: [u8; 32],
    /// A digest of the request: one with the same key and other content is a mistake of the client.
    pub content: [u8; 32],
}

/// The order of messages of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any.
    None,
    /// The order in which they were accepted: one is tried only when those before it have ended.
    Key,
}

/// How much a queue may hold, dead letters included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Messages.
    pub max_length: u64,
    /// Bytes of their requests.
    pub max_bytes: u64,
}

/// The most dead letters that one call queues again or removes, so that other calls do not wait for long.
pub const MAX_DEAD_LETTERS: u64 = 1_000;

/// The largest count of messages of a key that are ahead of a new one.
pub const MAX_OF_KEY: u64 = 100;

/// A message is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its name: that of the earlier message if it is a duplicate.
    pub id: Id,
    /// Its state, which is that of the earlier message if it is a duplicate.
    pub state: State,
    /// About how many are delivered before it; 0 if it has ended. The order is that of fair turns, so that this is an estimate.
    pub ahead: u64,
    /// How many of them have the same key; the count ends at [`MAX_OF_KEY`].
    pub of_key: u64,
    /// Whether an earlier request has stored it.
    pub is_duplicate: bool,
}

/// Why a message is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The queue has as many messages or bytes as it may.
    Full {
        /// The messages in it that have not ended.
        length: u64,
    },
    /// Another request has the same `Idempotency-Key`.
    Conflict,
}

/// A message that is to be sent now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Its name.
    pub id: Id,
    /// The key that it has under the limit.
    pub key: Vec<u8>,
    /// Who it belongs to.
    pub consumer: String,
    /// The number of this claim: no other claim of the message has or had the same.
    pub claim: u64,
    /// The number of this attempt, from 1. Claims that were released are not counted.
    pub attempt: u32,
    /// When it was accepted.
    pub accepted: u64,
    /// The request.
    pub request: Vec<u8>,
}

/// What became of a call that claims messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The messages that were claimed.
    pub claimed: Vec<Claimed>,
    /// How many ended instead because their time was over.
    pub expired: u64,
    /// If none was claimed: when one may be due, 0 if one may be now; `None` if none waits.
    pub next_due: Option<u64>,
}

/// What one call has done to messages whose time was over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overdue {
    /// How many ended because of that.
    pub expired: u64,
    /// How many had ended long ago, and were removed.
    pub removed: u64,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The upstream took it. Its answer, in a form of the caller's.
    Delivered {
        /// The answer.
        answer: Vec<u8>,
    },
    /// It is tried again.
    Again {
        /// Not before this.
        due: u64,
        /// What went wrong.
        reason: String,
    },
    /// It is not tried again: it is a dead letter.
    Failed {
        /// What went wrong.
        reason: String,
    },
    /// It was not sent: this attempt does not count. Its consumer has no turn before this time, if there is one.
    Released {
        /// In milliseconds since 1970.
        until: Option<u64>,
    },
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
