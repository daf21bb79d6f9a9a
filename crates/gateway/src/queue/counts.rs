//! What became of the requests of a queue, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// How the requests of a queue ended, and how many attempts failed, since the gateway started.
#[derive(Debug, Default)]
pub struct Counts {
    accepted: AtomicU64,
    full: AtomicU64,
    errors: AtomicU64,
    retried: AtomicU64,
    delivered: AtomicU64,
    failed: AtomicU64,
}

/// An event in the life of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request was accepted.
    Accepted,
    /// A request was refused because the queue is full.
    Full,
    /// The queue could not be read or written.
    Error,
    /// An attempt failed, and another one follows.
    Retried,
    /// A request was delivered.
    Delivered,
    /// A request has become a dead letter.
    Failed,
}

impl Counts {
    fn of(&self, event: Event) -> &AtomicU64 {
        match event {
            Event::Accepted => &self.accepted,
            Event::Full => &self.full,
            Event::Error => &self.errors,
            Event::Retried => &self.retried,
            Event::Delivered => &self.delivered,
            Event::Failed => &self.failed,
        }
    }

    /// Counts an event.
    pub fn count(&self, event: Event) {
        self.of(event).fetch_add(1, Ordering::Relaxed);
    }

    /// How often an event has happened.
    pub fn get(&self, event: Event) -> u64 {
        self.of(event).load(Ordering::Relaxed)
    }
}
