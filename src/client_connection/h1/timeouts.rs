//! How long a client is waited for, where that cannot be configured. Such times are coarse: late by up to two tenths of a second.

use std::time::Duration;

/// For the rest of a body that was answered before it had come.
pub(crate) const DRAIN: Duration = Duration::from_secs(10);
/// For an answer, from a client's last byte until it is asked whether it still listens.
pub(crate) const GRACE: Duration = Duration::from_millis(500);
/// For the next bytes of an answer to a client that sends nothing more.
pub(crate) const HALF_CLOSED: Duration = Duration::from_secs(10);
/// Between two looks at a socket that cannot be read at the moment: as often as there are any.
pub(crate) const LOOK: Duration = Duration::ZERO;
/// For the other side of a tunnel, once one side has said that it sends nothing more.
pub(crate) const HALF_TUNNEL: Duration = Duration::from_secs(60);
