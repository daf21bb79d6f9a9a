//! The state of an endpoint that all threads share: health, ejection, and requests in flight.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::admin_state::AdminState;
use super::balance::mix;
use super::log_throttle::LogThrottle;
use super::server_address::ServerAddress;
use sluicegate_config::EjectionConfig;

/// How long connections to a server that sent unsolicited bytes are not reused, in milliseconds.
const UNSOLICITED_PENALTY: u64 = 60_000;

/// Bits of `closed`: the health checks fail.
const UNHEALTHY: u8 = 1;
/// An operator has drained the server.
const DRAIN: u8 = 1 << 1;
/// An operator has put the server into maintenance.
const MAINTENANCE: u8 = 1 << 2;

/// The shared state of an endpoint.
pub(super) struct EndpointState {
    /// The server's HOST:PORT as configured.
    pub(super) authority: String,
    pub(super) address: ServerAddress,
    /// A hash of authority and address, the same on every gateway.
    pub(super) identity: u64,
    /// Why it gets no requests, apart from an ejection: bits for the health checks and the administrative state. One value,
    /// so that a request reads them together.
    closed: AtomicU8,
    /// Consecutive failures.
    failures: AtomicU32,
    /// The end of the last ejection in milliseconds; 0 if there was none.
    ejected_until: AtomicU64,
    /// Consecutive ejections.
    ejections: AtomicU32,
    /// Requests in flight, counted only if `max_connections` is configured.
    in_use: AtomicUsize,
    /// The time in milliseconds from which its connections may be reused.
    keep_after: AtomicU64,
    /// The health checks so far.
    checks: Mutex<Checks>,
    /// Logs failing requests.
    pub(super) failure_log: LogThrottle,
    /// What each worker has counted.
    counted: Mutex<Vec<Arc<WorkerCounts>>>,
    /// Requests that failed because of the server, or that its ejection counts as failures.
    failed: AtomicU64,
}

/// The last health check of an address.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    /// When it ended, by the wall clock.
    pub at: jiff::Timestamp,
    /// How long it took.
    pub took: Duration,
    /// The status of the answer; `None` without one.
    pub status: Option<u16>,
    /// Why it failed; `None` if it succeeded.
    pub failure: Option<String>,
}

/// What the health checks of an address have shown.
#[derive(Clone, Default)]
pub(super) struct Checks {
    /// The last one.
    pub(super) last: Option<HealthCheck>,
    /// When the first of the failed ones ended after which none has succeeded, by the gateway's clock in milliseconds.
    pub(super) failing_since: Option<u64>,
}

/// What one worker has counted of an endpoint. Only that worker writes.
#[derive(Default)]
pub(super) struct WorkerCounts {
    requests: AtomicU64,
    in_flight: AtomicU32,
}

impl WorkerCounts {
    /// Counts a request that begins; `in_flight` are in flight with it.
    pub(super) fn begins(&self, in_flight: u32) {
        self.requests.store(self.requests.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.in_flight.store(in_flight, Ordering::Relaxed);
    }

    /// Notes that a request has ended; `in_flight` are still in flight.
    pub(super) fn ends(&self, in_flight: u32) {
        self.in_flight.store(in_flight, Ordering::Relaxed);
    }
}

impl EndpointState {
    /// A healthy endpoint of a server that is ready.
    pub(super) fn new(authority: &str, address: ServerAddress) -> Self {
        let bytes = authority.bytes().chain([0]).chain(address.to_string().into_bytes());
        Self {
            authority: authority.to_owned(),
            address,
            identity: mix(bytes.fold(0, |hash, byte| mix(hash ^ u64::from(byte)))),
            closed: AtomicU8::new(0),
            failures: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
            ejections: AtomicU32::new(0),
            in_use: AtomicUsize::new(0),
            keep_after: AtomicU64::new(0),
            checks: Mutex::default(),
            failure_log: LogThrottle::default(),
            counted: Mutex::default(),
            failed: AtomicU64::new(0),
        }
    }

