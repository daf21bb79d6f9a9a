//! What the workers share about one server: whether it is silent, when it is checked next, and which worker tries to
//! reconnect.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use sluicegate_limiter::{Span, Time};
use tokio::sync::Notify;

use super::random::random;
use crate::Clock;

/// The pause before the first attempt after a loss. It doubles with every failure, up to a bound.
const FIRST_PAUSE: Span = Span::from_millis(20);
/// The longest pause. One worker tries for all, so that the cost for the server is small. All gateways then reconnect to a
/// server that is back within this time, before any of them calls it (see `REPORTS_ONLY`).
const MAX_PAUSE: Span = Span::from_millis(250);
/// The longest pause if the server refuses the connection: an attempt costs it more, and an operator must act.
const MAX_PAUSE_REFUSED: Span = Span::from_secs(5);

/// What is known of one server.
#[derive(Debug, Default)]
pub(super) struct ServerWatch {
    /// The time of the next check of each kind, in nanoseconds.
    checks: [AtomicU64; 3],
    /// Whether calls are in flight and none is answered.
    silent: AtomicBool,
    /// Notified when that begins, so that another worker checks its own connection.
    pub(super) became_silent: Notify,
    attempts: Mutex<Attempts>,
    /// Notified when a worker reaches the server again.
    reached: Notify,
}

/// A check of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Whether it answers.
    Ping,
    /// Whether it can be written to.
    Write,
    /// Whether it answers this worker, while it is silent to another.
    OwnPing,
}

#[derive(Debug, Default)]
struct Attempts {
    /// Whether the last attempt to connect failed.
    down: bool,
    failures: u32,
    /// When the next may begin.
    due: Time,
}

/// An attempt to connect.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The server is not known to be down: every worker makes its own attempt.
    Own,
    /// The server is down, and this worker tries for all.
    ForAll,
}

impl ServerWatch {
    /// Whether this worker makes the check now. The next one is then due after `every`.
    pub(super) fn claim_check(&self, check: Check, now: Time, every: Duration) -> bool {
        let due = &self.checks[check as usize];
        let (at, now) = (due.load(Ordering::Relaxed), now.as_nanos());
        let next = now.saturating_add(u64::try_from(every.as_nanos()).unwrap_or(u64::MAX));
        now >= at && due.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether calls are in flight and none is answered. Further requests do not wait then.
    pub(super) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// Records that calls are not answered.
    pub(super) fn mark_silent(&self) {
        self.silent.store(true, Ordering::Relaxed);
        self.became_silent.notify_waiters();
    }

    /// Records that the server has answered.
    pub(super) fn note_reply(&self) {
        if self.is_silent() {
            tracing::debug!("the store answers again");
            self.silent.store(false, Ordering::Relaxed);
        }
    }

    /// Waits until this worker may try to connect. While the server is down one worker tries at a time, and all others
    /// connect as soon as it has succeeded. An attempt ends within `takes`, or another worker tries.
    pub(super) async fn next_attempt(&self, clock: &Clock, takes: Span) -> Attempt {
        loop {
            let mut reached = pin!(self.reached.notified());
            reached.as_mut().enable();
            match self.claim_attempt(clock.now(), takes) {
                Ok(attempt) => return attempt,
                Err(due) => _ = tokio::time::timeout_at(clock.instant(due), reached).await,
            }
        }
    }

    /// The attempt that may be made now, or the time of the next.
    fn claim_attempt(&self, now: Time, takes: Span) -> Result<Attempt, Time> {
        let mut attempts = self.attempts();
        if !attempts.down {
            return Ok(Attempt::Own);
        }
        if now < attempts.due {
            return Err(attempts.due);
        }
        attempts.due = now.plus(takes);
        Ok(Attempt::ForAll)
    }

    /// Records a failed attempt.
    pub(super) fn attempt_failed(&self, attempt: &Attempt, now: Time, error: &RedisError) {
        let mut attempts = self.attempts();
        // When the server goes down all workers make an attempt, of which one counts.
        if !attempts.down || *attempt == Attempt::ForAll {
            attempts.down = true;
            attempts.failures = attempts.failures.saturating_add(1);
            attempts.due = now.plus(pause(attempts.failures, refuses(error)));
        }
    }

    /// Records that a connection was opened.
    pub(super) fn reached(&self) {
        *self.attempts() = Attempts::default();
        self.note_reply();
        self.reached.notify_waiters();
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the server refuses the connection until somebody changes a setting.
fn refuses(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AuthenticationFailed
            | ErrorKind::Server(ServerErrorKind::NoPerm)
            | ErrorKind::InvalidClientConfig
    )
}

/// The pause after a number of consecutive failures. Half of it is random, so that gateways do not retry in step.
/// `refused`: see [`MAX_PAUSE_REFUSED`].
pub(super) fn pause(failures: u32, refused: bool) -> Span {
    let longest = if refused { MAX_PAUSE_REFUSED } else { MAX_PAUSE };
    let doubled = FIRST_PAUSE.as_nanos().saturating_mul(1 << failures.saturating_sub(1).min(32));
    let half = doubled.min(longest.as_nanos()) / 2;
    Span::from_nanos(half + u64::from_le_bytes(random()) % (half + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Time {
        Time::from_nanos(n * 1_000_000)
    }

    const TAKES: Span = Span::from_millis(1_500);

    #[test]
    fn pauses_double_up_to_a_bound() {
        for (failures, refused, most) in
            [(1, false, 20), (2, false, 40), (4, false, 160), (9, false, 250), (u32::MAX, true, 5_000)]
        {
            let pause = pause(failures, refused).as_nanos() / 1_000_000;
            assert!((most / 2..=most).contains(&pause), "{failures}: {pause} ms");
        }
    }

    #[test]
    fn one_worker_connects_while_the_server_is_down() {
        let watch = ServerWatch::default();
        let all: Vec<_> =
            (0..4).map(|_| watch.claim_attempt(ms(0), TAKES).expect("nobody has failed yet")).collect();
        assert!(all.iter().all(|attempt| *attempt == Attempt::Own));
        let error = RedisError::from((ErrorKind::Io, "refused"));
        all.iter().for_each(|attempt| watch.attempt_failed(attempt, ms(1), &error));
        let due = watch.claim_attempt(ms(1), TAKES).expect_err("it has just failed");
        assert!(due <= ms(21), "four workers that find out together are one failure");
        assert_eq!(watch.claim_attempt(due, TAKES), Ok(Attempt::ForAll));
        assert!(watch.claim_attempt(due, TAKES).is_err(), "the others wait for the outcome");
        watch.attempt_failed(&Attempt::ForAll, due, &error);
        assert!(watch.claim_attempt(due, TAKES).expect_err("it has failed again") > due);
        watch.reached();
        assert_eq!(watch.claim_attempt(due, TAKES), Ok(Attempt::Own));
    }

    #[test]
    fn one_worker_checks_at_a_time() {
        let (watch, every) = (ServerWatch::default(), Duration::from_millis(200));
        assert!(
            watch.claim_check(Check::Ping, ms(0), every) && !watch.claim_check(Check::Ping, ms(199), every)
        );
        assert!(watch.claim_check(Check::Write, ms(0), every));
        assert!(watch.claim_check(Check::Ping, ms(200), every));
    }
}
