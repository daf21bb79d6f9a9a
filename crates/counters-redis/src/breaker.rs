//! When calls that fail say that a connection is of no use.

use sluicegate_limiter::{Span, Time};

/// Calls in a row, one begun after the other has failed, that open the breaker. A broken connection opens it at once.
const TOLERATED: u32 = 3;
/// Calls in a row are those that begin within this time after the failure of the one before.
const IN_A_ROW: Span = Span::SECOND;

/// Calls in a row that have failed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Breaker {
    count: u32,
    /// When the last of them did.
    last: Time,
}

impl Breaker {
    /// Counts the failure of a call. Whether there are enough to open the breaker.
    pub(super) fn add(&mut self, begun: Time, ended: Time) -> bool {
        if begun < self.last {
            return false; // it was under way beside the one before, and says the same
        }
        if begun.since(self.last) > IN_A_ROW {
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

    /// How many of these failures it takes, each begun so many milliseconds after the one before had ended.
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
    fn failures_count_that_follow_each_other() {
        assert_eq!(opens_after(&[0, 0, 0]), Some(3));
        assert_eq!(opens_after(&[0, 900, 900]), Some(3));
        assert_eq!(opens_after(&[0, 3_000, 3_000, 3_000]), None);
        assert_eq!(opens_after(&[0, 3_000, 0, 0]), Some(4));
        let (mut failures, now) = (Breaker::default(), Time::from_nanos(1 << 60));
        assert!((0..9).all(|_| !failures.add(now, now.plus(Span::SECOND))), "they were under way together");
    }
}
