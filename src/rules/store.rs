//! What the store is asked, and what happens when it changes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

use sluicegate_counters::Fingerprint;
use sluicegate_rules::{Compiled, KeyPart, KeyValue, Patterns, Stored, choose, spellings};

use super::{Effect, EffectId, KeyQuestion, RuledLimit, Rules, effect};
use crate::keys;
use sluicegate_config::Part;

impl Rules {
    /// Asks the store for the rule of a key, remembers it and tells those that wait.
    pub(super) fn ask(&self, flight: u64, question: &KeyQuestion) {
        let slot = question.limit.slot(question.key);
        let token = self.cache.begin(slot);
        match self.find(question) {
            Ok((number, until)) => {
                self.cache.put(slot, number, self.clock.now(), self.ttl, until, token);
                self.say(None);
                self.flights.end(slot, flight, effect(number));
            }
            Err(error) => {
                self.say(Some(error));
                self.flights.end(slot, flight, self.last_known(slot));
            }
        }
    }

    /// The effect of the rule of a key, and until when that is certain.
    fn find(&self, question: &KeyQuestion) -> Result<(u32, Option<sluicegate_limiter::Time>), String> {
        let parts: Vec<(Part, &[u8])> = keys::parts_of(&question.text).collect();
        let key: Vec<KeyPart<'_>> = parts
            .iter()
            .map(|(part, value)| KeyPart { name: part.name(), value: value_of(part, value) })
            .collect();
        let name = &question.limit.name;
        let exact = self.file().exact(name, &spellings(&key)).map_err(|error| error.to_string())?;
        let exact: Vec<Arc<Compiled>> = exact.into_iter().filter_map(compiled).collect();
        let patterns = question.limit.patterns.load();
        let choice = choose(&exact, &patterns, &key, self.clock.now());
        let id = choice.rule.and_then(|rule| self.effects.id(Effect::of(&rule.stored.rule)));
        Ok((id.unwrap_or(EffectId::NONE).number(), choice.until))
    }

    /// Rules of exact keys have changed.
    pub fn keys_changed(&self, limit: &RuledLimit, keys: impl Iterator<Item = Fingerprint>) {
        limit.activate();
        for key in keys {
            let slot = limit.slot(key);
            self.cache.invalidate(slot);
            self.flights.forget(slot);
        }
    }

    /// Rules of patterns have changed, or it is not known which rules have: every key is asked for again.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn patterns_changed(&self) -> Result<(), String> {
        self.read_limits()?;
        self.cache.invalidate_all();
        self.flights.forget_all();
        Ok(())
    }

    /// Reads which limits have rules, and their rules for patterns of keys.
    pub(super) fn read_limits(&self) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("rules: {error}");
        for name in self.file().limits().map_err(|error| failed(&error))? {
            self.limit(&name).activate();
        }
        let (_, patterns) = self.file().patterns().map_err(|error| failed(&error))?;
        let mut by_limit: HashMap<String, Vec<Arc<Compiled>>> = HashMap::new();
        for stored in patterns {
            let limit = stored.rule.limit.clone();
            by_limit.entry(limit).or_default().extend(compiled(stored));
        }
        for name in by_limit.keys() {
            self.limit(name); // so that it is among those below
        }
        let limits: Vec<Arc<RuledLimit>> =
            self.limits.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for limit in limits {
            let patterns = by_limit.remove(&limit.name).unwrap_or_default();
            let patterns = Patterns::build(patterns).map_err(|error| failed(&error))?;
            limit.patterns.store(Arc::new(patterns));
        }
        Ok(())
    }

    /// Notes why the store does not answer, or that it does; a change is logged.
    fn say(&self, trouble: Option<String>) {
        let mut known = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*known, &trouble) {
            (None, Some(why)) => {
                tracing::error!("the rules cannot be read: {why}; those that were read stay in force");
            }
            (Some(_), None) => tracing::info!("the rules can be read again"),
            _ => return,
        }
        *known = trouble;
    }
}

/// A rule that can be judged. One that cannot was written by another version; it is logged and left out.
fn compiled(stored: Stored) -> Option<Arc<Compiled>> {
    let id = stored.rule.id.clone();
    Compiled::new(stored)
        .map_err(|mistakes| {
            let why: Vec<String> =
                mistakes.iter().map(|mistake| format!("{}: {}", mistake.field, mistake.detail)).collect();
            tracing::warn!("rule {id} is not in force: {}", why.join("; "));
        })
        .ok()
        .map(Arc::new)
}

/// The value of a part of a key, as rules see it.
fn value_of<'a>(part: &Part, value: &'a [u8]) -> KeyValue<'a> {
    let address = || {
        let v4 = <[u8; 4]>::try_from(value).ok().map(IpAddr::from);
        v4.or_else(|| <[u8; 16]>::try_from(value).ok().map(IpAddr::from))
    };
    match part {
        Part::Ip | Part::IpPrefix(_) | Part::Ipv4Prefix(_) => {
            address().map_or(KeyValue::Text(value), KeyValue::Address)
        }
        _ => KeyValue::Text(value),
    }
}
