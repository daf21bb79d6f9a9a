//! Counts failed calls and decides when the circuit breaker opens.

use sluicegate_limiter::{Span, Time};

/// The number of consecutive failed calls that opens the breaker. Calls count as consecutive if one begins after the failure
/// of the other. A broken connection opens the breaker at once.
const TOLERATED: u32 = 3;
/// The longest time from a failure to the start of the next call for which both count as consecutive.
const MAX_GAP: Span = Span::SECOND;

/// Consecutive failed calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Breaker {
    count: u32,
    /// When the last one failed.
    last: Time,
}

impl Breaker {
    /// Counts a failed call with its start and end. Returns whether the breaker opens.
    pub(super) fn add(&mut self, begun: Time, ended: Time) -> bool {
        if begun < self.last {
            return false; // it was in flight together with the one before
        }
        if begun.since(self.last) > MAX_GAP {
            self.count = 0;
        }
        self.count += 1;
        self.last = ended;
        self.count >= TOLERATED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of failures after which the breaker opens. Each call begins so many milliseconds after the end of the one
    /// before.
    fn opens_after(gaps: &[u64]) -> Option<usize> {
        let (mut failures, mut now) = (Breaker::default(), Time::from_nanos(1 << 60));
        let mut add = |gap: &u64| {
            let begun = now.plus(Span::from_millis(*gap));
            now = begun.plus(Span::from_millis(50));
            failures.add(begun, now)
        };
        gaps.iter().position(&mut add).map(|at| at + 1)
    }

    #[test]
    fn consecutive_failures_open_the_breaker() {
        assert_eq!(opens_after(&[0, 0, 0]), Some(3));
        assert_eq!(opens_after(&[0, 900, 900]), Some(3));
        assert_eq!(opens_after(&[0, 3_000, 3_000, 3_000]), None);
        assert_eq!(opens_after(&[0, 3_000, 0, 0]), Some(4));
        let (mut failures, now) = (Breaker::default(), Time::from_nanos(1 << 60));
        assert!((0..9).all(|_| !failures.add(now, now.plus(Span::SECOND))), "they were under way together");
    }
}
