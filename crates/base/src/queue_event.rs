//! What happens to the requests of a queue: one closed set of names, which the metrics use.

use crate::named_enum::named_enum;

named_enum! {
    /// An event in the life of a queued request.
    QueueEvent {
        /// The request was accepted.
        Accepted = "accepted",
        /// The request was refused because the queue is full.
        Full = "full",
        /// The queue could not be read or written.
        Error = "error",
        /// An attempt failed, and another one follows.
        Retried = "retried",
        /// The upstream answered the request.
        Delivered = "delivered",
        /// The request was given up: it is a dead letter.
        Failed = "failed",
        /// Its time was over before it could be delivered.
        Expired = "expired",
        /// Its owner or an operator cancelled it.
        Cancelled = "cancelled",
    }
}
