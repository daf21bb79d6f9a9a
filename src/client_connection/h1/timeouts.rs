//! Timeouts that cannot be configured. They are coarse: late by up to 200 ms.

use std::time::Duration;

/// For the rest of a request body after the response.
pub(crate) const DRAIN: Duration = Duration::from_secs(10);
/// For the response, after a client closed its side, until the client is probed.
pub(crate) const GRACE: Duration = Duration::from_millis(500);
/// For the next bytes of a response to a client that has closed its side.
pub(crate) const HALF_CLOSED: Duration = Duration::from_secs(10);
/// Between two probes of a socket that is not read: at every tick of the deadlines.
pub(crate) const LOOK: Duration = Duration::ZERO;
/// For the other side of a tunnel after one side was closed.
pub(crate) const HALF_TUNNEL: Duration = Duration::from_secs(60);
