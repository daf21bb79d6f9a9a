//! What a client does wrong, and what ends with it (RFC 9113 §5.4).

use super::frame::Reason;
use crate::metrics::AbortReason;

/// A mistake of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It ends the connection.
    Connection(Reason),
    /// It ends a stream.
    Stream(u32, Reason),
    /// It was too much of something: the connection is aborted.
    Aborted(AbortReason),
}

impl Fault {
    /// What nothing else says of what is wrong.
    pub(super) const PROTOCOL: Self = Self::Connection(Reason::PROTOCOL_ERROR);
    /// A frame that has not the size of its kind.
    pub(super) const SIZE: Self = Self::Connection(Reason::FRAME_SIZE_ERROR);
}
