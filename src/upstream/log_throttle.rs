//! Limits how often failing requests to an address are logged: once per change, and at most every five seconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The minimum time between two warnings about an address, in milliseconds.
const MIN_INTERVAL: u64 = 5_000;

/// The failure state of an address.
#[derive(Default)]
pub(super) struct LogThrottle {
    /// Whether the last request failed; read without the lock.
    is_failing: AtomicBool,
    last: Mutex<Failure>,
}

#[derive(Default)]
struct Failure {
    /// Why the last request failed, and since when all have failed.
    why: Option<(String, u64)>,
    /// Whether the present failure was logged.
    logged: bool,
    /// When a failure was last logged.
    at: Option<u64>,
}

impl LogThrottle {
    /// Records a failed request. Returns whether to log it. `now` is the gateway's clock in milliseconds.
    #[cold]
    pub(super) fn failed(&self, why: &str, now: u64) -> bool {
        let mut failure = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_failing.store(true, Ordering::Relaxed);
        match &mut failure.why {
            Some((known, _)) if known == why => {}
            Some((known, _)) => why.clone_into(known),
            None => failure.why = Some((why.to_owned(), now)),
        }
        if failure.logged || failure.at.is_some_and(|at| now.saturating_sub(at) < MIN_INTERVAL) {
            return false;
        }
        (failure.logged, failure.at) = (true, Some(now));
        true
    }

    /// Records a response. Returns whether to log the recovery.
    pub(super) fn recovered(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed) && self.end()
    }

    #[cold]
    fn end(&self) -> bool {
        let mut failure = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_failing.store(false, Ordering::Relaxed);
        failure.why = None;
        std::mem::take(&mut failure.logged)
    }

    /// Why the last request failed, if it did, and since when all have failed.
    pub(super) fn why(&self) -> Option<(String, u64)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).why.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_logged_once_and_not_too_often() {
        let throttle = LogThrottle::default();
        assert!(!throttle.recovered());
        assert!(throttle.failed("refused", 1_000) && !throttle.failed("no answer", 9_000));
        assert_eq!(throttle.why(), Some(("no answer".to_owned(), 1_000)));
        assert!(throttle.recovered() && !throttle.recovered() && throttle.why().is_none());
        assert!(throttle.failed("refused", 10_000) && throttle.recovered());
        assert!(!throttle.failed("refused", 11_000) && throttle.why().is_some(), "too soon for the log");
        assert!(!throttle.recovered(), "the failure was not logged");
        assert!(!throttle.failed("refused", 12_000) && throttle.failed("refused", 15_000), "it lasts");
    }
}
