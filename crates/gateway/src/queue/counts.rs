//! What became of the requests of a queue, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_base::queue_event::QueueEvent;

/// How often each event has happened since the gateway started.
#[derive(Debug, Default)]
pub struct Counts([AtomicU64; QueueEvent::ALL.len()]);

impl Counts {
    /// Counts an event.
    pub fn count(&self, event: QueueEvent) {
        self.add(event, 1);
    }

    /// Counts several events of one kind.
    pub fn add(&self, event: QueueEvent, count: u64) {
        self.0[event as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// How often an event has happened.
    pub fn get(&self, event: QueueEvent) -> u64 {
        self.0[event as usize].load(Ordering::Relaxed)
    }
}
