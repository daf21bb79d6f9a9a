//! What the server's clock shows, as far as this gateway can know.
//!
//! Shared counters run on the clock of the server that holds them, so that gateways whose clocks differ agree. A
//! reply names the server's time between the sending of the call and its arrival, which bounds how far the two
//! clocks are apart.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use sluicegate_limiter::{Span, Time};

/// A bound holds for so long: clocks drift by some 0.1 ms in ten seconds.
const HOLDS: Span = Span::from_secs(10);
/// Nanoseconds by which a clock may fall behind unnoticed: as much as one that is wrong by 100 ppm in 100 s.
const DRIFT: i64 = 10_000_000;

/// The clock of one server, as the gateway's threads have seen it.
#[derive(Debug, Default)]
pub(super) struct ServerClock {
    bounds: Mutex<Bounds>,
    /// The latest time of an answer about counters, in nanoseconds.
    latest: AtomicU64,
}

/// Nanoseconds that the server's clock is ahead of ours: at least and at most.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    least: i64,
    most: i64,
    since: Time,
    known: bool,
}

impl ServerClock {
    /// Notes that the server's clock showed `server`, in whole microseconds, at some instant between `sent` and
    /// `received`. Whether it was set back since it was seen last: by more than clocks drift.
    pub(super) fn seen(&self, server: Time, sent: Time, received: Time) -> bool {
        let (least, most) = (ahead(server, received), ahead(server.plus(Span::MICROSECOND), sent));
        let mut bounds = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        let (tighter_least, tighter_most) = (bounds.least.max(least), bounds.most.min(most));
        let set_back = bounds.known && most.saturating_add(DRIFT) < bounds.least;
        if set_back {
            self.latest.store(0, Ordering::Relaxed);
        }
        let old = !bounds.known || received.since(bounds.since) > HOLDS;
        if old || tighter_least > tighter_most {
            *bounds = Bounds { least, most, since: received, known: true }; // or the server's clock was set
        } else {
            bounds.least = tighter_least;
            bounds.most = tighter_most;
        }
        set_back
    }

    /// Whether an answer that was given at `now` is the latest that any thread has. Threads read theirs in any order.
    pub(super) fn is_latest(&self, now: Time) -> bool {
        self.latest.fetch_max(now.as_nanos(), Ordering::Relaxed) <= now.as_nanos()
    }

    /// What the server's clock shows at least when ours shows `now`. A server that was never heard is taken to have
    /// our clock.
    pub(super) fn at_least(&self, now: Time) -> Time {
        shifted(now, self.bounds().least)
    }

    /// What the server's clock shows at most when ours shows `now`.
    pub(super) fn at_most(&self, now: Time) -> Time {
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

    /// The last microsecond of what a clock that shows whole ones may mean.
    const fn end(n: u64) -> Time {
        ms(n).plus(Span::MICROSECOND)
    }

    #[test]
    fn bounds_close_in_and_follow_a_clock_that_was_set() {
        let clock = ServerClock::default();
        assert_eq!(clock.at_least(ms(5)), ms(5), "never heard: our own");
        clock.seen(ms(1_010), ms(10), ms(14)); // 996 to 1,000 ahead
        assert_eq!((clock.at_least(ms(20)), clock.at_most(ms(20))), (ms(1_016), end(1_020)));
        clock.seen(ms(1_029), ms(30), ms(31)); // 998 to 999
        clock.seen(ms(1_045), ms(41), ms(50)); // 995 to 1,004: tells nothing new
        assert_eq!((clock.at_least(ms(60)), clock.at_most(ms(60))), (ms(1_058), end(1_059)));
        assert!(!clock.seen(ms(1_059), ms(60), ms(61)), "it went on");
        assert!(clock.seen(ms(70), ms(70), ms(71)), "set back by a second");
        assert_eq!((clock.at_least(ms(80)), clock.at_most(ms(80))), (ms(79), end(80)));
    }

    #[test]
    fn answers_are_told_apart_from_older_ones() {
        let clock = ServerClock::default();
        assert!(
            clock.is_latest(ms(5))
                && clock.is_latest(ms(5))
                && !clock.is_latest(ms(4))
                && clock.is_latest(ms(6))
        );
        clock.seen(ms(6), ms(6), ms(6));
        clock.seen(ms(106), ms(1_006), ms(1_006)); // set back
        assert!(clock.is_latest(ms(1)));
    }

    #[test]
    fn old_bounds_are_forgotten() {
        let clock = ServerClock::default();
        clock.seen(ms(0), ms(0), ms(0));
        clock.seen(ms(20_001), ms(20_000), ms(20_002));
        assert_eq!((clock.at_least(ms(20_002)), clock.at_most(ms(20_002))), (ms(20_001), end(20_003)));
    }
}
