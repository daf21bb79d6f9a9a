//! What can go wrong with a queue in Redis.

use sluicegate_redis_link::CallError;

/// Why nothing was read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedisQueueError {
    /// Redis cannot be reached, or the connection was lost. If something was to be written it may be there after all: repeat
    /// the call.
    #[error("Redis does not hold the queue at the moment: {0}")]
    Away(String),
    /// Redis has refused the call.
    #[error("Redis refuses the queue: {0}")]
    Refused(String),
    /// It was written, but not as safely as the server is set up for: it may be lost.
    #[error("the queue is not safe: {0}")]
    Unconfirmed(String),
    /// An answer of another form than that of this release.
    #[error("the queue in Redis is of another release, or somebody has changed it: {0}")]
    Content(&'static str),
}

impl From<CallError> for RedisQueueError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Unsent(why) | CallError::Unanswered(why) => Self::Away(why),
            CallError::Refused(why) => Self::Refused(why),
        }
    }
}
