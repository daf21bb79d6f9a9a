//! Rules in force: other numbers of a limit for single keys, changed while the gateway runs.
//!
//! A store has the rules; this module remembers which one applies to each key that was asked for, also that none does, and
//! asks again before it forgets. `sluicegate_rules` decides which of several rules applies.
//!
//! A request whose key is not remembered waits for the store, but not for long: then the rule that was last known applies, or
//! the limit as it stands in the file. The store being away refuses nobody.

mod effect;
mod flights;
mod follow;
mod limit;
mod open;
mod remote;
mod schedule;
mod service;
mod slots;
mod source;
mod store;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluicegate_counters::{Fingerprint, KeySecret};
use sluicegate_limiter::{Span, Time};
use sluicegate_rules::{Lookup, VerdictCache};
use tokio::sync::{mpsc, oneshot, watch};

use self::effect::Effects;
pub use self::effect::{Effect, EffectId};
use self::flights::Flights;
pub use self::limit::{KeyQuestion, RuleAnswer, RuledLimit};
use self::schedule::Schedule;
pub use self::service::VERSION;
pub use self::slots::Slots;
pub use self::source::{ListedRule, NotWritten, Source, Unreadable};
pub use self::store::id;
use sluicegate_base::clock::Clock;
use sluicegate_config::{LimitConfig, RulesConfig};

/// How long a key is not asked for again after the store gave no answer.
const PAUSE: Span = Span::SECOND;

/// The rules of this gateway.
pub struct Rules {
    config: RulesConfig,
    /// How long a verdict is remembered, in nanoseconds.
    ttl: AtomicU64,
    /// The longest that a request waits for one, in nanoseconds.
    wait: AtomicU64,
    clock: Clock,
    source: Source,
    cache: VerdictCache,
    schedule: Schedule,
    effects: Effects,
    limits: Mutex<HashMap<String, Arc<RuledLimit>>>,
    flights: Flights,
    questions: mpsc::Sender<(u64, KeyQuestion)>,
    /// Why the store is away.
    trouble: Mutex<Option<String>>,
    /// Whether it is.
    away: AtomicBool,
    /// Questions in a row that had no answer.
    failures: AtomicU32,
    /// When an answer that cannot be used was last logged, in nanoseconds.
    complained: AtomicU64,
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
    /// The limit with this name, if the configuration or a stored rule has named it. What a client or a service names is asked
    /// for here, so that it takes no memory.
    fn known_limit(&self, name: &str) -> Option<Arc<RuledLimit>> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The limit with this name, as rules see it. It is remembered from now on.
    pub fn limit(&self, name: &str) -> Arc<RuledLimit> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limit) = limits.get(name) {
            return Arc::clone(limit);
        }
        let limit = Arc::new(RuledLimit::new(name, std::hash::BuildHasher::hash_one(&self.secret, name)));
        limits.insert(name.to_owned(), Arc::clone(&limit));
        limit
    }

    /// Where they are kept.
    pub const fn source(&self) -> &Source {
        &self.source
    }

    /// The limit of a configuration; from now on its keys are read as that says.
    pub fn limit_of(&self, config: &LimitConfig, ipv6_prefix: u8, secret: &KeySecret) -> Arc<RuledLimit> {
        let limit = self.limit(&config.name);
        limit.read_keys(config.key.clone(), ipv6_prefix, secret.clone());
        if let Source::Service(_) = self.source {
            limit.activate(); // it does not say which limits have rules
        }
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

    /// Asks the store for the rules of keys, and waits for the answers for the configured time, or not at all while the store
    /// is away. A key without an answer keeps the rule that was last known.
    pub async fn load(&self, questions: &[KeyQuestion]) -> Vec<RuleAnswer> {
        let mut answers = Vec::with_capacity(questions.len());
        if self.away.load(Ordering::Relaxed) {
            answers.extend(questions.iter().map(|question| {
                self.refresh(question.clone());
                let slot = question.limit.slot(question.key);
                RuleAnswer { slot, effect: self.last_known(slot) }
            }));
            return answers;
        }
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
        let in_time =
            tokio::time::timeout(Duration::from_nanos(self.wait.load(Ordering::Relaxed)), all).await.is_ok();
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

    /// The store has this version now. It is lower than before if the store lost changes, or was replaced by another.
    pub(super) fn reached(&self, version: u64) {
        self.version.send_if_modified(|known| std::mem::replace(known, version) != version);
    }

    /// How many wait for a change.
    pub fn waiting(&self) -> usize {
        self.version.receiver_count()
    }

    /// Waits until the store has another version, or these rules end. Does not keep them alive.
    pub fn next_change(&self, version: u64) -> impl Future<Output = ()> + use<> {
        let mut changes = self.version.subscribe();
        async move {
            let _ = changes.wait_for(|known| *known != version).await; // an error is the end of the rules
        }
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

    /// The rule that was last known of a key; if that has ended, or another has begun, what was known to follow. The source is
    /// not asked for it again for a while.
    fn last_known(&self, slot: u64) -> Option<EffectId> {
        let now = self.clock.now();
        let instead = self.schedule.now(slot, now);
        effect(self.cache.keep(slot, EffectId::NONE.number(), instead, now, PAUSE))
    }
}

/// The effect that the cache remembers.
fn effect(number: u32) -> Option<EffectId> {
    (number != EffectId::NONE.number()).then(|| EffectId::from_number(number))
}
