//! Counters of listeners: refused connections and TLS handshakes.

use super::worker_counters::Counter;

/// What one worker counts of one listener.
#[derive(Debug, Default)]
pub struct ListenerMetrics {
    pub(super) refused: [Counter; REFUSALS.len()],
    pub(super) handshakes: [Counter; HANDSHAKES.len()],
}

/// Why a connection is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The listener has as many as it may.
    Listener,
    /// The client's address has as many as it may.
    Address,
    /// The gateway has as many as it has file descriptors for.
    Gateway,
    /// There were no file descriptors left.
    OutOfFiles,
    /// It does not begin with a PROXY header.
    ProxyHeader,
}

/// How a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Well.
    Full,
    /// Well, going on from an earlier one.
    Resumed,
    /// With an error of either side.
    Failed,
    /// Not in time.
    TimedOut,
    /// It was given up because there were too many at once.
    Shed,
}

pub(super) const REFUSALS: [&str; 5] =
    ["listener_full", "address_full", "gateway_full", "out_of_file_descriptors", "no_proxy_header"];
pub(super) const HANDSHAKES: [&str; 5] = ["full", "resumed", "failed", "timeout", "shed"];

impl ListenerMetrics {
    /// Counts a connection that is not served.
    pub fn refused(&self, why: Refusal) {
        self.refused[why as usize].add(1);
    }

    /// Counts a handshake.
    pub fn handshake(&self, outcome: Handshake) {
        self.handshakes[outcome as usize].add(1);
    }
}
