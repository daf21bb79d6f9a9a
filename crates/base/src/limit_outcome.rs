//! What a limit did with a request: one closed set of names, which the metrics, `explain` and `replay` use.

use crate::named_enum::named_enum;

named_enum! {
    /// The result of a limit for one request.
    LimitOutcome {
        /// The request was admitted and charged.
        Admitted = "admitted",
        /// The request was refused.
        Refused = "refused",
        /// The request would have been refused if the limit were enforced.
        ShadowRefused = "shadow_refused",
        /// The client or key is exempt.
        Exempt = "exempt",
        /// The request did not have the key and was not counted.
        Skipped = "skipped",
        /// The request was put into the queue of the limit, and is delivered later.
        Queued = "queued",
        /// The candidate quota would have refused the request.
        CandidateRefused = "candidate_refused",
    }
}

impl LimitOutcome {
    /// What the verdict of a limit, or of its candidate, amounts to.
    #[inline]
    pub const fn of(admits: bool, is_enforced: bool, is_candidate: bool) -> Self {
        match (admits, is_candidate) {
            (true, _) => Self::Admitted,
            (false, true) => Self::CandidateRefused,
            (false, false) if is_enforced => Self::Refused,
            (false, false) => Self::ShadowRefused,
        }
    }
}