    /// Counters for a worker. Those that no worker uses any more are added up.
    pub(super) fn worker_counts(&self) -> Arc<WorkerCounts> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let unused: u64 = counted
            .extract_if(.., |counts| Arc::strong_count(counts) == 1)
            .map(|counts| counts.requests.load(Ordering::Relaxed))
            .sum();
        let counts = Arc::new(WorkerCounts { requests: AtomicU64::new(unused), ..WorkerCounts::default() });
        counted.push(Arc::clone(&counts));
        counts
    }

    /// The number of requests to it so far, of these those in flight, and of these those that failed.
    pub(super) fn counts(&self) -> (u64, u32, u64) {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = counted.iter().map(|counts| counts.requests.load(Ordering::Relaxed)).sum();
        let in_flight = counted.iter().map(|counts| counts.in_flight.load(Ordering::Relaxed)).sum();
        (requests, in_flight, self.failed.load(Ordering::Relaxed))
    }

    /// Counts a request that failed.
    pub(super) fn count_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether requests are sent there. `now` is the gateway's clock in milliseconds, here and below.
    pub(super) fn is_available(&self, now: u64) -> bool {
        self.closed.load(Ordering::Relaxed) == 0 && !self.is_ejected(now)
    }

    /// Whether its server is ready: neither drained nor in maintenance.
    pub(super) fn is_ready(&self) -> bool {
        self.closed.load(Ordering::Relaxed) & (DRAIN | MAINTENANCE) == 0
    }

    /// The administrative state of its server.
    pub(super) fn admin_state(&self) -> AdminState {
        match self.closed.load(Ordering::Relaxed) {
            bits if bits & MAINTENANCE != 0 => AdminState::Maintenance,
            bits if bits & DRAIN != 0 => AdminState::Drain,
            _ => AdminState::Ready,
        }
    }

