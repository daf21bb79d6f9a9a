//! Why an answer ended before its end, after its status had been sent: one closed set of names for the access log, the metrics
//! and spans.

use crate::named_enum::named_enum;

named_enum! {
    /// Why an answer was cut.
    CutReason {
        /// The upstream's connection or stream was reset, or failed.
        UpstreamReset = "upstream_reset",
        /// The upstream closed its connection.
        UpstreamClosed = "upstream_closed",
        /// The body of the upstream's answer is malformed, such as a bad chunk.
        UpstreamMalformed = "upstream_malformed",
        /// The upstream sent nothing for longer than `timeouts.idle`.
        UpstreamIdle = "upstream_idle",
        /// The total `timeout` of the route expired.
        TotalTimeout = "total_timeout",
        /// The body of the request failed while the answer was in progress.
        UploadFailed = "upload_failed",
        /// The client left, took nothing for too long, or its connection was closed.
        ClientLeft = "client_left",
    }
}
