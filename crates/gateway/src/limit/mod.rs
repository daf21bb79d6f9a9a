//! The limits of the configuration in force, with their counters, in this process and in a shared store.
//!
//! `sluicegate_counters` decides what is counted in this process, `sluicegate_counters_redis` what a store counts;
//! [`shared`] decides requests of which some limits are counted there.

mod build;
mod counting;
mod fair;
mod identity_rates;
mod leased;
mod made_variants;
mod penalty;
mod selected;
pub mod shared;
mod variants;
mod warned;

use std::sync::{Arc, OnceLock};

pub use sluicegate_counters::{
    Ask, Bans, Counters, Decision, Holds, LeaseCounts, Verdict, decide, decide_for_now, may_refuse,
    while_banned,
};
use sluicegate_counters::{CostKind, CountedLimit, LateCost, StoreFailurePolicy};
pub use sluicegate_counters_redis::{Peeked, Store, StoreState, StoreStatus};

pub use self::counting::{Counted, Counting, counting, counting_in_force};
pub use self::fair::{capacity, decide_fairly, decide_fairly_in_store, preview_shares};
pub use self::leased::decide_leased;
use self::made_variants::{RatedVariants, RuledVariants};
pub use self::penalty::SlowerLane;
pub use self::selected::{Decided, DecidedLimit, FairAsk, SelectedLimit};
use self::warned::Warned;
use sluicegate_config::{Cost, LimitConfig, Mode, OnStoreFailure};
use sluicegate_limiter::Usage;
use sluicegate_route::keys::{self, Fingerprint, KeySecret};
use sluicegate_upstream::fair_shares::FairShares;

/// What a rule makes of a limit.
pub type Variant = made_variants::Variant<Limit>;

/// A limit of the configuration in force.
pub struct Limit {
    /// Its configuration. A variant for single keys has that of its limit, with other numbers in `counted`.
    pub config: Arc<LimitConfig>,
    /// The limit with its counters, which survive a reload.
    pub counted: Arc<CountedLimit>,
    /// The key of all requests that do not have the configured key.
    pub missing: Fingerprint,
    /// The exempt keys.
    pub exempt: Vec<Fingerprint>,
    /// The keys to which it applies; empty for all.
    pub only: Vec<Fingerprint>,
    /// The variants of the limit for plans, by the name of the plan.
    pub plans: Vec<(String, Arc<Limit>)>,
    /// The variant with the candidate quota.
    pub candidate: Option<Arc<Limit>>,
    /// Its fair shares, if it is divided.
    pub fair: Option<Arc<FairShares>>,
    /// The slower lane of requests above the limit, if it has one.
    pub penalty: Option<Arc<Limit>>,
    /// The keys that were warned, if it warns.
    pub warned: Option<Arc<Warned>>,
    /// Its variants for keys that have rules.
    variants: OnceLock<Box<RuledVariants<Self>>>,
    /// Its variants for the rates that identities name.
    identity_rates: OnceLock<Box<RatedVariants<Self>>>,
    /// The quota as it is reported to clients.
    pub shown: Box<str>,
}

/// What a limit is built from, besides its configuration.
#[derive(Clone)]
pub struct LimitParts<'a> {
    /// Its counters, kept or new.
    pub counters: Arc<Counters>,
    /// Its bans, kept or new.
    pub bans: Option<Arc<Bans>>,
    /// Its index in the file; plans and the candidate have the index of their limit.
    pub index: usize,
    /// The length of the IPv6 prefix that counts as one client.
    pub ipv6_prefix: u8,
    /// The secret that keys are hashed with.
    pub secret: &'a KeySecret,
    /// The beginning of the names of its keys in a shared store.
    pub key_prefix: &'a str,
}

