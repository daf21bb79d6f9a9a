//! Whether requests to an address fail, and how often that is logged: once per change, and at most every five seconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The minimum time between two warnings about an address, in milliseconds.
const MIN_INTERVAL: u64 = 5_000;

/// How many requests in a row must fail before an address counts as down, if connections to it can be made: one answer that was
/// too late says little.
const FAILURES: u32 = 3;

/// The failure state of an address.
#[derive(Default)]
pub(super) struct LogThrottle {
    /// Whether the last request failed; read without the lock.
    is_failing: AtomicBool,
    last: Mutex<State>,
}

/// Why requests to an address fail, of which the last has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// Why the last one failed.
    pub(super) why: String,
    /// Since when all have failed, by the gateway's clock in milliseconds.
    pub(super) since: u64,
    /// Whether the address counts as down: no connection could be made, or several requests in a row have failed.
    pub(super) is_down: bool,
    /// How many have failed in a row.
    in_a_row: u32,
}

#[derive(Default)]
struct State {
    /// The present failure.
    present: Option<Failure>,
    /// Whether the present failure was logged.
    logged: bool,
    /// When a failure was last logged.
    at: Option<u64>,
}

impl LogThrottle {
    /// Records a failed request; `unsent` says that there was no connection. Returns whether to log it. `now` is the gateway's
    /// clock in milliseconds.
    #[cold]
    pub(super) fn failed(&self, why: &str, unsent: bool, now: u64) -> bool {
        let mut state = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_failing.store(true, Ordering::Relaxed);
        let new = || Failure { why: String::new(), since: now, is_down: false, in_a_row: 0 };
        let failure = state.present.get_or_insert_with(new);
        if failure.why != why {
            why.clone_into(&mut failure.why);
        }
        failure.in_a_row = failure.in_a_row.saturating_add(1);
        failure.is_down |= unsent || failure.in_a_row >= FAILURES;
        if state.logged || state.at.is_some_and(|at| now.saturating_sub(at) < MIN_INTERVAL) {
            return false;
        }
        (state.logged, state.at) = (true, Some(now));
        true
    }

    /// Records a response. Returns whether to log the recovery.
    pub(super) fn recovered(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed) && self.end()
    }

    #[cold]
    fn end(&self) -> bool {
        let mut state = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_failing.store(false, Ordering::Relaxed);
        state.present = None;
        std::mem::take(&mut state.logged)
    }

    /// The present failure: the last request failed.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).present.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_logged_once_and_not_too_often() {
        let throttle = LogThrottle::default();
        let failed = |why, now| throttle.failed(why, false, now);
        assert!(!throttle.recovered());
        assert!(failed("refused", 1_000) && !failed("no answer", 9_000));
        let failure = throttle.failure().unwrap();
        assert_eq!((failure.why.as_str(), failure.since), ("no answer", 1_000));
        assert!(throttle.recovered() && !throttle.recovered() && throttle.failure().is_none());
        assert!(failed("refused", 10_000) && throttle.recovered());
        assert!(!failed("refused", 11_000) && throttle.failure().is_some(), "too soon for the log");
        assert!(!throttle.recovered(), "the failure was not logged");
        assert!(!failed("refused", 12_000) && failed("refused", 15_000), "it lasts");
    }

    /// One late answer does not make an address down; a refused connection does, and an answer ends it.
    #[test]
    fn an_address_is_down_after_failures_in_a_row() {
        let throttle = LogThrottle::default();
        let is_down = || throttle.failure().is_some_and(|failure| failure.is_down);
        for (failure, down) in [(1, false), (2, false), (3, true)] {
            throttle.failed("late", false, failure);
            assert_eq!(is_down(), down, "{failure}");
        }
        throttle.recovered();
        throttle.failed("late", false, 5);
        assert!(!is_down());
        throttle.failed("refused", true, 6);
        assert!(is_down());
    }
}
