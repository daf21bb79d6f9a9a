//! When an issuer is asked for its keys.

use std::time::Duration;

/// After a failure, and twice as long after each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest time between two tries.
const LAST_RETRY: Duration = Duration::from_secs(30);
/// The time between two fetches for tokens with unknown keys: anybody can send those.
const COOLDOWN: Duration = Duration::from_secs(30);

/// When an issuer is asked for its keys. Times are the process' uptime.
pub(super) struct Schedule {
    refresh: Duration,
    failures: u32,
    due: Duration,
    /// From when on an unknown key leads to a fetch.
    open: Duration,
}

impl Schedule {
    /// The first fetch is due at once.
    pub(super) fn new(refresh: Duration) -> Self {
        Self { refresh, failures: 0, due: Duration::ZERO, open: Duration::ZERO }
    }

    /// How long it is until the next fetch that nobody asks for.
    pub(super) fn wait(&self, now: Duration) -> Duration {
        self.due.saturating_sub(now)
    }

    /// A token named an unknown key: how long it is until the keys are fetched for it. What is asked for in the
    /// meantime is answered by the same fetch.
    pub(super) fn asked(&mut self, now: Duration) -> Duration {
        let at = self.open.max(now);
        self.open = at + COOLDOWN;
        at.min(self.due.max(now)) - now
    }

    /// The issuer has answered, or has not.
    pub(super) fn fetched(&mut self, good: bool, now: Duration) {
        self.failures = if good { 0 } else { self.failures.saturating_add(1) };
        let retry = FIRST_RETRY * 2_u32.pow(self.failures.clamp(1, 6) - 1);
        self.due = now + if good { self.refresh } else { retry.min(LAST_RETRY).min(self.refresh) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn keys_are_fetched_at_once_and_then_every_so_often() {
        let mut schedule = Schedule::new(secs(600));
        assert_eq!(schedule.wait(secs(3)), secs(0));
        schedule.fetched(true, secs(5));
        assert_eq!(schedule.wait(secs(5)), secs(600));
        assert_eq!(schedule.wait(secs(700)), secs(0));
    }

    #[test]
    fn failures_are_tried_again_ever_more_slowly_but_never_slower_than_usual() {
        let mut schedule = Schedule::new(secs(600));
        let waits = [1, 2, 4, 8, 16, 30, 30];
        for wait in waits {
            schedule.fetched(false, secs(9));
            assert_eq!(schedule.wait(secs(9)), secs(wait));
        }
        schedule.fetched(true, secs(9));
        schedule.fetched(false, secs(9));
        assert_eq!(schedule.wait(secs(9)), secs(1));
        let mut often = Schedule::new(secs(3));
        (0..9).for_each(|_| often.fetched(false, secs(0)));
        assert_eq!(often.wait(secs(0)), secs(3));
    }

    #[test]
    fn unknown_keys_lead_to_one_fetch_in_30_seconds() {
        let mut schedule = Schedule::new(secs(600));
        schedule.fetched(true, secs(0));
        assert_eq!(schedule.asked(secs(10)), secs(0), "the first at once");
        assert_eq!(schedule.asked(secs(15)), secs(25), "the next when the time is over");
        assert_eq!(schedule.asked(secs(100)), secs(0));
    }
}
