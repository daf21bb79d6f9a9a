//! Limits how often failing requests to an address are logged: once per change, and at most every five seconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The minimum time between two warnings about an address, in milliseconds.
const MIN_INTERVAL: u64 = 5_000;

/// The failure state of an address.
#[derive(Default)]
pub(super) struct LogThrottle {
    /// Whether the last request failed, cheaper to look at than what follows.
    is_failing: AtomicBool,
    last: Mutex<Failure>,
}

#[derive(Default)]
struct Failure {
    /// Why the last request failed.
    why: Option<String>,
    /// Whether the log says so.
    logged: bool,
    /// When it last did.
    at: Option<u64>,
}

impl LogThrottle {
    /// A request has failed; whether that is to be logged. `now` is the gateway's milliseconds.
    #[cold]
    pub(super) fn failed(&self, why: &str, now: u64) -> bool {
        let mut failure = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_failing.store(true, Ordering::Relaxed);
        if failure.why.as_deref() != Some(why) {
            failure.why = Some(why.to_owned());
        }
        if failure.logged || failure.at.is_some_and(|at| now.saturating_sub(at) < MIN_INTERVAL) {
            return false;
        }
        (failure.logged, failure.at) = (true, Some(now));
        true
    }

    /// A request was answered; whether that is to be logged.
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

    /// Why the last request failed, if it did.
    pub(super) fn why(&self) -> Option<String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).why.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once_and_not_too_often() {
        let throttle = LogThrottle::default();
        assert!(!throttle.recovered());
        assert!(throttle.failed("refused", 1_000) && !throttle.failed("no answer", 9_000));
        assert_eq!(throttle.why().as_deref(), Some("no answer"));
        assert!(throttle.recovered() && !throttle.recovered() && throttle.why().is_none());
        assert!(throttle.failed("refused", 10_000) && throttle.recovered());
        assert!(!throttle.failed("refused", 11_000) && throttle.why().is_some(), "too soon for the log");
        assert!(!throttle.recovered(), "nothing was said that would have to be taken back");
        assert!(!throttle.failed("refused", 12_000) && throttle.failed("refused", 15_000), "it lasts");
    }
}
