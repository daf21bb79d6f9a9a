//! Errors of servers, and what they are told as.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// The error of a call or a connection attempt without an answer in time.
pub(super) const LATE: &str = "it does not answer in time";

/// Whether an error means that a slot has moved or is being moved, and nothing about the node.
pub(super) fn slot_moved(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved, TryAgain};
    [Moved, Ask, TryAgain].iter().any(|kind| error.kind() == ErrorKind::Server(*kind))
}

/// The text of an error in one line.
pub(super) fn one_line(error: &RedisError) -> String {
    error.to_string().replace('\n', " ")
}
