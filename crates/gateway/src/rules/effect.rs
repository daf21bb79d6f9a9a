//! What a rule changes, apart from which key it is for. Many rules have the same effect, so the cache of keys holds its
//! number.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};

use sluicegate_rules::{Rule, RuleMode};
use smallvec::SmallVec;

/// What a rule changes of its limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Effect {
    /// The rate, as it is written.
    pub rate: Option<Box<str>>,
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
    /// The numbers of the effects, found by their hashes.
    ids: HashMap<u64, SmallVec<[u32; 2]>>,
    effects: Vec<Effect>,
    hasher: RandomState,
}

/// The largest number of different effects. There are fewer: [`Rules`](super::Rules) are emptied long before.
const MAX_EFFECTS: usize = 1 << 26;

impl Effect {
    /// The effect of a rule.
    pub fn of(rule: &Rule) -> Self {
        let Rule { rate, burst, max, mode, exempt, .. } = rule;
        Self { rate: rate.as_deref().map(Box::from), burst: *burst, max: *max, mode: *mode, exempt: *exempt }
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
        let Known { ids, effects, hasher } = &mut *known;
        let same_hash = ids.entry(hasher.hash_one(&effect)).or_default();
        if let Some(id) = same_hash.iter().find(|id| effects[**id as usize - 1] == effect) {
            return Some(EffectId(*id));
        }
        if effects.len() >= MAX_EFFECTS {
            return None;
        }
        effects.push(effect);
        let id = u32::try_from(effects.len()).ok()?;
        same_hash.push(id);
        Some(EffectId(id))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).effects.len()
    }

    /// The effect with this number.
    pub(super) fn get(&self, id: EffectId) -> Effect {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.effects.get(id.index() as usize).cloned().unwrap_or_default()
    }
}
