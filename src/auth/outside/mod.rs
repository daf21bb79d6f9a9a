//! Services outside of the gateway that say who asks: what they have in common.
//!
//! No request waits for one longer than its `timeout`. After some failures in a row nobody is asked for a moment, so that
//! a service that is away delays few requests.

mod flights;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use sluicegate_limiter::{Span, Time};

pub(super) use self::flights::Flights;
use crate::clock::Clock;
use crate::http_client::{Bounds, Client};
pub(super) use crate::http_client::{Call, Reply};
use crate::named_enum::named_enum;
use sluicegate_config::ServiceConfig;

/// Failures in a row after which nobody is asked for a moment.
const PATIENCE: u32 = 5;
/// The largest answer in bytes.
const MAX_ANSWER: usize = 64 << 10;
/// How long that moment is.
const PAUSE: Span = Span::SECOND;

named_enum! {
    /// What became of a question to a service outside.
    Asking {
        /// The service answered.
        Answered = "answered",
        /// It gave no usable answer in time.
        Away = "away",
        /// It was not asked, because it failed several times in a row or because too many calls were in flight.
        Skipped = "skipped",
    }
}

/// A service that is asked about requests.
pub(super) struct Service {
    config: ServiceConfig,
    client: Client,
    /// Failures in a row.
    failures: AtomicU32,
    /// From when on it is asked again, in nanoseconds.
    resumes: AtomicU64,
    /// Why it is away.
    trouble: Mutex<Option<String>>,
    /// How often each happened, in the order of [`Asking::ALL`].
    counts: [AtomicU64; Asking::ALL.len()],
}

impl Service {
    /// A service that is not known to be away.
    pub(super) fn new(config: &ServiceConfig) -> Self {
        let bounds = Bounds { timeout: config.timeout, largest: MAX_ANSWER };
        Self {
            config: config.clone(),
            client: Client::new(&config.url, config.ca.as_ref(), bounds),
            failures: AtomicU32::new(0),
            resumes: AtomicU64::new(0),
            trouble: Mutex::default(),
            counts: Default::default(),
        }
    }

    /// What is configured.
    pub(super) const fn config(&self) -> &ServiceConfig {
        &self.config
    }

    /// Whether it failed so often that it is not asked at `now`; this is counted.
    pub(super) fn is_paused(&self, now: Time) -> bool {
        let paused = self.failures.load(Ordering::Relaxed) >= PATIENCE
            && now.as_nanos() < self.resumes.load(Ordering::Relaxed);
        if paused {
            self.skip();
        }
        paused
    }

    /// Counts a question that is not asked.
    pub(super) fn skip(&self) {
        self.count(Asking::Skipped);
    }

    /// How often each happened, by its name.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Asking::NAMES.iter().copied().zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    fn count(&self, asking: Asking) {
        self.counts[asking as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Asks it. `read` understands an answer, or says what is wrong with it. `None` if the service is away.
    pub(super) async fn ask<T>(
        &self,
        call: &Call,
        clock: Clock,
        read: impl FnOnce(Reply) -> Result<T, String>,
    ) -> Option<T> {
        match self.client.ask(call, clock).await.and_then(read) {
            Ok(told) => {
                self.count(Asking::Answered);
                self.failures.store(0, Ordering::Relaxed);
                self.note(None);
                Some(told)
            }
            Err(why) => {
                self.count(Asking::Away);
                self.resumes.store(clock.now().plus(PAUSE).as_nanos(), Ordering::Relaxed);
                self.failures.fetch_add(1, Ordering::Relaxed);
                self.note(Some(why));
                None
            }
        }
    }

    /// Why it is away, for /status.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// People are told once that it is away, and once that it is back.
    fn note(&self, why: Option<String>) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*trouble, &why) {
            (None, Some(why)) => tracing::error!("{} does not say who asks: {why}", self.config.url.text),
            (Some(_), None) => tracing::info!("{} says who asks again", self.config.url.text),
            _ => {}
        }
        *trouble = why;
    }
}
