//! Builds limits with counters from a configuration. Counters of unchanged limits are kept.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_limiter::{Quota, Time};

use super::{Bans, Counters, Limit, LimitParts};
use crate::resources::LoadedConfig;
use sluicegate_config::{LimitConfig, Mode};
use sluicegate_route::keys::KeySecret;
use sluicegate_upstream::fair_shares::FairShares;

/// Builds the limits of a configuration that follows another.
struct Builder<'a> {
    config: &'a LoadedConfig,
    secret: &'a KeySecret,
    now: Time,
}

impl Limit {
    /// The limits of `config` that follow `before`. A limit that keeps its name, key, algorithm and scope keeps its
    /// counters, rescaled to the new quota at `now`. `is_current` says
    /// whether what a limit of `before` was made of has not changed, apart from the part of a region.
    pub fn all_of(
        config: &LoadedConfig,
        before: &[Arc<Self>],
        is_current: impl Fn(&Self) -> bool,
        secret: &KeySecret,
        now: Time,
    ) -> Vec<Arc<Self>> {
        let before: HashMap<&str, &Arc<Self>> =
            before.iter().map(|limit| (limit.config.name.as_str(), limit)).collect();
        let builder = Builder { config, secret, now };
        let limits = config.limits.iter().enumerate();
        limits
            .map(|(index, limit)| {
                let (old, division) = (before.get(limit.name.as_str()).copied(), config.division(index));
                let unchanged = old.filter(|old| old.config.division == division && is_current(old));
                unchanged.map_or_else(|| builder.limit(&limit.in_region(division), old, index), Arc::clone)
            })
            .collect()
    }
}

impl Builder<'_> {
    /// A limit with its plans and its candidate.
    fn limit(&self, limit: &LimitConfig, old: Option<&Arc<Limit>>, index: usize) -> Arc<Limit> {
        // A ban applies to the key on all plans of the limit; a candidate bans nobody.
        let known = old.filter(|old| old.config.key == limit.key).and_then(|old| old.counted.bans.as_ref());
        let bans = Bans::following(limit.ban, limit.max_keys, known, self.now);
        let lane = limit.penalty.filter(|_| limit.mode != Mode::Off).map(|quota| {
            let mut config = limit.variant(quota, limit.mode);
            config.penalty = None;
            let old = old.and_then(|old| old.penalty.as_ref());
            Arc::new(self.one(config, old, None, (index, "+penalty")))
        });
        let of_plan = |(name, quota): &(String, Quota)| {
            let old = old.and_then(|old| old.plans.iter().find(|(plan, _)| plan == name));
            let config = limit.of_plan(name, *quota);
            let mut made = self.one(config, old.map(|(_, limit)| limit), bans.clone(), (index, ""));
            made.penalty.clone_from(&lane);
            (name.clone(), Arc::new(made))
        };
        let plans = limit.plans.iter().map(of_plan).collect();
        let tried = limit.candidate.filter(|_| limit.mode != Mode::Off);
        let candidate = tried.map(|quota| {
            let mut config = limit.variant(quota, Mode::Shadow);
            config.ban = None;
            let old = old.and_then(|old| old.candidate.as_ref());
            self.one(config, old, None, (index, "+candidate"))
        });
        let mut made = self.one(limit.clone(), old, bans.clone(), (index, ""));
        made.penalty = lane;
        made.fair = limit
            .fair
            .as_ref()
            .map(|fair| FairShares::following(fair, old.and_then(|old| old.fair.as_ref()), self.now));
        Arc::new(made.with_variants(plans, candidate))
    }

    /// A limit or a variant of one. `suffix` follows the name of the limit in the names of its keys in a store.
    fn one(
        &self,
        limit: LimitConfig,
        old: Option<&Arc<Limit>>,
        bans: Option<Arc<Bans>>,
        (index, suffix): (usize, &str),
    ) -> Limit {
        let kept = old
            .filter(|old| keeps_counters(&old.config, &limit))
            .filter(|old| carry_over(old, &limit, self.now))
            .map(|old| Arc::clone(&old.counted.counters));
        let counters = kept.unwrap_or_else(|| Arc::new(Counters::new(&in_force(&limit), limit.max_keys)));
        let prefix = self.config.store.as_ref().map_or("", |store| store.prefix.as_str());
        let parts = LimitParts {
            counters,
            bans,
            index,
            ipv6_prefix: self.config.client_ip.ipv6_prefix,
            secret: self.secret,
            key_prefix: &format!("{prefix}:{}{suffix}:{}:", limit.name, algorithm_in_names(&limit.quota)),
        };
        let is_kept = old.is_some_and(|old| Arc::ptr_eq(&old.counted.counters, &parts.counters));
        let mut made = Limit::new(limit, parts);
        if let Some(warned) = old.and_then(|old| old.warned.as_ref()).filter(|_| is_kept)
            && warned.is_at(made.config.warn)
        {
            made.warned = Some(Arc::clone(warned)); // who was warned is not counted again
        }
        made
    }
}

/// The algorithm in the names of keys in a store. While the gateways of a fleet have different algorithms for a limit, as in a rolling
/// update, each counts on its own: the algorithms cannot read each other's values.
const fn algorithm_in_names(quota: &Quota) -> &'static str {
    match quota {
        Quota::TokenBucket(..) => "tb",
        Quota::LeakyBucket(..) => "lb",
        Quota::FixedWindow(..) => "fw",
        Quota::SlidingLog(..) => "sl",
        Quota::SlidingWindow(..) => "sw",
        Quota::Concurrency(..) => "cc",
    }
}

/// Changes the counters of `old` to the quota of `new`. Returns whether that is possible.
fn carry_over(old: &Limit, new: &LimitConfig, now: Time) -> bool {
    let counters = &old.counted.counters;
    if in_force(&old.config) == in_force(new) && old.config.max_keys == new.max_keys {
        return true;
    }
    if new.shared {
        // This is only a copy of the state in the store, on the clock of the store, which will report it rescaled.
        counters.forget();
    }
    counters.reconfigure(&in_force(new), new.max_keys, now)
}

/// The quota that is enforced: with leases that may admit nothing too much, it is smaller than the configured one.
fn in_force(limit: &LimitConfig) -> Quota {
    limit.lease(&limit.quota).ok().filter(|_| limit.shared).map_or(limit.quota, |(quota, _)| quota)
}

/// Whether counters of `old` have the same meaning under `new`.
fn keeps_counters(old: &LimitConfig, new: &LimitConfig) -> bool {
    old.key == new.key && old.quota.algorithm() == new.quota.algorithm() && old.shared == new.shared
}
