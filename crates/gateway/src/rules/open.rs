//! Opens the rules that a configuration names, keeps those of the configuration before, and hands them over.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use sluicegate_counters::KeySecret;
use sluicegate_rules::VerdictCache;
use sluicegate_rules_sqlite::RuleFile;
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::{Semaphore, watch};

use super::effect::Effects;
use super::flights::Flights;
use super::follow::follow;
use super::remote::Remote;
use super::schedule::Schedule;
use super::service;
use super::source::Source;
use super::{KeyQuestion, Rules};
use sluicegate_base::clock::Clock;
use sluicegate_config::{FileRef, RulesConfig, RulesSource};

/// The number of threads that ask a file.
const ASKERS: usize = 2;
/// The number of questions that Redis has at a time.
const IN_FLIGHT: usize = 64;
/// The number of questions that wait for these.
const MAX_QUESTIONS: usize = 10_000;
/// The longest that a start or a reload waits for rules from Redis. It goes on without them.
const FIRST_READ: Duration = Duration::from_secs(1);

/// So many effects are kept, needed or not, of about 1 kB each with what limits make of them.
const MIN_OUTGROWN: usize = 1 << 13;

/// A question, with its number.
type Question = (u64, KeyQuestion);

impl Rules {
    /// Opens the rules that a configuration names, or keeps those of the configuration before, unless these have
    /// [outgrown](Self::have_outgrown) their keys. Blocks.
    ///
    /// # Errors
    /// If the file cannot be opened or is not one of rules. Redis may be away.
    pub fn open(config: &RulesConfig, clock: Clock, before: Option<&Arc<Self>>) -> Result<Arc<Self>, String> {
        if let Some(before) = before.filter(|before| before.is_of(config) && !before.have_outgrown()) {
            before.take_times(config);
            return Ok(Arc::clone(before));
        }
        let (sender, questions) = mpsc::channel(MAX_QUESTIONS);
        let make = |source, version| {
            Arc::new(Self {
                ttl: AtomicU64::new(nanos(config.ttl)),
                wait: AtomicU64::new(nanos(config.wait)),
                config: config.clone(),
                clock,
                source,
                cache: VerdictCache::new(config.max_cached),
                schedule: Schedule::new(config.max_cached),
                effects: Effects::default(),
                limits: Mutex::default(),
                flights: Flights::default(),
                questions: sender,
                trouble: Mutex::default(),
                away: AtomicBool::new(false),
                failures: AtomicU32::new(0),
                complained: AtomicU64::new(0),
                secret: KeySecret::default(),
                version: watch::Sender::new(version),
            })
        };
        match &config.source {
            RulesSource::File(path) => {
                let failed = |error: String| format!("rules: {error}");
                let file = before.and_then(|before| before.file_at(path)).map_or_else(|| open(path), Ok);
                let file = file.map_err(failed)?;
                let version = file.load().version().map_err(|error| failed(error.to_string()))?.version;
                let rules = make(Source::File(Arc::clone(&file)), version);
                rules.patterns_changed().map_err(failed)?;
                ask_file(&rules, &file, questions)?;
                Ok(rules)
            }
            RulesSource::Redis(redis) => {
                let (remote, events) = Remote::open(redis, clock)?;
                let remote = Arc::new(remote);
                let rules = make(Source::Redis(Arc::clone(&remote)), 0);
                let (ready, read) = sync_channel(1);
                remote.spawn(follow(Arc::downgrade(&rules), events, ready));
                remote.spawn(ask_redis(Arc::downgrade(&rules), questions));
                if read.recv_timeout(FIRST_READ).is_err() {
                    tracing::warn!(
                        "rules: Redis has not answered yet; until it does, limits are as the file has them"
                    );
                }
                Ok(rules)
            }
            RulesSource::Service(service) => {
                let rules = make(Source::Service(service.url.text.clone()), 0);
                service::start(&rules, service, questions)?;
                Ok(rules)
            }
        }
    }

    /// Whether most of the effects that are kept in memory are not those of keys that are remembered. It is time to begin
    /// anew then: a process whose rules change all the time would fill its memory.
    pub fn have_outgrown(&self) -> bool {
        self.effects.len() > MIN_OUTGROWN + 2 * self.cache.len()
    }

    /// Whether they are kept where this configuration says, and as many of them remembered.
    fn is_of(&self, config: &RulesConfig) -> bool {
        let own = &self.config;
        let same_source = match (&own.source, &config.source) {
            (RulesSource::File(own), RulesSource::File(other)) => own.path == other.path,
            (RulesSource::Redis(own), RulesSource::Redis(other)) => own == other,
            (RulesSource::Service(own), RulesSource::Service(other)) => own == other,
            _ => false,
        };
        same_source && own.max_cached == config.max_cached
    }

