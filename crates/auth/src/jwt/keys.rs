//! The issuer's keys as they are now. Whoever verifies reads them without waiting; one task keeps them fresh.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::Notify;

use super::KeySet;
use super::fetch::Fetcher;
use super::schedule::Schedule;
use crate::remembered::hash;
use sluicegate_base::clock::Clock;
use sluicegate_base::file;
use sluicegate_base::file_watch;
use sluicegate_config::{FileRef, JwksUrl, JwtKeys};

/// How long a bad file may be half-written before it is reported.
const HALF_WRITTEN: Duration = Duration::from_millis(100);

/// The issuer's keys.
pub struct Keys {
    source: JwtKeys,
    current: ArcSwap<KeySet>,
    /// Told when a token names a key that is not among them.
    asked: Notify,
    trouble: Mutex<Option<String>>,
}

/// What /status tells of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysStatus {
    /// How many there are.
    pub keys: usize,
    /// Why they are not the latest.
    pub trouble: Option<String>,
}

impl Keys {
    /// The keys of a source, as far as they are known: what `before` had from the same place is good until the first
    /// fetch.
    pub(super) fn new(source: &JwtKeys, known: Option<&Arc<KeySet>>, before: Option<&Self>) -> Self {
        let known = match source {
            JwtKeys::Secret(_) | JwtKeys::PublicKey(_) | JwtKeys::File(_) => {
                known.map_or_else(|| Arc::new(KeySet::empty()), Arc::clone)
            }
            JwtKeys::Url(url) => before
                .filter(|before| matches!(&before.source, JwtKeys::Url(old) if old.url.is_at(&url.url)))
                .map_or_else(|| Arc::new(KeySet::empty()), |before| Arc::clone(&before.current())),
        };
        Self {
            source: source.clone(),
            current: ArcSwap::new(known),
            asked: Notify::new(),
            trouble: Mutex::default(),
        }
    }

    /// The keys now.
    pub(super) fn current(&self) -> Guard<Arc<KeySet>> {
        self.current.load()
    }

    /// A token named a key that is not among them.
    pub(super) fn ask(&self) {
        self.asked.notify_one();
    }

    /// What /status tells.
    pub fn status(&self) -> KeysStatus {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        KeysStatus { keys: self.current().len(), trouble }
    }

    /// Keeps them fresh for ever. Call it inside a `LocalSet`.
    pub async fn tend(self: Arc<Self>, clock: Clock) {
        match &self.source {
            JwtKeys::Secret(_) | JwtKeys::PublicKey(_) => {}
            JwtKeys::File(FileRef { path, .. }) => {
                file_watch::watch(path, async || self.look(path).await).await
            }
            JwtKeys::Url(url) => self.refresh(url, clock).await,
        }
    }

    async fn look(&self, path: &Path) {
        let mut read = read_apart(path, self.current.load_full()).await;
        if read.is_err() {
            tokio::time::sleep(HALF_WRITTEN).await;
            read = read_apart(path, self.current.load_full()).await;
        }
        self.found(&path.display().to_string(), read);
    }

    async fn refresh(&self, url: &JwksUrl, clock: Clock) {
        let fetcher = Fetcher::new(url);
        let mut schedule = Schedule::new(url.refresh);
        loop {
            tokio::select! {
                () = tokio::time::sleep(schedule.wait(clock.uptime())) => {}
                () = self.asked.notified() => tokio::time::sleep(schedule.asked(clock.uptime())).await,
            }
            let fetched = fetcher.fetch().await;
            schedule.fetched(fetched.is_ok(), clock.uptime());
            self.found(&url.url.text, fetched);
        }
    }

    /// Takes over what was found; of what is wrong people are told once, and the last good keys stay.
    fn found(&self, place: &str, found: Result<KeySet, String>) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.current();
        match found {
            Ok(keys) => {
                if **before != keys {
                    tracing::info!("{place}: {} keys for tokens", keys.len());
                    self.current.store(Arc::new(keys));
                } else if trouble.is_some() {
                    tracing::info!("{place}: the keys for tokens are the latest again");
                }
                *trouble = None;
            }
            Err(why) => {
                if trouble.is_none() {
                    let then = match before.len() {
                        0 => "tokens are refused until there are keys".to_owned(),
                        known => format!("the {known} keys that are known stay in force"),
                    };
                    tracing::error!("{place} gives no keys for tokens: {why}; {then}");
                }
                *trouble = Some(why);
            }
        }
    }
}

/// The keys in a file, read on a thread of its own.
async fn read_apart(path: &Path, known: Arc<KeySet>) -> Result<KeySet, String> {
    let path = path.to_owned();
    let read = sluicegate_base::boxed_future::spawn_blocking(move || read(&path, &known)).await;
    read.unwrap_or_else(|error| Err(error.to_string()))
}

/// The keys in a file; the `known` ones are not read again.
fn read(path: &Path, known: &KeySet) -> Result<KeySet, String> {
    let (json, _) = file::read(path, file::SMALL).map_err(|error| error.to_string())?;
    if hash(&json) == *known.id() {
        return Ok(known.clone());
    }
    KeySet::jwks(&json)
}
