//! What a rule changes, apart from which key it is for. Many rules have the same effect, so the cache of keys holds its
//! number.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sluicegate_rules::{Rule, RuleMode};

/// What a rule changes of its limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Effect {
    /// The rate, as it is written.
    pub rate: Option<String>,
    /// The size of the bucket.
    pub burst: Option<u64>,
    /// The number of requests in flight.
    pub max: Option<u64>,
    /// The mode.
    pub mode: Option<RuleMode>,
    /// Whether the limit does not apply.
    pub exempt: bool,
}

/// The number of an effect in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectId(u32);

/// All effects that rules of this process have had, by number. Numbers are not used again.
#[derive(Default)]
pub(super) struct Effects(Mutex<Known>);

#[derive(Default)]
struct Known {
    ids: HashMap<Effect, u32>,
    effects: Vec<Effect>,
}

/// The largest number of different effects; keys with further ones are treated as if they had no rule, which is logged.
const MAX_EFFECTS: usize = 1 << 20;

impl Effect {
    /// The effect of a rule.
    pub fn of(rule: &Rule) -> Self {
        let Rule { rate, burst, max, mode, exempt, .. } = rule;
        Self { rate: rate.clone(), burst: *burst, max: *max, mode: *mode, exempt: *exempt }
    }

    /// Whether it changes the quota.
    pub fn has_numbers(&self) -> bool {
        self.rate.is_some() || self.burst.is_some() || self.max.is_some()
    }
}

impl EffectId {
    /// The number of "no rule".
    pub(super) const NONE: Self = Self(0);

    pub(super) fn from_number(number: u32) -> Self {
        Self(number)
    }

    pub(super) fn number(self) -> u32 {
        self.0
    }

    /// Its index among all effects.
    pub fn index(self) -> u32 {
        self.0 - 1
    }
}

impl Effects {
    /// The number of an effect; `None` if there are too many.
    pub(super) fn id(&self, effect: Effect) -> Option<EffectId> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = known.ids.get(&effect) {
            return Some(EffectId(*id));
        }
        if known.effects.len() >= MAX_EFFECTS {
            return None;
        }
        known.effects.push(effect.clone());
        let id = u32::try_from(known.effects.len()).ok()?;
        known.ids.insert(effect, id);
        Some(EffectId(id))
    }

    /// The effect with this number.
    pub(super) fn get(&self, id: EffectId) -> Effect {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.effects.get(id.index() as usize).cloned().unwrap_or_default()
    }
}
