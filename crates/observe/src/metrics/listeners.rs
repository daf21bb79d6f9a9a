//! Counters of listeners: refused connections and TLS handshakes.

use super::worker_counters::Counter;
use sluicegate_base::named_enum::named_enum;

/// The counters that one worker has of one listener.
#[derive(Debug, Default)]
pub struct ListenerMetrics {
    pub(super) refused: [Counter; Refusal::ALL.len()],
    pub(super) handshakes: [Counter; Handshake::ALL.len()],
}

named_enum! {
    /// Why a connection was closed without being served.
    Refusal {
        /// The listener has its maximum number of connections.
        Listener = "listener_full",
        /// The client's address has its maximum number of connections.
        Address = "address_full",
        /// The process has as many connections as its file descriptors allow.
        Gateway = "gateway_full",
        /// The process has no file descriptor left.
        OutOfFiles = "out_of_file_descriptors",
        /// The connection does not begin with a valid PROXY header.
        ProxyHeader = "no_proxy_header",
    }
}

named_enum! {
    /// The outcome of a TLS handshake.
    Handshake {
        /// It succeeded.
        Full = "full",
        /// It succeeded and resumed an earlier session.
        Resumed = "resumed",
        /// It failed with an error of either side.
        Failed = "failed",
        /// It was not complete in time.
        TimedOut = "timeout",
        /// It was cancelled because too many handshakes were in progress.
        Shed = "shed",
    }
}

impl ListenerMetrics {
    /// Counts a connection that was closed without being served.
    pub fn refused(&self, reason: Refusal) {
        self.refused[reason as usize].add(1);
    }

    /// Counts a TLS handshake.
    pub fn handshake(&self, outcome: Handshake) {
        self.handshakes[outcome as usize].add(1);
    }
}
