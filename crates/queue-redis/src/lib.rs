//! Requests that are delivered later, in Redis: several gateways share a queue. What is done with a queue is what
//! `sluicegate_queue_sqlite` does with one in a file; each operation is one script, at one moment.
//!
//! A claim holds for some seconds and has to be [renewed](RedisQueue::renew). If its gateway is gone, another one claims the message again; a gateway
//! that cannot renew a claim must end its attempt before the claim does.
//!
//! The keys, all with one hash tag. Times are milliseconds since 1970 on the clock of the server.
//!
//! | key | type | |
//! | --- | --- | --- |
//! | `PREFIX:{queue:NAME}:figures` | hash | `length`, `bytes`, `failed`, `accepted`, `ended`, `turn`, that of the flow that was served last, and `clock`, the time of the latest call of a gateway |
//! | `…:m:ID` | hash | a message; its values are short, so that Redis keeps it in one piece |
//! | `…:request:ID`, `…:answer:ID` | string | its request until it has ended, and the answer to it |
//! | `…:open`, `…:failed` | sorted set | the messages that have not ended, and the dead letters, by number |
//! | `…:key:KEY` | sorted set | the messages of a key that have not ended, by number |
//! | `…:ordered:KEY` | sorted set | those of them that were queued with `order: key`: all but the first are blocked |
//! | `…:waiting:CONSUMER` | sorted set | those of a consumer that wait for their turn, by the time when they are due |
//! | `…:turns` | hash | the turn of each consumer who has messages waiting |
//! | `…:ready`, `…:asleep` | sorted set | consumers that have a message due, by turn; the others, by the time when the next one is due |
//! | `…:paused` | set | those of the latter that get no turn before that time even if a new message comes |
//! | `…:claimed`, `…:expiry`, `…:ended` | sorted set | messages by the end of their claim, of their time, and of their visibility |
//! | `…:idempotency` | hash | digest of an `Idempotency-Key` → message |

mod durability;
mod error;
mod redis_queue;
mod reply;
mod scripts;
#[cfg(test)]
mod tests;
#[cfg(test)]
use tests::common;

pub use self::durability::Durability;
pub use self::error::RedisQueueError;
pub use self::redis_queue::{LEASE, RedisQueue};
