//! The caller's clock, as this crate needs it.

use std::time::{Duration, Instant};

use sluicegate_limiter::Time;

/// A clock that showed a known time at a known instant, and has run on the monotonic clock since.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    at: Time,
}

impl Clock {
    /// The clock that showed `at` at the instant `started`.
    pub fn new(started: Instant, at: Time) -> Self {
        Self { started, at }
    }

    /// Now.
    pub(crate) fn now(&self) -> Time {
        self.at.plus(self.started.elapsed().into())
    }

    /// The instant of the runtime's timers at which this clock shows `time`.
    pub(crate) fn instant(&self, time: Time) -> tokio::time::Instant {
        (self.started + Duration::from(time.since(self.at))).into()
    }
}
