//! A limit with its counters.

use std::sync::Arc;

use sluicegate_leases::Terms;
use sluicegate_limiter::{Ban, Quota, Refusal, Span, Time, Usage};

use crate::ban::Bans;
use crate::counters::Counters;
use crate::fingerprint::Fingerprint;
use crate::remote_state::RemoteState;

/// A limit with its counters. The counters and the bans outlive a change of the limit's numbers.
#[non_exhaustive]
pub struct CountedLimit {
    /// Its name, the same in every process that shares it.
    pub name: Box<str>,
    /// The algorithm with its numbers.
    pub quota: Quota,
    /// Whether refusals lead to a ban, and to which.
    pub ban: Option<Ban>,
    /// Whether the quota is that of single keys only: its counters are those of a limit whose other keys have another quota.
    pub of_single_keys: bool,
    /// Whether its refusal refuses the request. Otherwise it only counts requests.
    pub enforced: bool,
    /// When the cost of a request is known.
    pub cost: CostKind,
    /// How a store counts it for several processes; `None` if it is counted in this process alone.
    pub shared: Option<SharedLimit>,
    /// Its counters.
    pub counters: Arc<Counters>,
    /// The banned keys, if it bans.
    pub bans: Option<Arc<Bans>>,
}

/// When the cost of a request is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostKind {
    /// Always: every request costs the same.
    Constant(u64),
    /// When the request has arrived.
    PerRequest,
    /// When the response has arrived, or its body has ended.
    Late(LateCost),
}

/// A late cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LateCost {
    /// The number by which the caller finds the limit when it computes what a response costs.
    pub limit: usize,
    /// Whether the bytes of the request's body are charged.
    pub request_bytes: bool,
    /// Whether the bytes of the response's body are charged.
    pub response_bytes: bool,
}

/// How a store counts a limit for several processes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SharedLimit {
    /// The prefix of the names of its keys in the store.
    pub key_prefix: Vec<u8>,
    /// The argument for the store's scripts, if every request costs the same.
    pub argument: Option<Vec<u8>>,
    /// The longest time for which it refuses a key; `None` if late costs may lead to any debt.
    pub longest_wait: Option<Span>,
    /// How its requests are decided while the store fails.
    pub on_failure: StoreFailurePolicy,
    /// How its tokens are leased; `None` if the store decides about each request.
    pub leased: Option<Terms>,
}

/// How requests of a shared limit are decided while the store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailurePolicy {
    /// They are counted in this process.
    Local,
    /// The limit admits them.
    Open,
    /// They are refused.
    Closed,
}

impl LateCost {
    /// The late cost of the limit with this number, which bytes of bodies do not change.
    pub const fn of(limit: usize) -> Self {
        Self { limit, request_bytes: false, response_bytes: false }
    }
}

impl SharedLimit {
    /// A limit whose keys have names with this prefix, where each request may have another cost and the store decides about each.
    pub const fn new(key_prefix: Vec<u8>, on_failure: StoreFailurePolicy) -> Self {
        Self { key_prefix, argument: None, longest_wait: None, on_failure, leased: None }
    }
}

impl CountedLimit {
    /// An enforced limit of this process with its counters, where every request costs 1 and no refusal leads to a ban.
    pub fn new(name: &str, quota: Quota, counters: Arc<Counters>) -> Self {
        Self {
            name: name.into(),
            quota,
            of_single_keys: false,
            ban: None,
            enforced: true,
            cost: CostKind::Constant(1),
            shared: None,
            counters,
            bans: None,
        }
    }

    /// The quota, if it is that of single keys only.
    #[inline]
    pub fn own_quota(&self) -> Option<&Quota> {
        self.of_single_keys.then_some(&self.quota)
    }

    /// The usage of a key that a request would meet, by the state in this process; `None` if it has none.
    pub fn usage(&self, key: Fingerprint, now: Time) -> Option<Usage> {
        self.counters.usage_under(key, now, self.own_quota())
    }

    /// The usage of a key that was never seen.
    pub fn fresh(&self, now: Time) -> Usage {
        match self.of_single_keys {
            true => self.quota.fresh(now),
            false => self.counters.fresh(now),
        }
    }

    /// Replaces the state of a key by the one that a store returned at its time `now`, so that this process can decide from there.
    pub fn learn(&self, key: Fingerprint, state: &RemoteState, now: Time) {
        self.counters.learn(key, state, now, self.own_quota());
    }

    /// How its tokens are leased, if they are.
    #[inline]
    pub fn leased(&self) -> Option<&Terms> {
        self.shared.as_ref()?.leased.as_ref()
    }

    /// The late cost of its requests, if they have one.
    #[inline]
    pub fn late_cost(&self) -> Option<LateCost> {
        match self.cost {
            CostKind::Late(cost) => Some(cost),
            _ => None,
        }
    }

    /// Whether it is counted in a store and refuses while that is away.
    pub fn is_closed_without_store(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.on_failure == StoreFailurePolicy::Closed)
    }

    /// Whether its counters must see every request, also those that it refuses.
    pub fn counts_refusals(&self) -> bool {
        self.ban.is_some() || matches!(self.quota, Quota::SlidingLog(log, _) if log.counts_rejected())
    }

    /// The refusal of a request by the known state of its key.
    pub fn refusal(&self, key: Fingerprint, now: Time, cost: u64) -> Option<Refusal> {
        self.counters.refusal(key, now, cost, self.own_quota())
    }

    /// Whether the last state from the store was counted under the quota that the key has now. After a rule or the rate of an identity has
    /// changed it, the store has to convert its state before anything can be told from it.
    pub fn is_current(&self, key: Fingerprint) -> bool {
        self.counters.is_current(key, self.own_quota())
    }

    /// Replaces the state of a key by the one that the store returned after a correction. The state of a log then does not
    /// show until when it refuses, so the key is removed.
    pub fn relearn(&self, key: Fingerprint, state: &RemoteState, now: Time) {
        match state {
            RemoteState::SlidingLog(..) => _ = self.counters.pardon(key),
            _ => self.learn(key, state, now),
        }
    }

    /// Whether the last state from the store shows exactly until when the limit refuses. The state of a log has only the part
    /// that decides about requests of the same cost.
    pub fn remembers_refusals(&self) -> bool {
        !matches!(self.quota, Quota::SlidingLog(..)) || matches!(self.cost, CostKind::Constant(_))
    }

    /// Removes the states and bans of all keys.
    pub fn forget(&self) {
        self.counters.forget();
        if let Some(bans) = &self.bans {
            bans.forget();
        }
    }

    /// Removes the state and the ban of a key; returns whether there was anything.
    pub fn pardon(&self, key: Fingerprint) -> bool {
        let banned = self.bans.as_ref().is_some_and(|bans| bans.pardon(key));
        self.counters.pardon(key) || banned
    }

    /// The rest of a key's ban, as far as this process knows.
    pub fn banned_for(&self, key: Fingerprint, now: Time) -> Option<Span> {
        self.bans.as_ref().and_then(|bans| bans.left(key, now))
    }
}
