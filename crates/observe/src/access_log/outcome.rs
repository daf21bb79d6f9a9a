//! The outcome of a request.

use sluicegate_base::named_enum::named_enum;

named_enum! {
    /// The outcome of a request in the access log and in replays.
    Outcome {
        /// Its limits admitted it, or no limit applies to it.
        Admitted = "admitted",
        /// Its limits, or the access rules of its route, refused it.
        Refused = "refused",
        /// It was put into the queue of a limit, and is delivered later.
        Queued = "queued",
        /// It matches no route, or is not a valid request.
        Unmatched = "unmatched",
    }
}
