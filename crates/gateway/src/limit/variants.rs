//! The variants of a limit for keys that have rules: other numbers, the same counters.

use std::sync::{Arc, OnceLock};

use sluicegate_counters::CountedLimit;
use sluicegate_counters_redis::share;

use super::{Limit, Variant};
use crate::rules::{Effect, EffectId};
use sluicegate_config::Mode;
use sluicegate_limiter::Quota;
use sluicegate_rules::RuleMode;

impl Limit {
    /// What a rule with this effect makes of the limit.
    #[inline]
    pub fn with_effect(&self, id: EffectId, effect: impl FnOnce() -> Effect) -> &Variant {
        self.variants.get_or_init(Box::default).of_effect(id.index(), || self.variant(&effect()))
    }

    #[cold]
    fn variant(&self, effect: &Effect) -> Variant {
        if effect.exempt || effect.mode == Some(RuleMode::Off) {
            return Variant::Exempt;
        }
        let quota = match effect.has_numbers() {
            true => match self.config.with_numbers(effect.rate.as_deref(), effect.burst, effect.max) {
                Ok(quota) => self.config.of_region(quota),
                Err(why) => {
                    tracing::warn!("a rule does not fit limit {}: {}", self.config.name, why.join("; "));
                    return Variant::Unchanged;
                }
            },
            false => self.config.quota,
        };
        let limit = self.of_single_keys(quota, self.mode_under(effect));
        Variant::Limit { limit: Arc::new(limit), has_rate: effect.rate.is_some() }
    }

    /// The mode of the limit for a key whose rule has this effect.
    pub(super) fn mode_under(&self, effect: &Effect) -> Mode {
        match effect.mode {
            Some(RuleMode::Enforce) => Mode::Enforce,
            Some(RuleMode::Shadow) => Mode::Shadow,
            Some(RuleMode::Off) | None => self.config.mode,
        }
    }

    /// The limit with another quota and mode for single keys. It has the same counters and bans.
    pub(super) fn of_single_keys(&self, quota: Quota, mode: Mode) -> Self {
        let known = &*self.counted;
        let lease =
            self.config.lease(&quota).ok().filter(|_| known.shared.is_some() && mode == Mode::Enforce);
        let in_force = lease.map_or(quota, |(quota, _)| quota);
        let mut counted = CountedLimit::new(&self.config.name, in_force, Arc::clone(&known.counters));
        counted.of_single_keys = true;
        counted.ban = known.ban;
        counted.enforced = mode == Mode::Enforce;
        counted.cost = known.cost;
        counted.bans = known.bans.clone();
        if let Some(shared) = &known.shared {
            let leased = lease.map(|(_, terms)| terms);
            share(&mut counted, &shared.key_prefix, shared.on_failure, leased);
        }
        Self {
            counted: Arc::new(counted),
            missing: self.missing,
            exempt: Vec::new(),
            only: Vec::new(),
            plans: Vec::new(),
            candidate: None,
            fair: None,
            penalty: self.penalty.clone(),
            warned: self.warned.clone(),
            variants: OnceLock::new(),
            identity_rates: OnceLock::new(),
            shown: quota.shown().to_string().into(),
            config: Arc::clone(&self.config),
        }
    }
}
