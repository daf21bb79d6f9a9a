//! Timeouts that cannot be configured. They are coarse: late by up to 200 ms.

use std::time::Duration;

/// To receive the rest of a request body after the response.
pub const DRAIN: Duration = Duration::from_secs(10);
/// After the client has closed its side, until it is probed.
pub(crate) const GRACE: Duration = Duration::from_millis(500);
/// To send the next bytes of a response to a client that has closed its side.
pub(crate) const HALF_CLOSED: Duration = Duration::from_secs(10);
/// Between two probes of a socket that is not read: at every tick of the deadlines.
pub(crate) const PROBE_INTERVAL: Duration = Duration::ZERO;
/// Idle timeout of a tunnel after one side has ended.
pub const HALF_TUNNEL: Duration = Duration::from_secs(60);
