//! Why a queue cannot be read or written.

use sluicegate_queue_redis::RedisQueueError;

/// Why a queue cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The one in a file.
    #[error(transparent)]
    File(#[from] sluicegate_queue_sqlite::QueueError),
    /// The one in Redis.
    #[error(transparent)]
    Redis(#[from] RedisQueueError),
    /// The system or this program.
    #[error("{0}")]
    Internal(String),
}

impl QueueError {
    /// Whether another process has the queue now.
    pub fn is_handed_over(&self) -> bool {
        matches!(self, Self::File(sluicegate_queue_sqlite::QueueError::Released))
    }

    /// Whether it is only that too much is written at the moment.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::File(sluicegate_queue_sqlite::QueueError::Busy))
    }
}
