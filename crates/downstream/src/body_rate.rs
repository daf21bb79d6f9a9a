//! The minimum rates of request bodies and of responses: a client that keeps a request open with a few bytes now and then times
//! out.

/// Milliseconds of waiting for the client after which its rate is evaluated.
const MEASURED_WAIT: u64 = 10_000;

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
    pub(crate) fn add(&mut self, bytes: usize, now: u64) {
        self.received += bytes as u64;
        self.waited += self.since.take().map_or(0, |since| now.saturating_sub(since));
    }

    /// Begins a wait for the client.
    pub(crate) fn begin_wait(&mut self, now: u64) {
        self.since.get_or_insert(now);
    }

    /// Whether the average rate is below `slowest` bytes per second of waiting.
    pub(crate) fn is_too_slow(&self, now: u64, slowest: u64) -> bool {
        let waited = self.waited + self.since.map_or(0, |since| now.saturating_sub(since));
        waited > MEASURED_WAIT && self.received * 1_000 < waited.saturating_mul(slowest)
    }
}

/// The rate at which a client reads a response. It is evaluated for each ten seconds of waiting, so that a fast start does not
/// compensate a slow rest.
#[derive(Debug, Default)]
pub struct SendRate {
    sent: u64,
    /// Milliseconds of waiting for the client to take bytes.
    waited: u64,
    since: Option<u64>,
}

impl SendRate {
    /// Counts sent bytes; ends a wait.
    pub fn add(&mut self, bytes: usize, now: u64) {
        self.sent += bytes as u64;
        // The write timeout applies to a single long pause.
        self.waited += self.since.take().map_or(0, |since| now.saturating_sub(since).min(MEASURED_WAIT));
    }

    /// Begins a wait for the client. Returns whether the client was slower than `slowest` bytes per second.
    pub fn begin_wait(&mut self, now: u64, slowest: u64) -> bool {
        self.since.get_or_insert(now);
        if self.waited <= MEASURED_WAIT {
            return false;
        }
        let (sent, waited) = (std::mem::take(&mut self.sent), std::mem::take(&mut self.waited));
        sent.saturating_mul(1_000) < waited.saturating_mul(slowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many seconds a client is too slow that takes so many bytes each second; `None` if it is not within
    /// two minutes.
    fn too_slow_after(rate: &mut SendRate, bytes: usize, slowest: u64) -> Option<u64> {
        (0..120).find(|second| {
            let is_too_slow = rate.begin_wait(second * 1_000, slowest);
            rate.add(bytes, (second + 1) * 1_000);
            is_too_slow
        })
    }

    #[test]
    fn a_slow_reader_is_too_slow_and_a_pause_is_not() {
        let slow = || too_slow_after(&mut SendRate::default(), 100, 240);
        assert_eq!(slow(), Some(11));
        assert_eq!(too_slow_after(&mut SendRate::default(), 240, 240), None);
        assert_eq!(too_slow_after(&mut SendRate::default(), 1, 0), None, "no bound");
        let mut rate = SendRate::default();
        rate.add(1 << 30, 0);
        assert_eq!(too_slow_after(&mut rate, 100, 240), Some(22), "what was sent before counts once");
        let mut rate = SendRate::default();
        for at in 0..10 {
            assert!(!rate.begin_wait(at * 60_000, 240), "long pauses, and some sent after each");
            rate.add(4_096, (at + 1) * 60_000);
        }
        let mut rate = SendRate::default();
        for at in 0..1_000 {
            rate.add(1, at * 1_000);
            assert!(
                !rate.begin_wait(at * 1_000, 240) && !rate.begin_wait(at * 1_000, 240),
                "nothing waits between"
            );
            rate.add(1, at * 1_000);
        }
    }

    #[test]
    fn a_trickle_is_too_slow_and_a_pause_is_not() {
        let mut rate = ReceiveRate::default();
        for second in 0..20 {
            rate.begin_wait(second * 1_000);
            assert_eq!(rate.is_too_slow((second + 1) * 1_000, 240), second >= 10, "{second}");
            rate.add(1, (second + 1) * 1_000);
        }
        let mut rate = ReceiveRate::default();
        rate.add(1 << 20, 0);
        rate.begin_wait(0);
        assert!(!rate.is_too_slow(60_000, 240), "the average is what counts");
        let mut rate = ReceiveRate::default();
        rate.begin_wait(0);
        rate.add(1, 100);
        assert!(!rate.is_too_slow(1_000_000, 240), "nobody wanted more meanwhile");
    }
}
