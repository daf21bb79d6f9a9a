//! The administrative state of servers: whether an operator has drained one, or put it into maintenance. It holds for all
//! addresses of a server, survives reloads as long as the server stays in the configuration, and ends with the process.

use std::sync::atomic::{AtomicU8, Ordering};

use sluicegate_base::named_enum::named_enum;

named_enum! {
    /// The administrative state of a server, in the words of HAProxy.
    AdminState {
        /// It gets requests.
        Ready = "ready",
        /// It gets no new requests. Those in flight end as usual, and health checks go on.
        Drain = "drain",
        /// As `drain`, and without health checks.
        Maintenance = "maintenance",
    }
}

/// The administrative state of a server, shared by all generations of the configuration that have it.
#[derive(Default)]
pub(super) struct AdminCell(AtomicU8);

impl AdminCell {
    pub(super) fn get(&self) -> AdminState {
        AdminState::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }

    pub(super) fn set(&self, state: AdminState) {
        self.0.store(state as u8, Ordering::Relaxed);
    }
}
