//! The clock of a server, as far as this gateway can know it.
//!
//! Shared counters use the clock of the server that holds them, so that gateways with different clocks agree. The server
//! reads the time in a reply between the sending of the call and the arrival of the reply, which bounds the difference of
//! the two clocks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use sluicegate_limiter::{Span, Time};

/// The age up to which a bound is used: clocks drift by some 0.1 ms in ten seconds.
const MAX_AGE: Span = Span::from_secs(10);
/// The drift in nanoseconds that does not count as setting a clock back: 100 ppm in 100 s.
const DRIFT: i64 = 10_000_000;

/// The clock of one server, as all workers have observed it.
#[derive(Debug, Default)]
pub(super) struct ServerClock {
    bounds: Mutex<Bounds>,
    /// The latest time of a reply about counters, in nanoseconds.
    latest: AtomicU64,
}

/// The smallest and the largest number of nanoseconds by which the server's clock may be ahead of ours.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    least: i64,
    most: i64,
    since: Time,
    known: bool,
}

impl ServerClock {
    /// Records that the server's clock showed `server`, in whole microseconds, between `sent` and `received`. Returns
    /// whether it was set back since the last observation, by more than clocks drift.
    pub(super) fn observe(&self, server: Time, sent: Time, received: Time) -> bool {
        let (least, most) = (ahead(server, received), ahead(server.plus(Span::MICROSECOND), sent));
        let mut bounds = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        let (tighter_least, tighter_most) = (bounds.least.max(least), bounds.most.min(most));
        let set_back = bounds.known && most.saturating_add(DRIFT) < bounds.least;
        if set_back {
            self.latest.store(0, Ordering::Relaxed);
        }
        let old = !bounds.known || received.since(bounds.since) > MAX_AGE;
        if old || tighter_least > tighter_most {
            *bounds = Bounds { least, most, since: received, known: true }; // or the server's clock was set
        } else {
            bounds.least = tighter_least;
            bounds.most = tighter_most;
        }
        set_back
    }

    /// Whether a reply with the time `now` is the latest that any worker has read. Workers read replies in any order.
    pub(super) fn is_latest(&self, now: Time) -> bool {
        self.latest.fetch_max(now.as_nanos(), Ordering::Relaxed) <= now.as_nanos()
    }

    /// The earliest time that the server's clock can show when ours shows `now`; `now` if it was never observed.
    pub(super) fn earliest(&self, now: Time) -> Time {
        shifted(now, self.bounds().least)
    }

    /// The latest time that the server's clock can show when ours shows `now`; `now` if it was never observed.
    pub(super) fn latest(&self, now: Time) -> Time {
        shifted(now, self.bounds().most)
    }

    fn bounds(&self) -> Bounds {
        *self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ahead(server: Time, ours: Time) -> i64 {
    let difference = i128::from(server.as_nanos()) - i128::from(ours.as_nanos());
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}

fn shifted(now: Time, by: i64) -> Time {
    Time::from_nanos(now.as_nanos().saturating_add_signed(by))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Time {
        Time::from_nanos(1_000_000_000_000 + n * 1_000_000)
    }

    /// The end of the microsecond that a clock with whole microseconds shows.
    const fn end(n: u64) -> Time {
        ms(n).plus(Span::MICROSECOND)
    }

    #[test]
    fn bounds_close_in_and_follow_a_clock_that_was_set() {
        let clock = ServerClock::default();
        assert_eq!(clock.earliest(ms(5)), ms(5), "never heard: our own");
        clock.observe(ms(1_010), ms(10), ms(14)); // 996 to 1,000 ahead
        assert_eq!((clock.earliest(ms(20)), clock.latest(ms(20))), (ms(1_016), end(1_020)));
        clock.observe(ms(1_029), ms(30), ms(31)); // 998 to 999
        clock.observe(ms(1_045), ms(41), ms(50)); // 995 to 1,004: tells nothing new
        assert_eq!((clock.earliest(ms(60)), clock.latest(ms(60))), (ms(1_058), end(1_059)));
        assert!(!clock.observe(ms(1_059), ms(60), ms(61)), "it went on");
        assert!(clock.observe(ms(70), ms(70), ms(71)), "set back by a second");
        assert_eq!((clock.earliest(ms(80)), clock.latest(ms(80))), (ms(79), end(80)));
    }

    #[test]
    fn an_older_reply_is_not_the_latest() {
        let clock = ServerClock::default();
        assert!(
            clock.is_latest(ms(5))
                && clock.is_latest(ms(5))
                && !clock.is_latest(ms(4))
                && clock.is_latest(ms(6))
        );
        clock.observe(ms(6), ms(6), ms(6));
        clock.observe(ms(106), ms(1_006), ms(1_006)); // set back
        assert!(clock.is_latest(ms(1)));
    }

    #[test]
    fn old_bounds_are_forgotten() {
        let clock = ServerClock::default();
        clock.observe(ms(0), ms(0), ms(0));
        clock.observe(ms(20_001), ms(20_000), ms(20_002));
        assert_eq!((clock.earliest(ms(20_002)), clock.latest(ms(20_002))), (ms(20_001), end(20_003)));
    }
}
