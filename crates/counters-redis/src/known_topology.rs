//! What all workers know of the topology of a cluster, or of the master that the sentinels name.

use std::sync::Arc;

use tokio::sync::{Mutex, Notify, watch};

use super::dial::SlotRange;
use crate::Address;

/// What all workers know of the topology.
pub(super) struct Topology {
    pub(super) known: watch::Sender<Option<Result<Known, String>>>,
    /// Notified when it is to be refreshed.
    pub(super) outdated: Notify,
    /// Held by the worker that asks for all.
    pub(super) refresher: Mutex<()>,
}

/// The last answer.
#[derive(Clone, PartialEq)]
pub(super) enum Known {
    Slots(Arc<[SlotRange]>),
    Master(Address),
}

impl Default for Topology {
    fn default() -> Self {
        Self { known: watch::Sender::new(None), outdated: Notify::new(), refresher: Mutex::new(()) }
    }
}

impl Topology {
    /// Requests a refresh for this reason.
    pub(super) fn outdate(&self, reason: &'static str) {
        tracing::debug!(reason, "store topology is outdated");
        self.outdated.notify_one();
    }

    pub(super) fn set(&self, known: Result<Known, String>) {
        self.known.send_modify(|before| {
            match &known {
                Err(reason) => tracing::debug!(reason, "store topology is unknown"),
                Ok(_) if before.as_ref() == Some(&known) => {}
                Ok(Known::Master(master)) => tracing::debug!(%master, "the sentinels name a new master"),
                Ok(Known::Slots(slots)) => {
                    tracing::debug!(ranges = slots.len(), "the slots of the cluster have changed")
                }
            }
            *before = Some(known);
        });
    }
}
