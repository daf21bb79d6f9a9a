//! Waiting and measuring: every wait ends at a deadline, and every upper bound on wall time is scaled by one factor.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// How often a condition is tested while a test waits for it.
const POLL: Duration = Duration::from_millis(3);

/// `SLUICEGATE_PATIENCE`: how many times longer than usual anything may take. 1 unless it is set; more on a machine that
/// is slow or busy.
static FACTOR: LazyLock<f64> = LazyLock::new(|| {
    let text = std::env::var("SLUICEGATE_PATIENCE").unwrap_or_else(|_| "1".into());
    text.parse().unwrap_or_else(|_| panic!("SLUICEGATE_PATIENCE is not a number: {text}"))
});

/// An upper bound on wall time, scaled by the factor. It is in whole seconds because a busy machine may leave a thread
/// without a processor for a large part of one: no test has a tighter bound. Lower bounds are exact and not scaled.
pub fn patience(seconds: u64) -> Duration {
    assert!(seconds > 0, "no bound on wall time is tighter than a second");
    Duration::from_secs(seconds).mul_f64(*FACTOR)
}

/// The bound on everything that has no bound of its own.
pub fn deadline() -> Duration {
    patience(10)
}

/// Polls until `look` returns a value. Panics at the deadline.
#[track_caller]
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(deadline(), look).unwrap_or_else(|| panic!("not within {:?}: {what}", deadline()))
}

/// Polls until `look` returns a value, but no longer than `limit`.
pub fn within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if begun.elapsed() > limit {
            return None;
        }
        // What is looked at is mostly another process, which tells nobody when it changes.
        std::thread::park_timeout(POLL);
    }
}

/// Polls until `look` is true without blocking other tasks of the same thread. Panics at the deadline.
pub async fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let begun = Instant::now();
    let mut pace = tokio::time::interval(POLL);
    while !look() {
        assert!(begun.elapsed() < deadline(), "not within {:?}: {what}", deadline());
        pace.tick().await;
    }
}

/// Sleeps. Only for tests of time itself, such as a client that waits as long as Retry-After says; wait for a condition
/// with [`until`] otherwise.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// The result of `work` and how long it took.
pub fn measure<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let result = work();
    (result, begun.elapsed())
}

/// Measures the time since it was started.
pub struct Stopwatch(Instant);

impl Stopwatch {
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
