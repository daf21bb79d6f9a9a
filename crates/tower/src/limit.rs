//! A limit as it is described, before it is built.

use std::hash::Hash;

use http::{request, response};
use sluicegate_limiter::{Quota, Span};

use crate::key::{By, Everyone, Key};
use crate::numbers::Numbers;

/// A named limit: how many requests of a key are admitted.
///
/// Without a [`key`](Self::key) it counts all requests together. What is wrong with it is reported when a layer is built.
#[must_use]
pub struct Limit {
    pub(crate) name: String,
    pub(crate) numbers: Numbers,
    pub(crate) key: Box<dyn Key>,
    pub(crate) on_missing: OnMissing,
    pub(crate) when: Option<Box<When>>,
    pub(crate) cost: Cost,
    pub(crate) late: Option<Box<LateCostOf>>,
    pub(crate) enforced: bool,
    pub(crate) max_keys: usize,
    /// The settings that the algorithm does not have.
    pub(crate) misplaced: Option<&'static str>,
}

/// Whether a limit applies to a request.
pub(crate) type When = dyn Fn(&request::Parts) -> bool + Send + Sync;
/// The cost of a request, from the head of its response; `None` if that does not say it.
pub(crate) type LateCostOf = dyn Fn(&response::Parts) -> Option<u64> + Send + Sync;

/// The cost of a request before its response.
pub(crate) enum Cost {
    Constant(u64),
    Of(Box<dyn Fn(&request::Parts) -> u64 + Send + Sync>),
}

/// What becomes of a request that does not have the key of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissing {
    /// All such requests share one key, so that leaving the key out frees nobody.
    #[default]
    Shared,
    /// The limit does not apply.
    Skip,
    /// It is refused with 401.
    Deny,
}

/// The cost of a request, which the service behind the layer puts into the extensions of its response.
///
/// It replaces what was charged before, for the limits with a [late cost](Limit::late_cost).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseCost(pub u64);

impl Limit {
    /// A limit with this quota, for quotas that the other functions cannot make. A leaky bucket is an error when the layer is
    /// built: it delays requests, and the layer has no timer.
    pub fn new(name: impl Into<String>, quota: Quota) -> Self {
        Self::of(name.into(), Numbers::Quota(quota))
    }

    /// A bucket of `count` tokens, or as many as [`burst`](Self::burst) says, refilled continuously with `count` per period.
    pub fn token_bucket(name: impl Into<String>, count: u64, period: impl Into<Span>) -> Self {
        Self::of(name.into(), Numbers::TokenBucket { count, period: period.into(), burst: None })
    }

    /// At most `count` in each window. Windows begin at whole multiples of the period since the Unix epoch.
    pub fn fixed_window(name: impl Into<String>, count: u64, period: impl Into<Span>) -> Self {
        Self::of(name.into(), Numbers::FixedWindow { count, period: period.into() })
    }

    /// At most `count` in the last period, estimated by counts of sub-windows. See [`slices`](Self::slices) and
    /// [`strict`](Self::strict).
    pub fn sliding_window(name: impl Into<String>, count: u64, period: impl Into<Span>) -> Self {
        let period = period.into();
        Self::of(name.into(), Numbers::SlidingWindow { count, period, slices: 1, strict: false })
    }

    /// At most `count` in any window of one period. It keeps each admitted request.
    pub fn sliding_log(name: impl Into<String>, count: u64, period: impl Into<Span>) -> Self {
        let period = period.into();
        Self::of(name.into(), Numbers::SlidingLog { count, period, count_rejected: false })
    }

    /// At most `max` requests at once. A request has ended when the body of its response has ended or was dropped.
    pub fn concurrency(name: impl Into<String>, max: u64) -> Self {
        Self::of(name.into(), Numbers::Concurrency { max })
    }

    fn of(name: String, numbers: Numbers) -> Self {
        Self {
            name,
            numbers,
            key: Box::new(Everyone),
            on_missing: OnMissing::Shared,
            when: None,
            cost: Cost::Constant(1),
            late: None,
            enforced: true,
            max_keys: 1_000_000,
            misplaced: None,
        }
    }

