//! The only module that reads clocks.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sluicegate_limiter::{Span, Time};

/// The gateway's clock: it starts at the time of the wall clock and advances with the monotonic clock. Windows are aligned
/// to UTC, and a step of the wall clock changes no counter.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    at: Time,
}

#[allow(clippy::disallowed_methods, reason = "only this file reads clocks")]
impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), at: Time::from_nanos(nanos(since_epoch)) }
    }

    /// Now.
    pub fn now(&self) -> Time {
        self.at.plus(Span::from_nanos(nanos(self.started.elapsed())))
    }

    /// When it was started, and what it showed then: clocks of stores are made of both.
    pub fn origin(&self) -> (Instant, Time) {
        (self.started, self.at)
    }

    /// The time since the clock was started.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// The time of the wall clock, for logs and reports.
    pub fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    /// The instant of the operating system's timers at which this clock shows `time`.
    pub fn instant(&self, time: Time) -> tokio::time::Instant {
        (self.started + Duration::from(time.since(self.at))).into()
    }
}

/// The time of the wall clock before the gateway has started: its files are validated then.
#[allow(clippy::disallowed_methods, reason = "only this file reads clocks")]
pub fn today() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// A time as operators are shown it, to the second (RFC 3339).
pub fn rfc3339(time: Time) -> String {
    let stamp = jiff::Timestamp::from_nanosecond(i128::from(time.as_nanos())).unwrap_or_default();
    stamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// CPU time that the process has used, in user and system mode.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let nanos = time.tv_nsec.try_into().unwrap_or_default();
    Duration::new(time.tv_sec.try_into().unwrap_or_default(), nanos)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
