//! Rules in force: other numbers of a limit for single keys, changed while the gateway runs.
//!
//! A store has the rules; this module remembers which one applies to each key that was asked for, also that none does, and
//! asks again before it forgets. `sluicegate_rules` decides which of several rules applies.
//!
//! A request whose key is not remembered waits for the store, but not for long: then the rule that was last known applies, or
//! the limit as it stands in the file. The store being away refuses nobody.

mod effect;
mod flights;
mod limit;
mod slots;
mod store;

use std::collections::HashMap;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;
use sluicegate_counters::{Fingerprint, KeySecret};
use sluicegate_limiter::{Span, Time};
use sluicegate_rules::{Lookup, VerdictCache};
use sluicegate_rules_sqlite::RuleFile;
use tokio::sync::{oneshot, watch};

use self::effect::Effects;
pub use self::effect::{Effect, EffectId};
use self::flights::Flights;
pub use self::limit::{KeyQuestion, RuleAnswer, RuledLimit};
pub use self::slots::Slots;
use crate::clock::Clock;
use sluicegate_config::RulesConfig;

/// The number of threads that ask the store.
const ASKERS: usize = 2;
/// The number of questions that wait for these threads.
const MAX_QUESTIONS: usize = 10_000;
/// How long a key is not asked for again after the store gave no answer.
const PAUSE: Span = Span::SECOND;

/// The rules of this gateway.
pub struct Rules {
    config: RulesConfig,
    ttl: Span,
    clock: Clock,
    /// The store. It is opened anew if a successor that it was handed over to has not come.
    file: Arc<ArcSwap<RuleFile>>,
    cache: VerdictCache,
    effects: Effects,
    limits: Mutex<HashMap<String, Arc<RuledLimit>>>,
    flights: Flights,
    questions: SyncSender<(u64, KeyQuestion)>,
    /// Why the store gave no answer when it was last asked.
    trouble: Mutex<Option<String>>,
    secret: KeySecret,
    /// The version of the store as far as this process knows.
    version: watch::Sender<u64>,
}

/// What is remembered of the rule of a key.
pub enum Known {
    /// What its rule changes; `None` if it has none.
    Effect(Option<EffectId>),
    /// The same, and it is time to ask again, which the caller does.
    Aging(Option<EffectId>),
    /// Nothing, or nothing that is still valid.
    Unknown,
}

impl Rules {
    /// Opens the rules that a configuration names, or keeps those of the configuration before.
    ///
    /// # Errors
    /// If the file cannot be opened or is not one of rules.
    pub fn open(config: &RulesConfig, clock: Clock, before: Option<&Arc<Self>>) -> Result<Arc<Self>, String> {
        let of_file = before.filter(|before| before.config.file.path == config.file.path);
        if let Some(before) = of_file.filter(|before| before.is_of(config)) {
            return Ok(Arc::clone(before));
        }
        let file = match of_file {
            Some(before) => Arc::clone(&before.file),
            None => {
                let file = RuleFile::open(&config.file.path).map_err(|error| format!("rules: {error}"))?;
                Arc::new(ArcSwap::from_pointee(file))
            }
        };
        let version = file.load().version().map_err(|error| format!("rules: {error}"))?.version;
        let (questions, receiver) = sync_channel(MAX_QUESTIONS);
        let rules = Arc::new(Self {
            ttl: config.ttl.into(),
            config: config.clone(),
            clock,
            file,
            cache: VerdictCache::new(config.max_cached),
            effects: Effects::default(),
            limits: Mutex::default(),
            flights: Flights::default(),
            questions,
            trouble: Mutex::default(),
            secret: KeySecret::default(),
            version: watch::Sender::new(version),
        });
        rules.read_limits()?;
        let receiver = Arc::new(Mutex::new(receiver));
        for number in 0..ASKERS {
            let (rules, receiver) = (Arc::downgrade(&rules), Arc::clone(&receiver));
            let ask = move || {
                // The channel ends with the rules.
                while let Ok((number, question)) =
                    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv()
                {
                    let Some(rules) = Weak::upgrade(&rules) else { return };
                    rules.ask(number, &question);
                }
            };
            let named = std::thread::Builder::new().name(format!("rules-{number}"));
            named.spawn(ask).map_err(|error| format!("rules: cannot start a thread: {error}"))?;
        }
        Ok(rules)
    }

    /// The store.
    pub fn file(&self) -> Arc<RuleFile> {
        self.file.load_full()
    }

    /// Lets a successor of this process write the rules. They can still be read here. Blocks.
    pub fn hand_over(&self) {
        self.file().release_lock();
    }

