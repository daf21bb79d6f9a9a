//! The minimum rates of request bodies and of responses: a client that keeps a request open with a byte now and then times
//! out.

/// Milliseconds of waiting for the client before its rate is judged.
const PATIENCE: u64 = 10_000;

/// The rate of a request body.
#[derive(Debug, Default)]
pub(crate) struct ReceiveRate {
    received: u64,
    /// Milliseconds of waiting for the client. Time in which nothing polled the body does not count.
    waited: u64,
    since: Option<u64>,
}

impl ReceiveRate {
    /// Counts received bytes; ends a wait.
    pub(crate) fn came(&mut self, bytes: usize, now: u64) {
        self.received += bytes as u64;
        self.waited += self.since.take().map_or(0, |since| now.saturating_sub(since));
    }

    /// Begins a wait for the client.
    pub(crate) fn waits(&mut self, now: u64) {
        self.since.get_or_insert(now);
    }

    /// Whether the average rate is below `slowest` bytes per second of waiting.
    pub(crate) fn is_too_slow(&self, now: u64, slowest: u64) -> bool {
        let waited = self.waited + self.since.map_or(0, |since| now.saturating_sub(since));
        waited > PATIENCE && self.received * 1_000 < waited.saturating_mul(slowest)
    }
}

/// The rate at which a client takes a response. It is judged per ten seconds of waiting, so that a fast start does not excuse
/// a slow rest.
#[derive(Debug, Default)]
pub(crate) struct SendRate {
    taken: u64,
    /// Milliseconds of waiting for the client to take bytes.
    waited: u64,
    since: Option<u64>,
}

impl SendRate {
    /// Counts sent bytes; ends a wait.
    pub(crate) fn took(&mut self, bytes: usize, now: u64) {
        self.taken += bytes as u64;
        // The write timeout applies to a single long pause.
        self.waited += self.since.take().map_or(0, |since| now.saturating_sub(since).min(PATIENCE));
    }

    /// Begins a wait until the client has taken bytes. Whether it was slower than `slowest` bytes per second.
    pub(crate) fn waits(&mut self, now: u64, slowest: u64) -> bool {
        self.since.get_or_insert(now);
        if self.waited <= PATIENCE {
            return false;
        }
        let (taken, waited) = (std::mem::take(&mut self.taken), std::mem::take(&mut self.waited));
        taken.saturating_mul(1_000) < waited.saturating_mul(slowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many seconds a client is too slow that takes so many bytes each second; `None` if it is not within
    /// two minutes.
    fn too_slow_after(pace: &mut SendRate, bytes: usize, slowest: u64) -> Option<u64> {
        (0..120).find(|second| {
            let is_too_slow = pace.waits(second * 1_000, slowest);
            pace.took(bytes, (second + 1) * 1_000);
            is_too_slow
        })
    }

    #[test]
    fn a_slow_reader_is_too_slow_and_a_pause_is_not() {
        let slow = || too_slow_after(&mut SendRate::default(), 100, 240);
        assert_eq!(slow(), Some(11));
        assert_eq!(too_slow_after(&mut SendRate::default(), 240, 240), None);
        assert_eq!(too_slow_after(&mut SendRate::default(), 1, 0), None, "no bound");
        let mut pace = SendRate::default();
        pace.took(1 << 30, 0);
        assert_eq!(too_slow_after(&mut pace, 100, 240), Some(22), "what was taken before counts once");
        let mut pace = SendRate::default();
        for at in 0..10 {
            assert!(!pace.waits(at * 60_000, 240), "long pauses, and some taken after each");
            pace.took(4_096, (at + 1) * 60_000);
        }
        let mut pace = SendRate::default();
        for at in 0..1_000 {
            pace.took(1, at * 1_000);
            assert!(!pace.waits(at * 1_000, 240) && !pace.waits(at * 1_000, 240), "nothing waits between");
            pace.took(1, at * 1_000);
        }
    }

    #[test]
    fn a_trickle_is_too_slow_and_a_pause_is_not() {
        let mut pace = ReceiveRate::default();
        for second in 0..20 {
            pace.waits(second * 1_000);
            assert_eq!(pace.is_too_slow((second + 1) * 1_000, 240), second >= 10, "{second}");
            pace.came(1, (second + 1) * 1_000);
        }
        let mut pace = ReceiveRate::default();
        pace.came(1 << 20, 0);
        pace.waits(0);
        assert!(!pace.is_too_slow(60_000, 240), "the average is what counts");
        let mut pace = ReceiveRate::default();
        pace.waits(0);
        pace.came(1, 100);
        assert!(!pace.is_too_slow(1_000_000, 240), "nobody wanted more meanwhile");
    }
}