impl Limit {
    /// Builds a limit.
    pub fn new(config: LimitConfig, parts: LimitParts<'_>) -> Self {
        let LimitParts { counters, bans, index, ipv6_prefix, secret, key_prefix } = parts;
        let readings = |value: &String| keys::from_text(&config.key, value, ipv6_prefix, secret);
        let fingerprints = |values: &[String]| -> Vec<Fingerprint> {
            values.iter().flat_map(readings).map(|(key, _)| key).collect()
        };
        let lease = config.lease(&config.quota).ok().filter(|_| config.shared);
        let quota = lease.map_or(config.quota, |(quota, _)| quota);
        let mut counted = CountedLimit {
            ban: config.ban,
            enforced: config.mode == Mode::Enforce,
            cost: cost_kind(&config.cost, index),
            bans,
            ..CountedLimit::new(&config.name, quota, counters)
        };
        if config.shared {
            let on_failure = match config.on_store_failure {
                OnStoreFailure::Local => StoreFailurePolicy::Local,
                OnStoreFailure::Open => StoreFailurePolicy::Open,
                OnStoreFailure::Closed => StoreFailurePolicy::Closed,
            };
            let leased = lease.map(|(_, terms)| terms);
            sluicegate_counters_redis::share(&mut counted, key_prefix.as_bytes(), on_failure, leased);
        }
        Self {
            counted: Arc::new(counted),
            missing: keys::fingerprint_of_missing(secret),
            exempt: fingerprints(&config.exempt.values),
            only: fingerprints(config.when.as_ref().map_or(&[], |when| &when.keys)),
            plans: Vec::new(),
            candidate: None,
            fair: None,
            penalty: None,
            warned: config.warn.map(|part| Arc::new(Warned::new(part))),
            variants: OnceLock::new(),
            identity_rates: OnceLock::new(),
            shown: config.quota.shown().to_string().into(),
            config: Arc::new(config),
        }
    }

    /// Adds the variants. The plans of a limit share the names of its keys in a store, where the debt under another
    /// quota is converted; a candidate has keys of its own.
    pub fn with_variants(mut self, plans: Vec<(String, Arc<Self>)>, candidate: Option<Self>) -> Self {
        self.plans = plans;
        self.candidate = candidate.map(Arc::new);
        self
    }

    /// The variant for this plan, or the limit itself.
    #[inline]
    pub fn for_plan(self: &Arc<Self>, plan: Option<&str>) -> &Arc<Self> {
        let of_plan = plan.and_then(|plan| self.plans.iter().find(|(name, _)| name == plan));
        of_plan.map_or(self, |(_, limit)| limit)
    }

    /// The limit and its variants, each with its own counters.
    pub fn all(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::once(self).chain(self.plans.iter().map(|(_, limit)| limit)).chain(&self.candidate)
    }

    /// The limit, its variants for plans, and those for rules and identities that requests have needed so far. All count
    /// in the store as one limit.
    pub fn in_use(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        let of_file = || std::iter::once(self).chain(self.plans.iter().map(|(_, limit)| limit));
        let of_rules = of_file().filter_map(|limit| limit.variants.get()).flat_map(|all| all.limits());
        let of_identities =
            of_file().filter_map(|limit| limit.identity_rates.get()).flat_map(|all| all.limits());
        of_file().chain(of_rules).chain(of_identities)
    }

    /// Whether a client is warned that has so much left: the part of the limit that it has used is that of the file or more.
    #[inline]
    pub fn warns(&self, usage: Usage) -> bool {
        self.warned.as_ref().is_some_and(|warned| warned.warns(usage))
    }

    /// Whether its refusals are enforced.
    #[inline]
    pub fn enforces(&self) -> bool {
        self.counted.enforced
    }
}

/// When the cost of a request on a limit is known.
fn cost_kind(cost: &Cost, index: usize) -> CostKind {
    match cost {
        Cost::Constant(cost) => CostKind::Constant(*cost),
        Cost::Detailed(cost) if cost.settles() => CostKind::Late(LateCost {
            limit: index,
            request_bytes: cost.request_bytes,
            response_bytes: cost.response_bytes,
        }),
        Cost::Header(_) | Cost::Check | Cost::Hits | Cost::Detailed(_) => CostKind::PerRequest,
    }
}
