//! What is counted of the messages to a collector.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_base::named_enum::named_enum;

named_enum! {
    /// What a collector is told.
    Signal {
        /// Spans.
        Traces = "traces",
        /// Metrics.
        Metrics = "metrics",
    }
}

/// Messages to a collector.
#[derive(Debug, Default)]
pub struct OtlpMetrics {
    /// By signal: those that were taken, and those that were given up.
    messages: [[AtomicU64; 2]; Signal::ALL.len()],
    dropped: AtomicU64,
}

/// Whether a message was taken.
pub(super) const OUTCOMES: [&str; 2] = ["sent", "failed"];

impl OtlpMetrics {
    /// Counts a message that was taken, or given up.
    pub fn exported(&self, signal: Signal, taken: bool) {
        self.messages[signal as usize][usize::from(!taken)].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts spans that did not arrive.
    pub fn dropped(&self, spans: u64) {
        self.dropped.fetch_add(spans, Ordering::Relaxed);
    }

    /// The messages by signal and outcome.
    pub fn messages(&self) -> Vec<(Vec<String>, u64)> {
        let mut rows = Vec::new();
        for signal in Signal::ALL {
            for (at, outcome) in OUTCOMES.iter().enumerate() {
                let count = self.messages[*signal as usize][at].load(Ordering::Relaxed);
                rows.push((vec![signal.name().to_owned(), (*outcome).to_owned()], count));
            }
        }
        rows
    }

    /// The spans that did not arrive.
    pub fn spans_dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
