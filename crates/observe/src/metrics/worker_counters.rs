//! Counters that one worker alone writes: no lock, no shared cache line. A scrape adds the workers up.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_counters_redis::{CallMetrics, Operation};
use sluicegate_limiter::Span;

use sluicegate_base::cut_reason::CutReason;
use sluicegate_base::limit_outcome::LimitOutcome;
use sluicegate_base::named_enum::named_enum;
use sluicegate_base::refusal_reason::RefusalReason;
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

/// A counter that one thread writes.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

/// A histogram of durations that one thread writes.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    pub(super) buckets: [Counter; BOUNDS.len() + 1],
    pub(super) nanos: Counter,
}

/// The counters that one worker has of one route.
#[derive(Debug)]
pub struct RouteMetrics {
    /// One for each code in [`CODES`], and one for all others.
    pub(super) codes: [Counter; CODES.len() + 1],
    /// One for each reason.
    pub(super) refusals: [Counter; RefusalReason::ALL.len()],
    /// Answers that ended before their end, by the reason.
    pub(super) cuts: [Counter; CutReason::ALL.len()],
    pub(super) duration: Histogram,
    /// Bytes of bodies.
    pub(super) received: Counter,
    pub(super) sent: Counter,
}

/// The counters that one worker has of one limit.
#[derive(Debug, Default)]
pub struct LimitMetrics {
    pub(super) outcomes: [Counter; LimitOutcome::ALL.len()],
    pub(super) delay: Histogram,
    /// Decisions without the store, by `on_store_failure`.
    pub(super) fallback: [Counter; OnStoreFailure::WORDS.len()],
    /// Keys that came to use the part of the limit from which on it warns.
    pub(super) warnings: Counter,
}

/// The counters that one worker has of the store.
#[derive(Debug, Default)]
pub struct StoreMetrics {
    pub(super) operations: [Counter; Operation::NAMES.len()],
    pub(super) duration: Histogram,
    /// Refusals without a call, from remembered refusals.
    pub(super) remembered: Counter,
    /// Answers of the store that contradict the state sent with them.
    pub(super) disagreements: Counter,
}

/// The counters that one worker has of one upstream.
#[derive(Debug, Default)]
pub struct UpstreamMetrics {
    pub(super) outcomes: [Counter; UpstreamOutcome::ALL.len()],
    pub(super) duration: Histogram,
    /// Requests that were sent again to another server.
    pub(super) retries: Counter,
    /// Requests that were sent in panic mode.
    pub(super) panics: Counter,
}

named_enum! {
    /// The result of a request to an upstream.
    UpstreamOutcome {
        /// It was answered.
        Answered = "answered",
        /// No connection could be established.
        ConnectFailed = "connect_failed",
        /// No connection was established in time.
        ConnectTimeout = "connect_timeout",
        /// The connection failed.
        Broken = "broken",
        /// There was no answer in time.
        ResponseTimeout = "response_timeout",
        /// The client's request body was invalid or incomplete.
        ClientFailed = "client_failed",
        /// All servers had their maximum number of requests.
        Busy = "busy",
        /// All servers were drained or in maintenance.
        Drained = "drained",
        /// The client left before there was an answer.
        ClientLeft = "client_left",
    }
}

/// The status codes that have a series of their own, sorted; all others are counted as `other`.
pub(super) const CODES: [u16; 46] = [
    101, 200, 201, 202, 203, 204, 205, 206, 207, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404,
    405, 406, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 421, 422, 423, 428, 429, 431, 451, 499, 500,
    501, 502, 503, 504,
];

impl Counter {
    pub(super) fn add(&self, n: u64) {
        // There is one writer, so a load and a store lose no increment, and need no locked instruction.
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
            cuts: Default::default(),
            duration: Histogram::default(),
            received: Counter::default(),
            sent: Counter::default(),
        }
    }
}

impl RouteMetrics {
    /// Counts an answer and the duration of its request.
    pub fn finish(&self, code: u16, took: Span) {
        self.codes[CODES.binary_search(&code).unwrap_or(CODES.len())].add(1);
        self.duration.observe(took);
    }

    /// Counts the bytes of the body of a request and of its answer.
    pub fn transferred(&self, received: u64, sent: u64) {
        self.received.add(received);
        self.sent.add(sent);
    }

    /// Counts an answer that ended before its end.
    pub fn cut(&self, reason: CutReason) {
        self.cuts[reason as usize].add(1);
    }

    /// Counts a request that the gateway refused.
    pub fn refused(&self, reason: RefusalReason) {
        self.refusals[reason as usize].add(1);
    }
}

impl LimitMetrics {
    /// Counts the result of the limit for one request.
    pub fn count(&self, outcome: LimitOutcome) {
        self.outcomes[outcome as usize].add(1);
    }

    /// Counts a request that was decided without the store, by this policy.
    pub fn fell_back(&self, policy: OnStoreFailure) {
        self.fallback[policy as usize].add(1);
    }

    /// Counts a key that now uses so much of the limit that it warns.
    pub fn warned(&self) {
        self.warnings.add(1);
    }

    /// Counts the time for which a request is delayed, unless it is zero.
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
    /// Counts a request that is sent again to another server.
    pub fn retried(&self) {
        self.retries.add(1);
    }

    /// Counts a request that is sent in panic mode.
    pub fn panicked(&self) {
        self.panics.add(1);
    }

    /// Counts an outcome and the time that it took.
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
    }
}
