//! HTTP/2 connections that were aborted, by reason.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_wire::h2::AbortReason;

/// How often connections were aborted, by reason. It happens rarely: workers share the counters.
#[derive(Debug, Default)]
pub struct AbortCounts([AtomicU64; AbortReason::NAMES.len()]);

impl AbortCounts {
    /// Counts an aborted connection.
    pub fn count(&self, reason: AbortReason) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        AbortReason::NAMES.iter().zip(&self.0).map(|(name, count)| (*name, count.load(Ordering::Relaxed)))
    }
}
