//! The caller's clock, as this crate needs it.

use std::time::{Duration, Instant};

use sluicegate_limiter::{Span, Time};

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
        self.at.plus(Span::from_nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The instant of the runtime's timers at which this clock shows `time`.
    pub(crate) fn instant(&self, time: Time) -> tokio::time::Instant {
        (self.started + Duration::from_nanos(time.since(self.at).as_nanos())).into()
    }
}
