//! A limit as rules see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use sluicegate_counters::{Fingerprint, KeySecret, KeyText};
use sluicegate_rules::Patterns;

use super::EffectId;
use sluicegate_config::{KeySpec, Part};
use sluicegate_route::keys;

/// A limit that may have rules. It outlives configurations.
pub struct RuledLimit {
    /// Its name.
    pub name: String,
    /// Keeps the keys of different limits apart in the cache.
    salt: u64,
    active: AtomicBool,
    /// Its rules for patterns of keys.
    pub(super) patterns: ArcSwap<Patterns>,
    reading: ArcSwapOption<Reading>,
}

/// How the texts of keys are read.
struct Reading {
    key: KeySpec,
    ipv6_prefix: u8,
    secret: KeySecret,
}

/// A key whose rule is not known.
#[derive(Clone)]
pub struct KeyQuestion {
    /// The limit.
    pub limit: Arc<RuledLimit>,
    /// The key.
    pub key: Fingerprint,
    /// The key in full.
    pub text: KeyText,
}

/// The rule of a key, for the request that waited for it.
#[derive(Clone, Copy, Debug)]
pub struct RuleAnswer {
    /// The key in the cache.
    pub(super) slot: u64,
    /// What its rule changes; `None` if it has none.
    pub effect: Option<EffectId>,
}

impl RuledLimit {
    pub(super) fn new(name: &str, salt: u64) -> Self {
        let patterns = ArcSwap::from_pointee(Patterns::default());
        let reading = ArcSwapOption::empty();
        Self { name: name.to_owned(), salt, active: AtomicBool::new(false), patterns, reading }
    }

    pub(super) fn read_keys(&self, key: KeySpec, ipv6_prefix: u8, secret: KeySecret) {
        self.reading.store(Some(Arc::new(Reading { key, ipv6_prefix, secret })));
    }

    /// The keys that a rule with this text is for; none if it cannot be a key of this limit.
    pub(super) fn keys(&self, text: &str) -> Vec<(Fingerprint, KeyText)> {
        let reading = self.reading.load();
        reading.as_ref().map_or_else(Vec::new, |reading| {
            keys::from_text(&reading.key, text, reading.ipv6_prefix, &reading.secret)
        })
    }

    /// Whether the value of a part of a key, the one at `index`, could also be read as another part that the key may have there.
    pub(super) fn reads_as_another(&self, index: usize, part: &Part, value: &[u8]) -> bool {
        let reading = self.reading.load();
        let alternatives = reading.as_ref().and_then(|reading| reading.key.alternatives().get(index));
        alternatives.is_some_and(|alternatives| keys::reads_as_another(alternatives, part, value))
    }

    /// Whether it has any rule.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    pub(super) fn activate(&self) {
        self.active.store(true, Ordering::Relaxed);
    }

    /// The key in the cache, never zero.
    #[inline]
    pub(super) fn slot(&self, key: Fingerprint) -> u64 {
        (key.get() ^ self.salt).max(1)
    }
}

impl RuleAnswer {
    /// The answer to a question among others.
    pub fn find(answers: &[Self], limit: &RuledLimit, key: Fingerprint) -> Option<Option<EffectId>> {
        let slot = limit.slot(key);
        answers.iter().find(|answer| answer.slot == slot).map(|answer| answer.effect)
    }
}
