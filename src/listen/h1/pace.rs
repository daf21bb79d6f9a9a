//! How fast a body comes: whoever keeps a request open with a byte now and then is not waited for.

/// Milliseconds of waiting for the client before its pace counts.
const PATIENCE: u64 = 10_000;

/// The pace of one body.
#[derive(Debug, Default)]
pub(super) struct Pace {
    received: u64,
    /// Milliseconds in which it was waited for. The time in which nobody wanted any of it is not the client's.
    waited: u64,
    since: Option<u64>,
}

impl Pace {
    /// Some more has come.
    pub(super) fn came(&mut self, bytes: usize, now: u64) {
        self.received += bytes as u64;
        self.waited += self.since.take().map_or(0, |since| now.saturating_sub(since));
    }

    /// It is waited for.
    pub(super) fn waits(&mut self, now: u64) {
        self.since.get_or_insert(now);
    }

    /// Whether it comes slower than at `slowest` bytes a second of waiting, on average.
    pub(super) fn is_too_slow(&self, now: u64, slowest: u64) -> bool {
        let waited = self.waited + self.since.map_or(0, |since| now.saturating_sub(since));
        waited > PATIENCE && self.received * 1_000 < waited.saturating_mul(slowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_is_too_slow_and_a_pause_is_not() {
        let mut pace = Pace::default();
        for second in 0..20 {
            pace.waits(second * 1_000);
            assert_eq!(pace.is_too_slow((second + 1) * 1_000, 240), second >= 10, "{second}");
            pace.came(1, (second + 1) * 1_000);
        }
        let mut pace = Pace::default();
        pace.came(1 << 20, 0);
        pace.waits(0);
        assert!(!pace.is_too_slow(60_000, 240), "the average is what counts");
        let mut pace = Pace::default();
        pace.waits(0);
        pace.came(1, 100);
        assert!(!pace.is_too_slow(1_000_000, 240), "nobody wanted more meanwhile");
    }
}
