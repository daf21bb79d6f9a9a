//! What the store is asked, and what happens when it changes.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use sluicegate_limiter::{Span, Time};
use sluicegate_rules::{
    Compiled, KeyPart, KeyValue, Op, Patterns, Stored, Token, Write, approximation, choose, spellings,
};
use sluicegate_rules_redis::ReadError;
use sluicegate_rules_sqlite::RuleFile;

use super::schedule::{Changes, MOST_CHANGES};
use super::source::{ListedRule, Source, listed};
use super::{Effect, EffectId, KeyQuestion, RuledLimit, Rules, Unreadable, effect};
use sluicegate_config::{Part, ValueForm, parse_rate};
use sluicegate_route::keys;

/// Questions in a row without an answer after which the source counts as away.
const PATIENCE: u32 = 5;
/// The least time between two lines about answers that cannot be used.
const COMPLAINTS: Span = Span::from_secs(10);

/// Why a question has no answer.
pub(super) enum NoAnswer {
    /// The source cannot be reached, or says that it cannot answer.
    Away(String),
    /// The answer for this key cannot be used.
    Unusable(String),
}

impl NoAnswer {
    /// The reason.
    pub(super) fn why(self) -> String {
        match self {
            Self::Away(why) | Self::Unusable(why) => why,
        }
    }
}

impl Rules {
    /// Asks a file for the rule of a key, remembers it and tells those that wait.
    pub(super) fn ask_file(&self, file: &RuleFile, flight: u64, question: &KeyQuestion) {
        let token = self.cache.begin(question.limit.slot(question.key));
        let found = match file.exact(&question.limit.name, &spelled(question)) {
            Ok(found) => all_of(found).map_err(|error| NoAnswer::Unusable(error.to_string())),
            Err(error) => Err(NoAnswer::Away(error.to_string())),
        };
        self.note(found.as_ref().err());
        self.answered(flight, question, token, found.ok());
    }

    /// The same of Redis, whose being away is told by its events.
    pub(super) async fn ask_redis(&self, flight: u64, question: &KeyQuestion) {
        let Source::Redis(remote) = &self.source else { return };
        let token = self.cache.begin(question.limit.slot(question.key));
        let found = remote.rules.exact(&question.limit.name, &spelled(question)).await.and_then(all_of);
        if let Err(error @ (ReadError::Content { .. } | ReadError::Refused(_))) = &found {
            self.complain(&error.to_string());
        }
        self.answered(flight, question, token, found.ok());
    }

    /// The same of a service, asked by a function of a limit, spellings of a key, and a text that its patterns match.
    pub(super) async fn ask_service<F: Future<Output = Result<Vec<Stored>, NoAnswer>>>(
        &self,
        flight: u64,
        question: &KeyQuestion,
        ask: impl FnOnce(String, Vec<String>, String) -> F,
    ) {
        let token = self.cache.begin(question.limit.slot(question.key));
        let keys = spelled(question);
        let text = keys.first().cloned().unwrap_or_else(|| approximate(question));
        let found = ask(question.limit.name.clone(), keys, text).await;
        self.note(found.as_ref().err());
        self.answered(flight, question, token, found.ok());
    }

    /// Notes whether the source has answered. One question without an answer says little about it: the key may be to blame.
    fn note(&self, wrong: Option<&NoAnswer>) {
        match wrong {
            Some(NoAnswer::Away(why)) => {
                if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= PATIENCE {
                    self.say(Some(why.clone()));
                }
                return;
            }
            Some(NoAnswer::Unusable(why)) => self.complain(why),
            None => {}
        }
        self.failures.store(0, Ordering::Relaxed);
        self.say(None);
    }

    /// Logs that the rule of a key cannot be used, now and then.
    fn complain(&self, why: &str) {
        let now = self.clock.now().as_nanos();
        let last = self.complained.load(Ordering::Relaxed);
        if last == 0 || now.saturating_sub(last) >= COMPLAINTS.as_nanos() {
            self.complained.store(now.max(1), Ordering::Relaxed);
            tracing::error!("{why}; the rule of the key that was read before stays in force");
        }
    }

