//! Errors of a client and their scope (RFC 9113 §5.4).

use super::AbortReason;
use super::reason::Reason;

/// An error of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum H2Error {
    /// Ends the connection.
    Connection(Reason),
    /// Ends a stream.
    Stream(u32, Reason),
    /// Ends the connection because a flood was detected.
    Abort(AbortReason),
}

impl H2Error {
    /// A connection error without a more specific code.
    pub(super) const PROTOCOL: Self = Self::Connection(Reason::PROTOCOL_ERROR);
    /// A frame of a wrong size.
    pub(super) const SIZE: Self = Self::Connection(Reason::FRAME_SIZE_ERROR);
}

/// Why the connection of a client has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// A connection error (RFC 9113 §5.4.1).
    #[error("connection error {}", .0)]
    Protocol(Reason),
    /// A flood was detected.
    #[error("too many {}", AbortReason::NAMES[*.0 as usize])]
    Flood(AbortReason),
}
