//! HTTP/2 connections that were cut off, by the reason.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why the connection of an HTTP/2 client was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortReason {
    /// It took back more requests than it let answer.
    Resets,
    /// It had too many of its streams refused or reset for its mistakes.
    Errors,
    /// It sent too many SETTINGS.
    Settings,
    /// It sent too many PINGs.
    Pings,
    /// It sent too many DATA frames with nothing in them.
    EmptyData,
    /// It sent too many heads that are too large.
    LargeHeads,
    /// It sent too many PRIORITY or PRIORITY_UPDATE frames.
    Priorities,
    /// It sent too many WINDOW_UPDATE frames for what it was sent.
    WindowUpdates,
    /// It sent too many frames of other kinds.
    Others,
    /// It did not finish a frame in time.
    Slow,
    /// Its frames were no HTTP/2, or a flood that shows in the bytes of a single head.
    Protocol,
}

/// The reasons in the order of [`AbortReason`], as the metrics call them.
pub(super) const CUTS: [&str; 11] = [
    "resets",
    "errors",
    "settings",
    "pings",
    "empty_data",
    "large_heads",
    "priorities",
    "window_updates",
    "others",
    "slow",
    "protocol",
];

/// How often connections were cut off, by the reason. It happens rarely: workers share the counters.
#[derive(Debug, Default)]
pub struct AbortCounts([AtomicU64; CUTS.len()]);

impl AbortCounts {
    /// Counts one.
    pub fn count(&self, cut: AbortReason) {
        self.0[cut as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CUTS.iter().zip(&self.0).map(|(name, count)| (*name, count.load(Ordering::Relaxed)))
    }
}