    /// The size of a token bucket.
    pub fn burst(mut self, tokens: u64) -> Self {
        match &mut self.numbers {
            Numbers::TokenBucket { burst, .. } => *burst = Some(tokens),
            _ => self.misplaced = Some("burst"),
        }
        self
    }

    /// The sub-windows of a sliding window; 1 without it.
    pub fn slices(mut self, number: u32) -> Self {
        match &mut self.numbers {
            Numbers::SlidingWindow { slices, .. } => *slices = number,
            _ => self.misplaced = Some("slices"),
        }
        self
    }

    /// The oldest sub-window of a sliding window counts in full: never more than the count in any window of one period.
    pub fn strict(mut self) -> Self {
        match &mut self.numbers {
            Numbers::SlidingWindow { strict, .. } => *strict = true,
            _ => self.misplaced = Some("strict"),
        }
        self
    }

    /// Refused requests take places of a sliding log, too.
    pub fn count_rejected(mut self) -> Self {
        match &mut self.numbers {
            Numbers::SlidingLog { count_rejected, .. } => *count_rejected = true,
            _ => self.misplaced = Some("count_rejected"),
        }
        self
    }

    /// What the limit counts separately.
    pub fn key(self, key: impl Key) -> Self {
        Self { key: Box::new(key), ..self }
    }

    /// Like [`key`](Self::key), for a key that the closure returns; `None` if the request has none.
    pub fn key_by<K: Hash + 'static>(
        self,
        key: impl Fn(&request::Parts) -> Option<K> + Send + Sync + 'static,
    ) -> Self {
        self.key(By::new(key))
    }

    /// What becomes of a request without the key; [`OnMissing::Shared`] without it.
    pub fn on_missing(self, on_missing: OnMissing) -> Self {
        Self { on_missing, ..self }
    }

    /// The limit applies only to requests for which the closure returns true.
    pub fn when(self, when: impl Fn(&request::Parts) -> bool + Send + Sync + 'static) -> Self {
        Self { when: Some(Box::new(when)), ..self }
    }

    /// The cost of each request; 1 without it.
    pub fn cost(self, cost: u64) -> Self {
        Self { cost: Cost::Constant(cost), ..self }
    }

    /// The cost of a request. A request that costs more than the limit can hold is refused without Retry-After.
    pub fn cost_by(self, cost: impl Fn(&request::Parts) -> u64 + Send + Sync + 'static) -> Self {
        Self { cost: Cost::Of(Box::new(cost)), ..self }
    }

    /// The response says what the request costs, by [`ResponseCost`] or a [`CostMeter`](crate::CostMeter) in its extensions.
    ///
    /// The [`cost`](Self::cost) is then a reserve: it is charged before, and the difference is charged or refunded when the cost is
    /// known. It stays charged if there is no response, or it does not say a cost. What is over what the key had left is a debt,
    /// for which its next requests wait.
    pub fn late_cost(self) -> Self {
        self.late_cost_by(|response| response.extensions.get().map(|ResponseCost(cost)| *cost))
    }

    /// Like [`late_cost`](Self::late_cost), with a closure that computes the cost from the head of the response:
    /// `|response| Some(u64::from(response.status == 401))` counts failed logins only.
    pub fn late_cost_by(
        self,
        cost: impl Fn(&response::Parts) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        Self { late: Some(Box::new(cost)), ..self }
    }

    /// Counts and reports, but refuses nobody. What it would have refused is told to the [observer] and to the service, as
    /// [`ShadowRefused`](crate::ShadowRefused) in the extensions of the request.
    ///
    /// [observer]: crate::Builder::observer
    pub fn shadow(self) -> Self {
        Self { enforced: false, ..self }
    }

    /// The largest number of keys that are counted separately, by default a million; further keys share one counter while so
    /// many owe something. A key takes memory from its first request until it owes nothing.
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys, ..self }
    }
}

impl std::fmt::Debug for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limit")
            .field("name", &self.name)
            .field("numbers", &self.numbers)
            .finish_non_exhaustive()
    }
}
