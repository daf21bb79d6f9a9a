//! 5: the limits of the configuration in force, with their counters, in this process and in a shared store.
//!
//! `sluicegate_counters` decides what is counted in this process, `sluicegate_counters_redis` what a store counts;
//! [`shared`] decides requests of which some limits are counted there.

mod build;
mod selected;
pub mod shared;
mod store_settings;

use std::sync::Arc;

pub use sluicegate_counters::{
    Ask, Bans, Counters, Decision, Holds, Verdict, decide, decide_for_now, may_refuse, while_banned,
};
use sluicegate_counters::{CostKind, CountedLimit, LateCost, StoreFailurePolicy};
pub use sluicegate_counters_redis::{Peeked, Store, StoreState, StoreStatus};

pub use self::selected::SelectedLimit;
pub use self::store_settings::{settings, try_store};
use crate::keys::{self, Fingerprint, KeySecret};
use sluicegate_config::{Cost, LimitConfig, Mode, OnStoreFailure};

/// A limit of the configuration in force.
pub struct Limit {
    /// What the file says.
    pub config: LimitConfig,
    /// The limit with its counters, which live on when the file changes.
    pub counted: Arc<CountedLimit>,
    /// The key of all requests that lack theirs.
    pub missing: Fingerprint,
    /// The keys that it leaves alone.
    pub exempt: Vec<Fingerprint>,
    /// The only keys that it concerns, if it does not concern all.
    pub only: Vec<Fingerprint>,
    /// The same limit for those on a plan, by the plan's name.
    pub plans: Vec<(String, Arc<Limit>)>,
    /// The same limit with the quota that is tried.
    pub candidate: Option<Arc<Limit>>,
    /// What it allows, as clients are told.
    pub shown: Box<str>,
}

/// What a limit of the file is built with, besides what the file says.
#[derive(Clone)]
pub struct LimitParts<'a> {
    /// Its counters, which exist or are new.
    pub counters: Arc<Counters>,
    /// Its bans, likewise.
    pub bans: Option<Arc<Bans>>,
    /// Its place in the file: the one of the limit itself for its plans and its candidate.
    pub index: usize,
    /// Bits of an IPv6 address that make one client.
    pub ipv6_prefix: u8,
    /// The secret that keys are hashed with.
    pub secret: &'a KeySecret,
    /// What the names of its keys in a shared store begin with.
    pub key_prefix: &'a str,
}

impl Limit {
    /// A limit of the file.
    pub fn new(config: LimitConfig, parts: LimitParts<'_>) -> Self {
        let LimitParts { counters, bans, index, ipv6_prefix, secret, key_prefix } = parts;
        let readings = |value: &String| keys::from_text(&config.key, value, ipv6_prefix, secret);
        let fingerprints = |values: &[String]| -> Vec<Fingerprint> {
            values.iter().flat_map(readings).map(|(key, _)| key).collect()
        };
        let mut counted = CountedLimit {
            ban: config.ban,
            enforced: config.mode == Mode::Enforce,
            cost: cost_kind(&config.cost, index),
            bans,
            ..CountedLimit::new(&config.name, config.quota, counters)
        };
        if config.shared {
            let on_failure = match config.on_store_failure {
                OnStoreFailure::Local => StoreFailurePolicy::Local,
                OnStoreFailure::Open => StoreFailurePolicy::Open,
                OnStoreFailure::Closed => StoreFailurePolicy::Closed,
            };
            sluicegate_counters_redis::share(&mut counted, key_prefix, on_failure);
        }
        Self {
            counted: Arc::new(counted),
            missing: keys::fingerprint_of_missing(secret),
            exempt: fingerprints(&config.exempt.values),
            only: fingerprints(config.when.as_ref().map_or(&[], |when| &when.keys)),
            plans: Vec::new(),
            candidate: None,
            shown: config.quota.shown().to_string().into(),
            config,
        }
    }

    /// With these variants for some requests. The plans of a limit share the names of its keys in a store, where a
    /// debt under another quota is carried over; a candidate is counted apart.
    pub fn with_variants(mut self, plans: Vec<(String, Arc<Self>)>, candidate: Option<Self>) -> Self {
        self.plans = plans;
        self.candidate = candidate.map(Arc::new);
        self
    }

    /// The limit for those on this plan.
    #[inline]
    pub fn for_plan(self: &Arc<Self>, plan: Option<&str>) -> &Arc<Self> {
        let of_plan = plan.and_then(|plan| self.plans.iter().find(|(name, _)| name == plan));
        of_plan.map_or(self, |(_, limit)| limit)
    }

    /// The limit and its variants, each with counters of its own.
    pub fn all(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::once(self).chain(self.plans.iter().map(|(_, limit)| limit)).chain(&self.candidate)
    }

    /// Whether its refusal counts.
    #[inline]
    pub fn enforces(&self) -> bool {
        self.config.mode == Mode::Enforce
    }
}

/// When the cost of a request is known, on the limit at this place of the file.
fn cost_kind(cost: &Cost, index: usize) -> CostKind {
    match cost {
        Cost::Constant(cost) => CostKind::Constant(*cost),
        Cost::Detailed(cost) if cost.settles() => CostKind::Late(LateCost {
            limit: index,
            request_bytes: cost.request_bytes,
            response_bytes: cost.response_bytes,
        }),
        Cost::Header(_) | Cost::Detailed(_) => CostKind::PerRequest,
    }
}
