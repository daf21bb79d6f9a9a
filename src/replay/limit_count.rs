//! What a limit decided in a replay, counted.

/// The decisions of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitCount {
    /// Requests that it admitted.
    pub admitted: u64,
    /// Requests that it refused.
    pub refused: u64,
    /// Requests that were put into its queue.
    pub queued: u64,
    /// Requests that it would have refused.
    pub shadow_refused: u64,
    /// Requests that its candidate would have refused.
    pub candidate_refused: u64,
    /// Requests that have its key.
    pub asked: u64,
    /// Requests that lack it.
    pub without_key: u64,
    /// Requests that another limit could refuse, too.
    pub beside: u64,
}