    /// The successor has not come: this process writes the rules again. Blocks.
    ///
    /// # Errors
    /// If the file cannot be opened, because another process has it by now.
    pub fn take_back(&self) -> Result<(), String> {
        let file = RuleFile::open(&self.config.file.path).map_err(|error| format!("rules: {error}"))?;
        self.file.store(Arc::new(file));
        Ok(())
    }

    /// Whether they are remembered as this configuration says.
    fn is_of(&self, config: &RulesConfig) -> bool {
        let own = &self.config;
        (own.ttl, own.max_cached, own.wait) == (config.ttl, config.max_cached, config.wait)
    }

    /// The limit with this name, as rules see it.
    pub fn limit(&self, name: &str) -> Arc<RuledLimit> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limit) = limits.get(name) {
            return Arc::clone(limit);
        }
        let limit = Arc::new(RuledLimit::new(name, std::hash::BuildHasher::hash_one(&self.secret, name)));
        limits.insert(name.to_owned(), Arc::clone(&limit));
        limit
    }

    /// What is remembered of the rule of a key.
    #[inline]
    pub fn known(&self, limit: &RuledLimit, key: Fingerprint, now: Time) -> Known {
        match self.cache.get(limit.slot(key), now) {
            Lookup::Fresh(number) => Known::Effect(effect(number)),
            Lookup::Refresh(number) => Known::Aging(effect(number)),
            Lookup::Stale(_) | Lookup::Missing => Known::Unknown,
        }
    }

    /// The effect with this number.
    pub fn effect(&self, id: EffectId) -> Effect {
        self.effects.get(id)
    }

    /// Asks the store for the rule of a key, for nobody in particular.
    #[cold]
    pub fn refresh(&self, question: KeyQuestion) {
        if let Some(number) = self.flights.begin(question.limit.slot(question.key), None) {
            self.send((number, question));
        }
    }

    /// Asks the store for the rules of keys, and waits for the answers for the configured time. A key without an answer keeps
    /// the rule that was last known.
    pub async fn load(&self, questions: &[KeyQuestion]) -> Vec<RuleAnswer> {
        let mut answers = Vec::with_capacity(questions.len());
        // All are asked before the first answer is awaited.
        let begun: Vec<_> = questions.iter().map(|question| self.begin(question)).collect();
        let all = async {
            for (question, mut receiver) in questions.iter().zip(begun) {
                let effect = loop {
                    match receiver.await {
                        Ok(effect) => break effect,
                        Err(_) => receiver = self.begin(question), // the rule changed meanwhile
                    }
                };
                answers.push(RuleAnswer { slot: question.limit.slot(question.key), effect });
            }
        };
        let in_time = tokio::time::timeout(self.config.wait, all).await.is_ok();
        if !in_time {
            for question in &questions[answers.len()..] {
                let slot = question.limit.slot(question.key);
                answers.push(RuleAnswer { slot, effect: self.last_known(slot) });
            }
        }
        answers
    }

    /// Asks for the rule of a key, unless that has been asked.
    fn begin(&self, question: &KeyQuestion) -> oneshot::Receiver<Option<EffectId>> {
        let (sender, receiver) = oneshot::channel();
        if let Some(number) = self.flights.begin(question.limit.slot(question.key), Some(sender)) {
            self.send((number, question.clone()));
        }
        receiver
    }

    /// The version of the store.
    pub fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// The store has this version now, or a later one.
    pub fn written(&self, version: u64) {
        self.version.send_if_modified(|known| {
            let newer = version > *known;
            *known = version.max(*known);
            newer
        });
    }

    /// Waits until the store has another version.
    pub async fn next_change(&self, version: u64) {
        let mut changes = self.version.subscribe();
        let _ = changes.wait_for(|known| *known != version).await; // the sender lives as long as `self`
    }

    /// Why the store does not answer; `None` if it does.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of keys that are remembered.
    pub fn cached(&self) -> usize {
        self.cache.len()
    }

    fn send(&self, (number, question): (u64, KeyQuestion)) {
        let slot = question.limit.slot(question.key);
        if self.questions.try_send((number, question)).is_err() {
            self.flights.end(slot, number, self.last_known(slot));
        }
    }

    /// The rule that was last known of a key, which then is not asked for again for a while.
    fn last_known(&self, slot: u64) -> Option<EffectId> {
        let now = self.clock.now();
        let number = match self.cache.get(slot, now) {
            Lookup::Fresh(number) | Lookup::Refresh(number) => return effect(number),
            Lookup::Stale(number) => number,
            Lookup::Missing => EffectId::NONE.number(),
        };
        self.cache.put(slot, number, now, PAUSE, None, self.cache.begin(slot));
        effect(number)
    }
}

/// The effect that the cache remembers.
fn effect(number: u32) -> Option<EffectId> {
    (number != EffectId::NONE.number()).then(|| EffectId::from_number(number))
}
