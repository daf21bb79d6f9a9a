//! Services outside of the gateway that say who asks: what they have in common.
//!
//! No request waits for one longer than its `timeout`. After some failures in a row nobody is asked for a moment, so that
//! a service that is away delays few requests.

mod client;
mod connect;
mod flights;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use sluicegate_limiter::{Span, Time};

use self::client::Client;
pub(super) use self::client::{Call, Reply};
pub(super) use self::connect::{AbortOnDrop, Way};
pub(super) use self::flights::Flights;
use crate::clock::Clock;
use sluicegate_config::ServiceConfig;

/// Failures in a row after which nobody is asked for a moment.
const PATIENCE: u32 = 5;
/// How long that moment is.
const PAUSE: Span = Span::SECOND;

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
}

impl Service {
    /// A service that is not known to be away.
    pub(super) fn new(config: &ServiceConfig) -> Self {
        Self {
            config: config.clone(),
            client: Client::new(config),
            failures: AtomicU32::new(0),
            resumes: AtomicU64::new(0),
            trouble: Mutex::default(),
        }
    }

    /// What is configured.
    pub(super) const fn config(&self) -> &ServiceConfig {
        &self.config
    }

    /// Whether it failed so often that it is not asked at `now`.
    pub(super) fn is_paused(&self, now: Time) -> bool {
        self.failures.load(Ordering::Relaxed) >= PATIENCE
            && now.as_nanos() < self.resumes.load(Ordering::Relaxed)
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
                self.failures.store(0, Ordering::Relaxed);
                self.note(None);
                Some(told)
            }
            Err(why) => {
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
