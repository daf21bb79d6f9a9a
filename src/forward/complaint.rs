//! What operators are told of a server that cannot be spoken to: the reason, and not once per request.

use std::cell::{Cell, RefCell};
use std::error::Error;

/// The same is told again after so many milliseconds, and anything else not within a second.
const AGAIN: (u64, u64) = (60_000, 1_000);

/// What was said of a server last.
#[derive(Default)]
pub(super) struct Complaints {
    at: Cell<Option<u64>>,
    last: RefCell<String>,
}

impl Complaints {
    /// Logs what is wrong with `server` at `now`, the worker's milliseconds, unless that was just done.
    pub(super) fn tell(&self, upstream: &str, server: &str, now: u64, error: &dyn Error) {
        let since = self.at.get().map_or(u64::MAX, |at| now.saturating_sub(at));
        if since < AGAIN.1 {
            return;
        }
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let said = error.to_string();
            if !text.contains(&said) {
                text = format!("{text}: {said}");
            }
            cause = error.source();
        }
        if since < AGAIN.0 && *self.last.borrow() == text {
            return;
        }
        tracing::warn!("upstream {upstream}: {server}: {text}");
        self.at.set(Some(now));
        *self.last.borrow_mut() = text;
    }
}
