//! Counters that one worker alone writes: no lock, no shared cache line. A scrape adds the workers up.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_counters_redis::{CallMetrics, Operation};
use sluicegate_limiter::Span;

use crate::refusal_reason::RefusalReason;
use sluicegate_config::OnStoreFailure;

/// Upper bounds of the buckets of every histogram, in nanoseconds.
pub(super) const BOUNDS: [u64; 17] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
];

/// A counter with one writer.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

/// A histogram of times with one writer.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    pub(super) buckets: [Counter; BOUNDS.len() + 1],
    pub(super) nanos: Counter,
}

/// What one worker counts of one route.
#[derive(Debug)]
pub struct RouteMetrics {
    /// One for each code that is told apart, and one for all others.
    pub(super) codes: [Counter; CODES.len() + 1],
    /// One for each reason.
    pub(super) refusals: [Counter; RefusalReason::ALL.len()],
    pub(super) duration: Histogram,
}

/// What one worker counts of one limit.
#[derive(Debug, Default)]
pub struct LimitMetrics {
    pub(super) outcomes: [Counter; OUTCOMES.len()],
    pub(super) delay: Histogram,
    /// Decided without the store, by the policy for that.
    pub(super) fallback: [Counter; POLICIES.len()],
}

/// What one worker counts of the shared store.
#[derive(Debug, Default)]
pub struct StoreMetrics {
    pub(super) operations: [Counter; OPERATIONS.len()],
    pub(super) duration: Histogram,
    /// Refusals that needed no call: the store had said until when.
    pub(super) remembered: Counter,
    /// Answers of the store that admit more or fewer requests than the state beside them.
    pub(super) disagreements: Counter,
}

/// What one worker counts of one upstream.
#[derive(Debug, Default)]
pub struct UpstreamMetrics {
    pub(super) outcomes: [Counter; UPSTREAM_OUTCOMES.len()],
    pub(super) duration: Histogram,
    /// Requests that were tried on another server.
    pub(super) retries: Counter,
    /// Requests for which no server was well.
    pub(super) panics: Counter,
}

/// What a limit said of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was admitted and charged.
    Admitted,
    /// It was refused.
    Refused,
    /// It would have been refused.
    ShadowRefused,
    /// The client or key is exempt.
    Exempt,
    /// It lacked the key and was not counted.
    Skipped,
    /// The quota that is tried would have refused it.
    CandidateRefused,
}

/// What became of a request to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamOutcome {
    /// It was answered.
    Answered,
    /// No connection could be made.
    ConnectFailed,
    /// No connection was made in time.
    ConnectTimeout,
    /// The connection broke.
    Broken,
    /// There was no answer in time.
    ResponseTimeout,
    /// The client's body was at fault.
    ClientFailed,
    /// All servers had as many requests as they may.
    Busy,
    /// The client left before there was an answer.
    ClientLeft,
}

pub(super) const OUTCOMES: [&str; 6] =
    ["admitted", "refused", "shadow_refused", "exempt", "skipped", "candidate_refused"];
/// As [`sluicegate_config::OnStoreFailure`] counts them.
pub(super) const POLICIES: [&str; 3] = ["local", "open", "closed"];
pub(super) const OPERATIONS: [&str; 4] = ["ok", "timeout", "error", "expired"];
pub(super) const UPSTREAM_OUTCOMES: [&str; 8] = [
    "answered",
    "connect_failed",
    "connect_timeout",
    "broken",
    "response_timeout",
    "client_failed",
    "busy",
    "client_left",
];

/// The codes that are told apart; what an upstream answers beyond them is `other`.
pub(super) const CODES: [u16; 46] = [
    101, 200, 201, 202, 203, 204, 205, 206, 207, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404,
    405, 406, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 421, 422, 423, 428, 429, 431, 451, 499, 500,
    501, 502, 503, 504,
];

impl Counter {
    pub(super) fn add(&self, n: u64) {
        // One writer: reading and writing apart loses nothing, and costs no locked instruction.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Histogram {
    pub(super) fn observe(&self, span: Span) {
        let bucket = BOUNDS.partition_point(|bound| *bound < span.as_nanos());
        self.buckets[bucket].add(1);
        self.nanos.add(span.as_nanos());
    }
}

impl Default for RouteMetrics {
    fn default() -> Self {
        Self {
            codes: std::array::from_fn(|_| Counter::default()),
            refusals: Default::default(),
            duration: Histogram::default(),
        }
    }
}

impl RouteMetrics {
    /// Counts an answer and the time it took.
    pub fn finish(&self, code: u16, took: Span) {
        self.codes[CODES.binary_search(&code).unwrap_or(CODES.len())].add(1);
        self.duration.observe(took);
    }

    /// Counts a request that the gateway refused.
    pub fn refused(&self, reason: RefusalReason) {
        self.refusals[reason as usize].add(1);
    }
}

impl LimitMetrics {
    /// Counts a verdict.
    pub fn count(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].add(1);
    }

    /// Counts a request that was decided without the store.
    pub fn fell_back(&self, policy: OnStoreFailure) {
        self.fallback[policy as usize].add(1);
    }

    /// Counts the time that a request is held.
    pub fn delay(&self, span: Span) {
        if !span.is_zero() {
            self.delay.observe(span);
        }
    }
}

impl CallMetrics for StoreMetrics {
    fn finish(&self, operation: Operation, took: Span) {
        self.operations[operation as usize].add(1);
        self.duration.observe(took);
    }

    fn remembered(&self) {
        self.remembered.add(1);
    }

    fn disagrees(&self) {
        self.disagreements.add(1);
    }
}

impl UpstreamMetrics {
    /// Counts a request that is tried on another server.
    pub fn retried(&self) {
        self.retries.add(1);
    }

    /// Counts a request for which no server was well, so that all were taken for it.
    pub fn all_were_ill(&self) {
        self.panics.add(1);
    }

    /// Counts an outcome and the time until it.
    pub fn finish(&self, outcome: UpstreamOutcome, took: Span) {
        self.outcomes[outcome as usize].add(1);
        self.duration.observe(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_for_the_search() {
        assert!(CODES.is_sorted());
        assert_eq!(OUTCOMES[Outcome::CandidateRefused as usize], "candidate_refused");
        assert_eq!(OPERATIONS[Operation::Expired as usize], "expired");
        assert_eq!(POLICIES[OnStoreFailure::Closed as usize], "closed");
        assert_eq!(UPSTREAM_OUTCOMES[UpstreamOutcome::ClientLeft as usize], "client_left");
    }
}