    /// Sets the administrative state of its server. A server that becomes ready again may have been repaired: its failures and
    /// its ejection are forgotten.
    pub(super) fn set_admin_state(&self, state: AdminState) {
        let bits = match state {
            AdminState::Ready => 0,
            AdminState::Drain => DRAIN,
            AdminState::Maintenance => MAINTENANCE,
        };
        if state == AdminState::Ready && !self.is_ready() {
            self.reset_failures();
        }
        let next = |closed| Some(closed & UNHEALTHY | bits);
        let _ = self.closed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next); // it never fails
    }

    /// Whether the health checks succeed.
    pub(super) fn is_healthy(&self) -> bool {
        self.closed.load(Ordering::Relaxed) & UNHEALTHY == 0
    }

    /// Whether it is ejected.
    pub(super) fn is_ejected(&self, now: u64) -> bool {
        now < self.ejected_until.load(Ordering::Relaxed)
    }

    /// Sets the result of the health checks. Returns whether it has changed.
    pub(super) fn set_healthy(&self, is_healthy: bool) -> bool {
        let before = match is_healthy {
            true => self.closed.fetch_and(!UNHEALTHY, Ordering::Relaxed),
            false => self.closed.fetch_or(UNHEALTHY, Ordering::Relaxed),
        };
        (before & UNHEALTHY == 0) != is_healthy
    }

    /// Keeps the last health check for operators.
    pub(super) fn note_check(&self, check: HealthCheck, now: u64) {
        let mut checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        checks.failing_since = check.failure.as_ref().map(|_| checks.failing_since.unwrap_or(now));
        checks.last = Some(check);
    }

    /// What the health checks have shown.
    pub(super) fn checks(&self) -> Checks {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets the health checks: there are none any more, so it counts as healthy.
    pub(super) fn forget_checks(&self) {
        self.set_healthy(true);
        *self.checks.lock().unwrap_or_else(PoisonError::into_inner) = Checks::default();
    }

    /// Records a success.
    pub(super) fn add_success(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Records a failure. Returns the number of consecutive failures.
    pub(super) fn add_failure(&self) -> u32 {
        self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// Ejects it and returns for how long: twice as long as the last time, if it was available for less than that since. The
    /// caller must exclude concurrent calls.
    ///
    /// Consecutive failures stay counted, so that the first failure after the ejection ejects it again.
    pub(super) fn eject(&self, now: u64, config: &EjectionConfig) -> Duration {
        let span = |times: u32| {
            let factor = 1_u32.checked_shl(times.saturating_sub(1)).unwrap_or(u32::MAX);
            config.span.checked_mul(factor).unwrap_or(config.max).min(config.max)
        };
        let times = self.ejections.load(Ordering::Relaxed);
        let well_for = now.saturating_sub(self.ejected_until.load(Ordering::Relaxed));
        let times = if times > 0 && well_for < millis(span(times)) { times.saturating_add(1) } else { 1 };
        self.ejections.store(times, Ordering::Relaxed);
        self.ejected_until.store(now.saturating_add(millis(span(times))), Ordering::Relaxed);
        span(times)
    }

    /// Clears failures and ejections.
    pub(super) fn reset_failures(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.ejected_until.store(0, Ordering::Relaxed);
        self.ejections.store(0, Ordering::Relaxed);
    }

    /// Whether its connections are kept for reuse.
    pub(super) fn keeps_connections(&self, now: u64) -> bool {
        now >= self.keep_after.load(Ordering::Relaxed)
    }

    /// Stops the reuse of its connections for a minute. Returns false if it was stopped already.
    pub(super) fn stop_keeping_connections(&self, now: u64) -> bool {
        now >= self.keep_after.swap(now.saturating_add(UNSOLICITED_PENALTY), Ordering::Relaxed)
    }

    /// Whether it has less than `max` requests in flight.
    pub(super) fn has_room(&self, max: usize) -> bool {
        self.in_use.load(Ordering::SeqCst) < max
    }

    /// Counts a request, unless `max` are in flight. Returns whether it was counted.
    pub(super) fn acquire(&self, max: usize) -> bool {
        let next = |taken| (taken < max).then_some(taken + 1);
        self.in_use.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok()
    }

    /// Uncounts a request.
    pub(super) fn release(&self) {
        self.in_use.fetch_sub(1, Ordering::SeqCst);
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_ejections_are_longer() {
        let config = EjectionConfig {
            failures: 2,
            span: Duration::from_millis(100),
            max: Duration::from_millis(350),
            share: 50,
            status: Vec::new(),
        };
        let endpoint = EndpointState::new("a:80", ServerAddress::parse("127.0.0.1:80").unwrap());
        let out = |now| {
            let span = endpoint.eject(now, &config).as_millis();
            assert!(endpoint.is_ejected(now) && !endpoint.is_ejected(now + span as u64));
            span
        };
        assert_eq!(out(1_000), 100);
        assert_eq!(out(1_150), 200, "it was available for less than the last ejection");
        assert_eq!(out(1_400), 350);
        assert_eq!(out(1_800), 350);
        assert_eq!(out(2_500), 100, "it was available for long");
    }

    #[test]
    fn connections_are_reused_again_after_a_minute() {
        let endpoint = EndpointState::new("a:80", ServerAddress::parse("127.0.0.1:80").unwrap());
        assert!(
            endpoint.keeps_connections(0)
                && endpoint.stop_keeping_connections(1_000)
                && !endpoint.keeps_connections(1_000)
        );
        assert!(!endpoint.stop_keeping_connections(60_999), "it was stopped already");
        assert!(
            !endpoint.keeps_connections(120_998)
                && endpoint.keeps_connections(120_999)
                && endpoint.stop_keeping_connections(120_999)
        );
    }

    #[test]
    fn what_workers_count_outlives_them() {
        let endpoint = EndpointState::new("a:80", ServerAddress::parse("127.0.0.1:80").unwrap());
        let (one, two) = (endpoint.worker_counts(), endpoint.worker_counts());
        one.begins(1);
        one.begins(2);
        one.ends(1);
        two.begins(1);
        endpoint.count_failure();
        assert_eq!(endpoint.counts(), (3, 2, 1));
        one.ends(0);
        drop(one);
        let _three = endpoint.worker_counts();
        assert_eq!((endpoint.counts(), endpoint.counted.lock().unwrap().len()), ((3, 1, 1), 2));
    }

    #[test]
    fn requests_in_flight_are_counted() {
        let endpoint = EndpointState::new("a:80", ServerAddress::parse("127.0.0.1:80").unwrap());
        assert!(endpoint.acquire(2) && endpoint.acquire(2) && !endpoint.acquire(2) && !endpoint.has_room(2));
        endpoint.release();
        assert!(endpoint.has_room(2) && endpoint.acquire(2));
    }
}
