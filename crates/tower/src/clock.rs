//! The time of decisions. A layer takes it from a clock of the caller, so that tests need not wait.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sluicegate_limiter::{Span, Time};

/// A source of the time. A closure that returns a [`Time`] is one.
///
/// It should not go backwards. Fixed and sliding windows are aligned to the Unix epoch, so it should show UTC.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Time;
}

impl<F: Fn() -> Time + Send + Sync + 'static> Clock for F {
    fn now(&self) -> Time {
        self()
    }
}

/// The clock of a layer that has no other: it starts at the time of the system and advances with its monotonic clock, so that a
/// step of the system's time changes no counter.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started: Instant,
    at: Time,
}

#[allow(clippy::disallowed_methods, reason = "the only place of this crate that reads a clock")]
impl SystemClock {
    /// A clock that starts now.
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), at: Time::EPOCH.plus(Span::from(since_epoch)) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::start()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        self.at.plus(Span::from(self.started.elapsed()))
    }
}