    /// Remembers the rule of a key, of those that the source has, and tells those that wait.
    fn answered(&self, flight: u64, question: &KeyQuestion, token: Token, found: Option<Vec<Stored>>) {
        let slot = question.limit.slot(question.key);
        let judged = found.and_then(|found| {
            let judged: Result<Vec<_>, _> = found.into_iter().map(compiled).collect();
            judged.map_err(|why| self.complain(&why)).ok()
        });
        let Some(judged) = judged else {
            return self.flights.end(slot, flight, self.last_known(slot));
        };
        let (patterns, exact): (Vec<_>, Vec<_>) = judged.into_iter().partition(|rule| rule.pattern.is_some());
        // A service answers with the patterns for a key; of the others they are all known.
        let patterns = match patterns.is_empty() {
            true => question.limit.patterns.load_full(),
            false => Arc::new(Patterns::of_most(patterns).0),
        };
        let now = self.clock.now();
        let parts: Vec<_> = keys::parts_of(&question.text).collect();
        let key = key(&question.limit, &parts);
        let at = |time| {
            let choice = choose(&exact, &patterns, &key, time);
            let id = choice.rule.and_then(|rule| self.effects.id(Effect::of(&rule.stored.rule)));
            (id.unwrap_or(EffectId::NONE).number(), choice.until)
        };
        let (number, until) = at(now);
        let (mut later, mut next) = (Changes::new(), until);
        while let Some(time) = next.filter(|_| later.len() < MOST_CHANGES) {
            let (number, until) = at(time);
            later.push((time, number));
            next = until;
        }
        self.schedule.note(slot, later, |slot| self.cache.contains(slot));
        let ttl = Span::from_nanos(self.ttl.load(Ordering::Relaxed));
        self.cache.put(slot, number, now, ttl, until, token);
        self.flights.end(slot, flight, effect(number));
    }

    /// Rules of an exact key have changed. A key that is in use is asked for again at once, so that no request waits, and so
    /// that its rule is known if the store is away from now on.
    pub fn key_changed(&self, limit: &str, key: &str) {
        let limit = self.limit(limit);
        limit.activate();
        for (key, text) in limit.keys(key) {
            let slot = limit.slot(key);
            let is_used = self.cache.invalidate(slot);
            self.flights.forget(slot);
            if is_used {
                self.refresh(KeyQuestion { limit: Arc::clone(&limit), key, text });
            }
        }
    }

    /// Rules of patterns have changed, or it is not known which rules have: every key is asked for again. Blocks.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn patterns_changed(&self) -> Result<(), Unreadable> {
        self.put_patterns(&self.source.limits()?, self.source.patterns()?);
        Ok(())
    }

    /// The same of Redis, in a task.
    pub(super) async fn read_patterns(&self) -> Result<(), Unreadable> {
        let Source::Redis(remote) = &self.source else { return Ok(()) };
        let limits = remote.rules.limits().await.map_err(|error| error.to_string())?;
        let (_, patterns) = remote.rules.patterns().await.map_err(|error| error.to_string())?;
        self.put_patterns(&limits, listed(patterns));
        Ok(())
    }

    /// The rules of a limit for a key, however it is spelled, and for patterns that match it, in force or not. Blocks.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn rules_for(&self, limit: &str, key_text: &str) -> Result<Vec<ListedRule>, Unreadable> {
        let mut texts = vec![key_text.to_owned()];
        let mut found: Vec<ListedRule> = Vec::new();
        if let Some(ruled) = self.known_limit(limit) {
            let patterns = ruled.patterns.load_full();
            for (_, text) in ruled.keys(key_text) {
                let parts: Vec<_> = keys::parts_of(&text).collect();
                let key = key(&ruled, &parts);
                texts.extend(spellings(&key));
                found.extend(patterns.matching(&key).into_iter().map(|(rule, _)| Ok(rule.stored.clone())));
            }
        }
        texts.sort_unstable();
        texts.dedup();
        found.extend(self.source.exact(limit, &texts)?);
        found.sort_by(|one, other| id(one).cmp(id(other)));
        found.dedup();
        Ok(found)
    }

    /// The id of the rule that applies to a key. Blocks.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn rule_of(&self, question: &KeyQuestion, now: Time) -> Result<Option<String>, Unreadable> {
        let found = self.source.exact(&question.limit.name, &spelled(question))?;
        let found = all_of(found).map_err(|(_, why)| why)?;
        let exact = found.into_iter().map(compiled).collect::<Result<Vec<_>, _>>()?;
        let patterns = question.limit.patterns.load_full();
        let parts: Vec<_> = keys::parts_of(&question.text).collect();
        let choice = choose(&exact, &patterns, &key(&question.limit, &parts), now);
        Ok(choice.rule.map(|rule| rule.stored.rule.id.clone()))
    }

    /// Every key is asked for again.
    pub(super) fn forget_all(&self) {
        self.cache.invalidate_all();
        self.flights.forget_all();
    }

    /// The limits that have rules, and the rules for patterns of keys. One that cannot be read stays in force as it was.
    pub(super) fn put_patterns(&self, limits: &[String], patterns: Vec<ListedRule>) {
        for name in limits {
            self.limit(name).activate();
        }
        let mut by_limit: HashMap<String, Vec<Arc<Compiled>>> = HashMap::new();
        let mut unreadable: HashSet<String> = HashSet::new();
        for read in patterns {
            let judged = read.and_then(|stored| {
                let id = stored.rule.id.clone();
                compiled(stored).map_err(|why| (id, why))
            });
            match judged {
                Ok(rule) => by_limit.entry(rule.stored.rule.limit.clone()).or_default().push(rule),
                Err((id, why)) => {
                    tracing::error!("{why}; if it was read before, it stays in force as it was");
                    unreadable.insert(id);
                }
            }
        }
        for name in by_limit.keys() {
            self.limit(name); // so that it is among those below
        }
        let limits: Vec<Arc<RuledLimit>> =
            self.limits.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for limit in limits {
            let mut patterns = by_limit.remove(&limit.name).unwrap_or_default();
            if !unreadable.is_empty() {
                let before = limit.patterns.load();
                let known = before.rules().iter().filter(|rule| unreadable.contains(&rule.stored.rule.id));
                patterns.extend(known.cloned());
            }
            let (patterns, too_many) = Patterns::of_most(patterns);
            if let Some(why) = too_many {
                tracing::error!("limit {}: {why}; those with the highest priority are in force", limit.name);
            }
            limit.patterns.store(Arc::new(patterns));
        }
        self.forget_all();
    }

    /// Whether the limits can have the patterns of a batch beside those that they have.
    ///
    /// # Errors
    /// Which limit would have too many.
    pub fn patterns_fit(&self, changes: &[Write]) -> Result<(), String> {
        let changed: HashSet<&str> = changes.iter().map(|write| write.op.id()).collect();
        let mut new: HashMap<&str, Vec<Arc<Compiled>>> = HashMap::new();
        for write in changes {
            if let Op::Put { rule, pattern: true } = &write.op {
                new.entry(&rule.limit)
                    .or_default()
                    .extend(compiled(Stored { rule: rule.clone(), version: 0 }));
            }
        }
        for (limit, mut patterns) in new {
            if let Some(known) = self.known_limit(limit) {
                let known = known.patterns.load_full();
                let stay =
                    known.rules().iter().filter(|rule| !changed.contains(rule.stored.rule.id.as_str()));
                patterns.extend(stay.cloned());
            }
            Patterns::build(patterns).map_err(|why| format!("limit {limit}: {why}"))?;
        }
        Ok(())
    }

    /// Notes why the store is away, or that it is not; a change is logged.
    pub(super) fn say(&self, trouble: Option<String>) {
        if trouble.is_none() && !self.away.load(Ordering::Relaxed) {
            return;
        }
        let mut known = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*known, &trouble) {
            (None, Some(why)) => {
                tracing::error!("the rules cannot be read: {why}; those that were read stay in force");
            }
            (Some(_), None) => tracing::info!("the rules can be read again"),
            _ => return,
        }
        self.away.store(trouble.is_some(), Ordering::Relaxed);
        *known = trouble;
    }
}