    /// Remembers verdicts and waits for them as this configuration says.
    fn take_times(&self, config: &RulesConfig) {
        self.ttl.store(nanos(config.ttl), Ordering::Relaxed);
        self.wait.store(nanos(config.wait), Ordering::Relaxed);
    }

    /// The file, if it is this one.
    fn file_at(&self, path: &FileRef) -> Option<Arc<ArcSwap<RuleFile>>> {
        match (&self.source, &self.config.source) {
            (Source::File(file), RulesSource::File(own)) if own.path == path.path => Some(Arc::clone(file)),
            _ => None,
        }
    }

    /// Lets a successor of this process write the rules. They can still be read here. Blocks.
    pub fn hand_over(&self) {
        if let Source::File(file) = &self.source {
            file.load().release_lock();
        }
    }

    /// The successor has not come, or has ended: this process writes the rules again, with what the successor changed.
    /// Blocks.
    ///
    /// # Errors
    /// If the file cannot be opened, because another process has it by now, or cannot be read.
    pub fn take_back(&self) -> Result<(), String> {
        if let (Source::File(file), RulesSource::File(path)) = (&self.source, &self.config.source) {
            let failed = |error: String| format!("rules: {error}");
            let opened = RuleFile::open(&path.path).map_err(|error| failed(error.to_string()))?;
            let version = opened.version().map_err(|error| failed(error.to_string()))?.version;
            file.store(Arc::new(opened));
            self.patterns_changed().map_err(failed)?;
            self.forget_all();
            self.reached(version);
        }
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn open(path: &FileRef) -> Result<Arc<ArcSwap<RuleFile>>, String> {
    let file = RuleFile::open(&path.path).map_err(|error| error.to_string())?;
    Ok(Arc::new(ArcSwap::from_pointee(file)))
}

/// Starts the threads that ask a file. They end with the rules, and so does the channel.
fn ask_file(
    rules: &Arc<Rules>,
    file: &Arc<ArcSwap<RuleFile>>,
    questions: Receiver<Question>,
) -> Result<(), String> {
    let questions = Arc::new(Mutex::new(questions));
    for number in 0..ASKERS {
        let (rules, file, questions) = (Arc::downgrade(rules), Arc::clone(file), Arc::clone(&questions));
        let ask = move || {
            while let Some((number, question)) =
                questions.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv()
            {
                let Some(rules) = Weak::upgrade(&rules) else { return };
                rules.ask_file(&file.load(), number, &question);
            }
        };
        let named = std::thread::Builder::new().name(format!("rules-{number}"));
        named.spawn(ask).map_err(|error| format!("rules: cannot start a thread: {error}"))?;
    }
    Ok(())
}

/// Asks Redis until the rules end, and the channel with them.
async fn ask_redis(rules: Weak<Rules>, mut questions: Receiver<Question>) {
    let places = Arc::new(Semaphore::new(IN_FLIGHT));
    while let Some((number, question)) = questions.recv().await {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Some(rules) = Weak::upgrade(&rules) else { return };
        tokio::spawn(async move {
            rules.ask_redis(number, &question).await;
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::parse;
    use crate::rules::Effect;

    #[test]
    fn effects_that_are_not_needed_are_dropped() {
        let folder = tempfile::TempDir::new().unwrap();
        let text = "listen: [127.0.0.1:8080]\nrules: {file: rules.db}\nroutes: [{respond: {status: 200}}]\n";
        let config = parse(text.to_owned(), "gateway.yaml", folder.path()).config.unwrap();
        let open = |before| Rules::open(config.rules.as_ref().unwrap(), Clock::start(), before).unwrap();
        let rules = open(None);
        let effect = |burst| Effect { burst: Some(burst), ..Effect::default() };
        (0..MIN_OUTGROWN as u64).for_each(|burst| _ = rules.effects.id(effect(burst)));
        assert!(Arc::ptr_eq(&open(Some(&rules)), &rules));
        assert_eq!(rules.effects.id(effect(7)), rules.effects.id(effect(7)));
        assert_eq!(rules.effect(rules.effects.id(effect(7)).unwrap()), effect(7));
        assert!(Arc::ptr_eq(&open(Some(&rules)), &rules), "known effects are no more");
        rules.effects.id(effect(1 << 40));
        let renewed = open(Some(&rules));
        assert!(!Arc::ptr_eq(&renewed, &rules) && renewed.effects.len() == 0);
    }
}
