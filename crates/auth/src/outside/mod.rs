//! Services outside of the gateway that say who asks: what they have in common.
//!
//! A request waits for its turn and then for the answer, for at most `timeout` each. A service is away if it cannot be
//! reached or does not answer in time; after some such failures in a row nobody is asked for a moment, so that it delays few
//! requests. An answer that cannot be used concerns one request: clients who provoke such answers harm no others.

mod flights;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_limiter::{Span, Time};

pub(super) use self::flights::Flights;
use sluicegate_base::clock::Clock;
use sluicegate_base::http_client::{Bounds, Client, NoReply};
pub(super) use sluicegate_base::http_client::{Call, Reply};
use sluicegate_base::named_enum::named_enum;
use sluicegate_config::ServiceConfig;

/// Failures in a row after which nobody is asked for a moment.
const PATIENCE: u32 = 5;
/// The largest answer in bytes.
const MAX_ANSWER: usize = 64 << 10;
/// How long that moment is.
const PAUSE: Span = Span::SECOND;
/// The shortest time between two lines in the log about answers that cannot be used.
const COMPLAINTS: Span = Span::from_secs(10);

named_enum! {
    /// What became of a question to a service outside.
    Asking {
        /// The service answered.
        Answered = "answered",
        /// Its answer cannot be used.
        Unusable = "unusable",
        /// It could not be reached, or gave no answer in time.
        Away = "away",
        /// It was not asked, because it was away several times in a row or because too many calls were in flight.
        Skipped = "skipped",
    }
}

/// What is wrong with a service.
#[derive(Default)]
struct Trouble {
    /// Why it is away.
    away: Option<String>,
    /// Why its last answer cannot be used.
    unusable: Option<String>,
    /// When an answer that cannot be used was last logged.
    logged: Option<Time>,
}

/// A service that is asked about requests.
pub(super) struct Service {
    config: ServiceConfig,
    client: Client,
    /// How often it was away in a row.
    failures: AtomicU32,
    /// From when on it is asked again, in nanoseconds.
    resumes: AtomicU64,
    trouble: Mutex<Trouble>,
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

    /// Whether it was away so often that it is not asked at `now`; this is counted.
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

    /// Asks it. `read` understands an answer, or says what is wrong with it. `None` if there is no answer that can be used.
    pub(super) async fn ask<T>(
        &self,
        call: &Call,
        clock: Clock,
        read: impl FnOnce(Reply) -> Result<T, String>,
    ) -> Option<T> {
        let reply = match self.client.ask(call, clock).await {
            Ok(reply) => read(reply),
            Err(NoReply::Unreadable(why)) => Err(why),
            Err(NoReply::Away(why)) => {
                self.is_away(why, clock.now());
                return None;
            }
        };
        self.failures.store(0, Ordering::Relaxed);
        self.has_answered(reply.as_ref().err(), clock.now());
        reply.ok()
    }

    /// Why it is of no use, for /status.
    pub(super) fn trouble(&self) -> Option<String> {
        let trouble = self.lock();
        trouble.away.as_ref().or(trouble.unusable.as_ref()).cloned()
    }

    /// Notes that there was no answer. The first time this is logged.
    fn is_away(&self, why: String, now: Time) {
        self.count(Asking::Away);
        self.resumes.store(now.plus(PAUSE).as_nanos(), Ordering::Relaxed);
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut trouble = self.lock();
        if trouble.away.is_none() {
            tracing::error!("{} does not say who asks: {why}", self.config.url.text);
        }
        trouble.away = Some(why);
    }

    /// Notes that there was an answer, and what is wrong with it. That the service is back is logged, and now and then an
    /// answer that cannot be used.
    fn has_answered(&self, wrong: Option<&String>, now: Time) {
        self.count(if wrong.is_some() { Asking::Unusable } else { Asking::Answered });
        let mut trouble = self.lock();
        if trouble.away.take().is_some() {
            tracing::info!("{} answers again", self.config.url.text);
        }
        if let Some(why) = wrong
            && trouble.logged.is_none_or(|logged| now >= logged.plus(COMPLAINTS))
        {
            trouble.logged = Some(now);
            tracing::warn!("{}: an answer cannot be used: {why}", self.config.url.text);
        }
        trouble.unusable = wrong.cloned();
    }

    fn lock(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