/// The id of a rule of a list.
pub fn id(read: &ListedRule) -> &str {
    match read {
        Ok(stored) => &stored.rule.id,
        Err((id, _)) => id,
    }
}

/// All rules, unless one cannot be read.
fn all_of<E>(found: Vec<Result<Stored, E>>) -> Result<Vec<Stored>, E> {
    found.into_iter().collect()
}

/// A key of a limit, as rules see it, made of its parts.
fn key<'a>(limit: &RuledLimit, parts: &'a [(Part, &'a [u8])]) -> Vec<KeyPart<'a>> {
    let part = |(index, (part, value)): (usize, &'a (Part, &'a [u8]))| {
        let named_only = limit.reads_as_another(index, part, value);
        KeyPart { name: part.name(), value: value_of(part, value), named_only }
    };
    parts.iter().enumerate().map(part).collect()
}

/// How rules can spell the key of a question.
fn spelled(question: &KeyQuestion) -> Vec<String> {
    let parts: Vec<_> = keys::parts_of(&question.text).collect();
    spellings(&key(&question.limit, &parts))
}

/// A text for a key that rules cannot spell.
fn approximate(question: &KeyQuestion) -> String {
    let parts: Vec<_> = keys::parts_of(&question.text).collect();
    approximation(&key(&question.limit, &parts))
}

/// A rule that can be judged.
///
/// # Errors
/// Why it cannot be: another release has written it, or a service has sent it that does not know our rules.
fn compiled(stored: Stored) -> Result<Arc<Compiled>, String> {
    let id = stored.rule.id.clone();
    let unusable = |why: String| format!("the rule {id:?} cannot be used: {why}");
    if let Some(rate) = &stored.rule.rate {
        parse_rate(rate).map_err(|why| unusable(why.message))?;
    }
    Compiled::new(stored).map(Arc::new).map_err(|mistakes| {
        let why: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        unusable(why.join("; "))
    })
}

/// The value of a part of a key, as rules see it.
fn value_of<'a>(part: &Part, value: &'a [u8]) -> KeyValue<'a> {
    let address = || {
        let v4 = <[u8; 4]>::try_from(value).ok().map(IpAddr::from);
        v4.or_else(|| <[u8; 16]>::try_from(value).ok().map(IpAddr::from))
    };
    match part.values() {
        ValueForm::Address => address().map_or(KeyValue::Text(value), KeyValue::Address),
        ValueForm::Nothing
        | ValueForm::Host
        | ValueForm::Method
        | ValueForm::Path
        | ValueForm::Segment
        | ValueForm::Fingerprint
        | ValueForm::Text => KeyValue::Text(value),
    }
}
