//! One address of a server as all threads share it: whether it is well, and how many requests it has.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::balance::mix;
use super::log_throttle::LogThrottle;
use sluicegate_config::EjectionConfig;

/// The milliseconds for which no connection is kept to a server that sends bytes nobody asked for.
const UNSOLICITED_PENALTY: u64 = 60_000;

/// An address of a server.
pub(super) struct EndpointState {
    /// HOST:PORT as the file has it.
    pub(super) authority: String,
    /// Where it is.
    pub(super) address: SocketAddr,
    /// Tells it from others, the same on every gateway.
    pub(super) identity: u64,
    /// Whether it is_healthy when it is asked.
    is_healthy: AtomicBool,
    /// Failures in a row.
    failures: AtomicU32,
    /// The milliseconds until which it is out; 0 if it never was.
    ejected_until: AtomicU64,
    /// Ejections in a row.
    ejections: AtomicU32,
    /// Requests that it has, counted only where they are bounded.
    in_use: AtomicUsize,
    /// The milliseconds until which its connections are not kept; 0 if they always were.
    keep_after: AtomicU64,
    /// Whether requests fail, as operators are told.
    pub(super) failure_log: LogThrottle,
}

impl EndpointState {
    /// An address of which nothing bad is known.
    pub(super) fn new(authority: &str, address: SocketAddr) -> Self {
        let bytes = authority.bytes().chain([0]).chain(address.to_string().into_bytes());
        Self {
            authority: authority.to_owned(),
            address,
            identity: mix(bytes.fold(0, |hash, byte| mix(hash ^ u64::from(byte)))),
            is_healthy: AtomicBool::new(true),
            failures: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
            ejections: AtomicU32::new(0),
            in_use: AtomicUsize::new(0),
            keep_after: AtomicU64::new(0),
            failure_log: LogThrottle::default(),
        }
    }

    /// Whether requests go there. `now` is the gateway's milliseconds, here and below.
    pub(super) fn is_available(&self, now: u64) -> bool {
        self.is_healthy.load(Ordering::Relaxed) && !self.is_ejected(now)
    }

    /// Whether it is_healthy when it is asked.
    pub(super) fn is_healthy(&self) -> bool {
        self.is_healthy.load(Ordering::Relaxed)
    }

    /// Whether failures have taken it out.
    pub(super) fn is_ejected(&self, now: u64) -> bool {
        now < self.ejected_until.load(Ordering::Relaxed)
    }

    /// Notes whether it is_healthy; whether that is news.
    pub(super) fn set_healthy(&self, is_healthy: bool) -> bool {
        self.is_healthy.swap(is_healthy, Ordering::Relaxed) != is_healthy
    }

    /// Notes that it has served a request.
    pub(super) fn add_success(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Notes that it has failed; how often in a row.
    pub(super) fn add_failure(&self) -> u32 {
        self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// Takes it out, twice as long as the last time if it failed again soon. Whoever calls this sees to it that
    /// nobody else does at the same time. Returns for how long.
    ///
    /// The failures that led here stay counted: the first one after its return takes it out again.
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

    /// Forgets failures and ejections.
    pub(super) fn reset_failures(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.ejected_until.store(0, Ordering::Relaxed);
        self.ejections.store(0, Ordering::Relaxed);
    }

    /// Whether its connections are kept for further requests.
    pub(super) fn keeps_connections(&self, now: u64) -> bool {
        now >= self.keep_after.load(Ordering::Relaxed)
    }

    /// Has none of its connections kept for a while; whether they were until now.
    pub(super) fn stop_keeping_connections(&self, now: u64) -> bool {
        now >= self.keep_after.swap(now.saturating_add(UNSOLICITED_PENALTY), Ordering::Relaxed)
    }

    /// Whether it has less than `max` requests.
    pub(super) fn has_room(&self, max: usize) -> bool {
        self.in_use.load(Ordering::SeqCst) < max
    }

    /// Takes one of its `max` places, if one is free.
    pub(super) fn acquire(&self, max: usize) -> bool {
        let next = |taken| (taken < max).then_some(taken + 1);
        self.in_use.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok()
    }

    /// Gives a place back.
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
    fn who_fails_again_soon_is_out_for_longer() {
        let config = EjectionConfig {
            failures: 2,
            span: Duration::from_millis(100),
            max: Duration::from_millis(350),
            share: 50,
            status: Vec::new(),
        };
        let endpoint = EndpointState::new("a:80", "127.0.0.1:80".parse().unwrap());
        let out = |now| {
            let span = endpoint.eject(now, &config).as_millis();
            assert!(endpoint.is_ejected(now) && !endpoint.is_ejected(now + span as u64));
            span
        };
        assert_eq!(out(1_000), 100);
        assert_eq!(out(1_150), 200, "it was well for less than it was out");
        assert_eq!(out(1_400), 350);
        assert_eq!(out(1_800), 350);
        assert_eq!(out(2_500), 100, "it was well for long");
    }

    #[test]
    fn connections_are_kept_again_after_a_minute() {
        let endpoint = EndpointState::new("a:80", "127.0.0.1:80".parse().unwrap());
        assert!(
            endpoint.keeps_connections(0)
                && endpoint.stop_keeping_connections(1_000)
                && !endpoint.keeps_connections(1_000)
        );
        assert!(!endpoint.stop_keeping_connections(60_999), "it is known already");
        assert!(
            !endpoint.keeps_connections(120_998)
                && endpoint.keeps_connections(120_999)
                && endpoint.stop_keeping_connections(120_999)
        );
    }

    #[test]
    fn places_are_counted() {
        let endpoint = EndpointState::new("a:80", "127.0.0.1:80".parse().unwrap());
        assert!(endpoint.acquire(2) && endpoint.acquire(2) && !endpoint.acquire(2) && !endpoint.has_room(2));
        endpoint.release();
        assert!(endpoint.has_room(2) && endpoint.acquire(2));
    }
}
