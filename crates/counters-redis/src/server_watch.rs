//! What the threads of a gateway know together of one server: whether it is silent, who looks at it next, and who tries
//! next to connect while it is away.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use sluicegate_limiter::{Span, Time};
use tokio::sync::Notify;

use super::connection::random;
use crate::Clock;

/// The pause before the first attempt after a loss. It doubles with every failure, up to a bound.
const FIRST: Span = Span::from_millis(20);
/// The bound. One worker tries for all, so that this costs a server little; and gateways find one that comes back at about
/// the same time, before any of them asks it (see `OTHERS_REPORT`).
const LONGEST: Span = Span::from_millis(250);
/// The bound where an attempt costs the server more and only a person can help: it answers and refuses.
const LONGEST_REFUSED: Span = Span::from_secs(5);
/// How long an attempt may take before another worker tries.
const ATTEMPT: Span = Span::from_millis(1_500);

/// What is known of one server.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When somebody looks next, in nanoseconds, for each way to look.
    looks: [AtomicU64; 3],
    /// Whether calls are under way and none is answered.
    silent: AtomicBool,
    /// Notified when that begins, so that another worker looks over its own connection.
    pub(super) doubted: Notify,
    attempts: Mutex<Attempts>,
    /// Notified when a worker reaches the server again.
    reached: Notify,
}

/// How the server is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Whether it answers.
    Answers,
    /// Whether it can be written to.
    TakesWrites,
    /// Whether it answers this worker, while it is silent to another.
    AnswersMe,
}

#[derive(Debug, Default)]
struct Attempts {
    /// Whether the last attempt to connect failed.
    away: bool,
    failures: u32,
    /// When the next may begin.
    due: Time,
}

/// An attempt to connect.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The server is not known to be away: every worker makes its own.
    Own,
    /// The server is away, and this worker tries for all.
    ForAll,
}

impl Watch {
    /// Whether this worker is the one to look at the server now. The next look is then due after `every`.
    pub(super) fn claims(&self, look: Look, now: Time, every: Duration) -> bool {
        let due = &self.looks[look as usize];
        let (at, now) = (due.load(Ordering::Relaxed), now.as_nanos());
        let next = now.saturating_add(u64::try_from(every.as_nanos()).unwrap_or(u64::MAX));
        now >= at && due.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether calls are under way and none is answered. Further requests do not wait then.
    pub(super) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// Notes that calls are not answered.
    pub(super) fn falls_silent(&self) {
        self.silent.store(true, Ordering::Relaxed);
        self.doubted.notify_waiters();
    }

    /// Notes that the server has answered something.
    pub(super) fn heard(&self) {
        if self.is_silent() {
            tracing::debug!("the store answers again");
            self.silent.store(false, Ordering::Relaxed);
        }
    }

    /// Waits until this worker may try to connect. While the server is away one worker tries at a time, and all others
    /// as soon as it has succeeded.
    pub(super) async fn turn(&self, clock: &Clock) -> Attempt {
        loop {
            let mut reached = pin!(self.reached.notified());
            reached.as_mut().enable();
            match self.claim(clock.now()) {
                Ok(attempt) => return attempt,
                Err(due) => _ = tokio::time::timeout_at(clock.instant(due), reached).await,
            }
        }
    }

    /// The attempt that may be made now, or when to ask again.
    fn claim(&self, now: Time) -> Result<Attempt, Time> {
        let mut attempts = self.attempts();
        if !attempts.away {
            return Ok(Attempt::Own);
        }
        if now < attempts.due {
            return Err(attempts.due);
        }
        attempts.due = now.plus(ATTEMPT);
        Ok(Attempt::ForAll)
    }

    /// Notes that an attempt has failed.
    pub(super) fn missed(&self, attempt: &Attempt, now: Time, error: &RedisError) {
        let mut attempts = self.attempts();
        // Of the attempts that all workers make when the server goes, one counts.
        if !attempts.away || *attempt == Attempt::ForAll {
            attempts.away = true;
            attempts.failures = attempts.failures.saturating_add(1);
            attempts.due = now.plus(pause(attempts.failures, refuses(error)));
        }
    }

    /// Notes that a connection was made.
    pub(super) fn reached(&self) {
        *self.attempts() = Attempts::default();
        self.heard();
        self.reached.notify_waiters();
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a server answers and will not serve until somebody changes a setting.
fn refuses(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AuthenticationFailed
            | ErrorKind::Server(ServerErrorKind::NoPerm)
            | ErrorKind::InvalidClientConfig
    )
}

/// The pause after so many failures in a row: half of it and a random part of the other half, so that gateways do not
/// come in step. `refused`: see [`LONGEST_REFUSED`].
pub(super) fn pause(failures: u32, refused: bool) -> Span {
    let longest = if refused { LONGEST_REFUSED } else { LONGEST };
    let doubled = FIRST.as_nanos().saturating_mul(1 << failures.saturating_sub(1).min(32));
    let half = doubled.min(longest.as_nanos()) / 2;
    Span::from_nanos(half + u64::from_le_bytes(random()) % (half + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Time {
        Time::from_nanos(n * 1_000_000)
    }

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
    fn one_worker_tries_while_the_server_is_away() {
        let watch = Watch::default();
        let all: Vec<_> = (0..4).map(|_| watch.claim(ms(0)).expect("nobody has failed yet")).collect();
        assert!(all.iter().all(|attempt| *attempt == Attempt::Own));
        let error = RedisError::from((ErrorKind::Io, "refused"));
        all.iter().for_each(|attempt| watch.missed(attempt, ms(1), &error));
        let due = watch.claim(ms(1)).expect_err("it has just failed");
        assert!(due <= ms(21), "four workers that find out together are one failure");
        assert_eq!(watch.claim(due), Ok(Attempt::ForAll));
        assert!(watch.claim(due).is_err(), "the others wait for the outcome");
        watch.missed(&Attempt::ForAll, due, &error);
        assert!(watch.claim(due).expect_err("it has failed again") > due);
        watch.reached();
        assert_eq!(watch.claim(due), Ok(Attempt::Own));
    }

    #[test]
    fn one_worker_looks_at_a_time() {
        let (watch, every) = (Watch::default(), Duration::from_millis(200));
        assert!(watch.claims(Look::Answers, ms(0), every) && !watch.claims(Look::Answers, ms(199), every));
        assert!(watch.claims(Look::TakesWrites, ms(0), every));
        assert!(watch.claims(Look::Answers, ms(200), every));
    }
}
