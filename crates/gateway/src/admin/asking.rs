//! Who asks for a change.

use std::net::IpAddr;

/// Who asks for a change.
pub(super) struct Asking {
    /// The name of their token.
    pub(super) actor: String,
    /// Their address.
    pub(super) peer: IpAddr,
}
