//! The limits of a layer with their counters: what all clones of the layer share.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use http::HeaderValue;
use http::request::Parts;
use sluicegate_counters::{CostKind, CountedLimit, Counters, Fingerprint, KeySecret, LateCost};
use sluicegate_limiter::{Quota, Time, Usage};

use crate::clock::Clock;
use crate::error::BuildError;
use crate::families::HeaderFamilies;
use crate::key::{Key, KeyHasher};
use crate::limit::{Cost, LateCostOf, Limit, OnMissing, When};
use crate::outcome::Outcome;
use crate::refusal::Refusals;

/// The limits of a layer, and what they share.
pub(crate) struct Shared {
    pub(crate) limits: Vec<BuiltLimit>,
    pub(crate) secret: KeySecret,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) families: HeaderFamilies,
    pub(crate) refusals: Option<Box<Refusals>>,
    pub(crate) observer: Option<Box<Observer>>,
}

/// Is told what each limit did with a request.
pub(crate) type Observer = dyn Fn(&str, Outcome) + Send + Sync;

/// A limit with its counters.
pub(crate) struct BuiltLimit {
    pub(crate) counted: Arc<CountedLimit>,
    /// The value of X-RateLimit-Limit.
    pub(crate) shown: HeaderValue,
    pub(crate) late: Option<Box<LateCostOf>>,
    key: Box<dyn Key>,
    on_missing: OnMissing,
    when: Option<Box<When>>,
    cost: Cost,
}

/// How a limit applies to a request.
pub(crate) enum Applies {
    /// It counts this key, which is charged so much.
    To(Fingerprint, u64),
    /// Not at all.
    Not,
    /// The request does not have the key and is skipped.
    Skips,
    /// The request does not have the key and is to be refused.
    Denies,
}

/// The key of the requests that have none. A key that is hashed has it with a probability of 2⁻⁶³.
fn missing() -> Fingerprint {
    Fingerprint::from_hash(1)
}

impl Shared {
    /// The limit with this name, and its index.
    pub(crate) fn find(&self, name: &str) -> Option<(usize, &BuiltLimit)> {
        self.limits.iter().enumerate().find(|(_, limit)| limit.name() == name)
    }

    /// The fingerprint of a key that is known outside of a request.
    pub(crate) fn fingerprint(&self, key: &(impl Hash + ?Sized)) -> Fingerprint {
        Fingerprint::from_hash(self.secret.hash_one(key))
    }

    /// Whether somebody is told what limits did with a request.
    pub(crate) fn is_watched(&self) -> bool {
        self.observer.is_some() || self.limits.iter().any(|limit| !limit.enforces())
    }

    pub(crate) fn observe(&self, limit: &BuiltLimit, outcome: Outcome) {
        if let Some(observer) = &self.observer {
            observer(limit.name(), outcome);
        }
    }
}

impl BuiltLimit {
    /// Builds the limit that has this index in its layer.
    pub(crate) fn new(limit: Limit, index: usize) -> Result<Self, BuildError> {
        let name = limit.name;
        let algorithm = limit.numbers.algorithm();
        let is_good = |byte: u8| (byte == b' ' || byte.is_ascii_graphic()) && byte != b'"' && byte != b'\\';
        if name.is_empty() || !name.bytes().all(is_good) {
            return Err(BuildError::Name(name));
        }
        if algorithm == "leaky_bucket" {
            return Err(BuildError::Delays(name));
        }
        if let Some(setting) = limit.misplaced {
            return Err(BuildError::Setting { limit: name, setting, algorithm });
        }
        if algorithm == "concurrency" && limit.late.is_some() {
            return Err(BuildError::Setting { limit: name, setting: "late cost", algorithm });
        }
        if limit.max_keys == 0 {
            return Err(BuildError::NoKeys(name));
        }
        if let Err(problem) = limit.key.check() {
            return Err(BuildError::Key { limit: name, problem });
        }
        let quota = match limit.numbers.quota() {
            Ok(quota) => quota,
            Err(error) => return Err(BuildError::Quota { limit: name, error }),
        };
        let capacity = quota.capacity();
        if let Cost::Constant(cost) = limit.cost
            && cost > capacity
        {
            return Err(BuildError::Cost { limit: name, cost, capacity });
        }
        let counted =
            counted(&name, quota, limit.max_keys, limit.enforced, limit.late.is_some().then_some(index));
        Ok(Self {
            counted: Arc::new(counted),
            shown: HeaderValue::from(quota.shown()),
            late: limit.late,
            key: limit.key,
            on_missing: limit.on_missing,
            when: limit.when,
            cost: limit.cost,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.counted.name
    }

    pub(crate) fn quota(&self) -> &Quota {
        &self.counted.quota
    }

    pub(crate) fn enforces(&self) -> bool {
        self.counted.enforced
    }

    /// How the limit applies to a request.
    pub(crate) fn applies(&self, request: &Parts, secret: &KeySecret) -> Applies {
        if self.when.as_ref().is_some_and(|when| !when(request)) {
            return Applies::Not;
        }
        let mut hasher = KeyHasher(secret.build_hasher());
        let key = match (self.key.write(request, &mut hasher), self.on_missing) {
            (true, _) => Fingerprint::from_hash(hasher.finish()),
            (false, OnMissing::Shared) => missing(),
            (false, OnMissing::Skip) => return Applies::Skips,
            (false, OnMissing::Deny) => return Applies::Denies,
        };
        let cost = match &self.cost {
            Cost::Constant(cost) => *cost,
            Cost::Of(cost) => cost(request),
        };
        Applies::To(key, cost)
    }

    /// What a key has left.
    pub(crate) fn usage(&self, key: Fingerprint, now: Time) -> Usage {
        self.counted.usage(key, now).unwrap_or_else(|| self.counted.fresh(now))
    }
}

fn counted(name: &str, quota: Quota, max_keys: usize, enforced: bool, late: Option<usize>) -> CountedLimit {
    let mut counted = CountedLimit::new(name, quota, Arc::new(Counters::new(&quota, max_keys)));
    counted.enforced = enforced;
    counted.cost = match late {
        Some(limit) => CostKind::Late(LateCost::of(limit)),
        None => CostKind::PerRequest,
    };
    counted
}
