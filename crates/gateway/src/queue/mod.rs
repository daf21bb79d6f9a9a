//! The queues of limits: requests that are answered 202 and delivered later.
//!
//! - [`Queues`]: those of a configuration, with their files; a queue is kept from one configuration to the next
//! - [`Queue`]: the queue of one limit
//! - [`StoredRequest`], [`StoredAnswer`]: what is stored of a request and of its answer
//!
//! How requests get into a queue and out of it is in [`crate::request`] and [`crate::delivery`].

mod counts;
mod error;
mod open;
mod remote;
mod seal;
mod state;
mod storage;
mod stored;

use sluicegate_limiter::Time;

pub use self::counts::Counts;
pub use self::error::QueueError;
pub use self::open::{Queue, Queues};
pub use self::remote::durability;
pub use self::seal::Seal;
pub use self::state::{QueueState, Serving, Standing};
pub use self::stored::{Sealed, StoredAnswer, StoredRequest, StoredTls, Unreadable};
pub(crate) use self::stored::{characters, of_characters};
pub use sluicegate_queue::{
    Accepted, Bounds, Claimed, Claims, End, Entry, Id, Idempotency, Message, Order, Refused, State,
};
pub use sluicegate_queue::{Cancelled, DeadLetters};
pub use sluicegate_queue::{Figures, MAX_DEAD_LETTERS, MAX_OF_KEY, Next, Retries};
pub use sluicegate_queue_redis::{Durability, LEASE};

/// A time in milliseconds since 1970, as queues have it.
pub fn millis(time: Time) -> u64 {
    time.as_nanos() / 1_000_000
}

/// A time of a queue.
pub fn time(millis: u64) -> Time {
    Time::from_nanos(millis.saturating_mul(1_000_000))
}
