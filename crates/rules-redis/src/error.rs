//! What can go wrong, in words for operators.

use sluicegate_rules::Failure;

use sluicegate_redis_link::CallError;

/// The most changes of a batch.
pub const MAX_CHANGES: usize = 100_000;

/// Why nothing could be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// An entry is not a rule that this release can read: a newer release or something else wrote it.
    #[error(
        "the rule {id:?} in Redis cannot be read ({detail}); put it again with the admin API, or delete it there, or run the \
         release that wrote it"
    )]
    Content {
        /// The name of the rule.
        id: String,
        /// What is wrong with it.
        detail: String,
    },
    /// Redis does not answer, or not in time.
    #[error("the rules in Redis cannot be read: {0}")]
    Away(String),
    /// Redis refused: the user lacks a permission, or something else is kept under the name of a key.
    #[error("Redis refuses to read the rules: {0}")]
    Refused(String),
}

/// Why a batch was not written. Unless a variant says otherwise, nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Changes of the batch could not be made: the first 100 of them, in the order of the batch.
    #[error("changes that could not be made: {}; nothing of the batch was", .0.len())]
    Failed(Vec<Failure>),
    /// The batch has more than [`MAX_CHANGES`] changes.
    #[error("{0} changes are too many for one batch; at most {most} are allowed", most = MAX_CHANGES)]
    TooLarge(usize),
    /// A rule cannot be stored, whatever is stored already: its id is empty, or its id or limit contains the character 0.
    #[error("the rule {0:?} cannot be stored: its `id` is empty, or `id` or `limit` has a control character")]
    Unstorable(String),
    /// A rule whose precondition does not hold cannot be read.
    #[error(transparent)]
    Unreadable(ReadError),
    /// Redis does not answer; the batch was not sent.
    #[error("the rules in Redis cannot be written: {0}")]
    Away(String),
    /// The batch was sent, and there was no answer in time: it may be written, now or in a moment. Read before you write it
    /// again, or give it preconditions.
    #[error("Redis did not say whether the rules are written ({0}); read them before you write them again")]
    Unanswered(String),
    /// Redis refused: it has no memory left, the user lacks a permission, or something else is kept under the name of a key.
    /// If the user may write some of the keys only, a part of the batch may be there.
    #[error("Redis refuses to write the rules: {0}")]
    Refused(String),
}

impl From<CallError> for ReadError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Unsent(why) | CallError::Unanswered(why) => Self::Away(why),
            CallError::Refused(why) => Self::Refused(why),
        }
    }
}

impl From<CallError> for WriteError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Unsent(why) => Self::Away(why),
            CallError::Unanswered(why) => Self::Unanswered(why),
            CallError::Refused(why) => Self::Refused(why),
        }
    }
}
