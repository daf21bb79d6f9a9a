//! Limits how often failing requests to an address are logged: once per change, and at most every five seconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The minimum time between two warnings about an address, in milliseconds.
const PAUSE: u64 = 5_000;

/// The failure state of an address.
#[derive(Default)]
pub(super) struct LogThrottle {
    /// Whether the last request failed, cheaper to look at than what follows.
    is_there: AtomicBool,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
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
    pub(super) fn begins(&self, why: &str, now: u64) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_there.store(true, Ordering::Relaxed);
        if told.why.as_deref() != Some(why) {
            told.why = Some(why.to_owned());
        }
        if told.logged || told.at.is_some_and(|at| now.saturating_sub(at) < PAUSE) {
            return false;
        }
        (told.logged, told.at) = (true, Some(now));
        true
    }

    /// A request was answered; whether that is to be logged.
    pub(super) fn ends(&self) -> bool {
        self.is_there.load(Ordering::Relaxed) && self.end()
    }

    #[cold]
    fn end(&self) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_there.store(false, Ordering::Relaxed);
        told.why = None;
        std::mem::take(&mut told.logged)
    }

    /// Why the last request failed, if it did.
    pub(super) fn why(&self) -> Option<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).why.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once_and_not_too_often() {
        let trouble = LogThrottle::default();
        assert!(!trouble.ends());
        assert!(trouble.begins("refused", 1_000) && !trouble.begins("no answer", 9_000));
        assert_eq!(trouble.why().as_deref(), Some("no answer"));
        assert!(trouble.ends() && !trouble.ends() && trouble.why().is_none());
        assert!(trouble.begins("refused", 10_000) && trouble.ends());
        assert!(!trouble.begins("refused", 11_000) && trouble.why().is_some(), "too soon for the log");
        assert!(!trouble.ends(), "nothing was said that would have to be taken back");
        assert!(!trouble.begins("refused", 12_000) && trouble.begins("refused", 15_000), "it lasts");
    }
}
