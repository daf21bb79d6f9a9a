//! A limit as its counters know it.

use std::sync::Arc;

use sluicegate_limiter::{Ban, Quota, Refusal, Span, Time};

use crate::{Ask, Bans, Counters, Fingerprint, RemoteState};

/// A limit with its counters. The counters and the bans outlive a change of the limit's numbers.
pub struct CountedLimit {
    /// Its name, the same in every process that shares it.
    pub name: Box<str>,
    /// The algorithm with its numbers.
    pub quota: Quota,
    /// Whether refusals lead to a ban, and to which.
    pub ban: Option<Ban>,
    /// Whether its refusal refuses the request. Otherwise it only counts.
    pub enforced: bool,
    /// When the cost of a request is known.
    pub cost: CostKind,
    /// How a store counts it for several processes; `None` if it is counted in this process alone.
    pub shared: Option<SharedLimit>,
    /// Its counters.
    pub counters: Arc<Counters>,
    /// Who is banned, if it bans.
    pub bans: Option<Arc<Bans>>,
}

/// When the cost of a request is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostKind {
    /// Always: every request costs the same.
    Constant(u64),
    /// When the request is there.
    PerRequest,
    /// When the response is there, or its body has ended.
    Late(LateCost),
}

/// A cost that is known late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
pub struct SharedLimit {
    /// What the names of its keys in the store begin with.
    pub key_prefix: Vec<u8>,
    /// The limit and the cost as the store reads them, if every request costs the same.
    pub argument: Option<Vec<u8>>,
    /// The longest time for which it refuses a key; `None` where late costs may take any time to be paid.
    pub longest_wait: Option<Span>,
    /// What becomes of its requests while the store fails.
    pub on_failure: StoreFailurePolicy,
}

/// What becomes of a shared limit's requests while the store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailurePolicy {
    /// They are counted in this process.
    Local,
    /// The limit admits them.
    Open,
    /// They are refused.
    Closed,
}

impl CountedLimit {
    /// An enforced limit of this process with its counters, where every request costs 1 and no refusal leads to a ban.
    pub fn new(name: &str, quota: Quota, counters: Arc<Counters>) -> Self {
        Self {
            name: name.into(),
            quota,
            ban: None,
            enforced: true,
            cost: CostKind::Constant(1),
            shared: None,
            counters,
            bans: None,
        }
    }

    /// The late cost of its requests, if they have one.
    #[inline]
    pub fn late_cost(&self) -> Option<LateCost> {
        match self.cost {
            CostKind::Late(cost) => Some(cost),
            _ => None,
        }
    }

    /// Whether whoever counts it must see every request, also those that it refuses.
    pub fn counts_refusals(&self) -> bool {
        self.ban.is_some() || matches!(self.quota, Quota::SlidingLog(log, _) if log.counts_rejected())
    }

    /// Whether it refuses a request at `at` on the clock of whoever counts, by what is known here of the key.
    pub fn refuses_at(&self, ask: &Ask<'_>, at: Time, cost: u64) -> bool {
        self.banned_for(ask.key, ask.now).is_some() || self.counters.refusal(ask.key, at, cost).is_some()
    }

    /// The refusal of a request by what is known of its key.
    pub fn refusal(&self, key: Fingerprint, now: Time, cost: u64) -> Option<Refusal> {
        self.counters.refusal(key, now, cost)
    }

    /// Replaces what is known of a key by what the store told after a correction. For a log the store then tells too
    /// little to know until when it refuses, so the key is forgotten.
    pub fn relearn(&self, key: Fingerprint, told: &RemoteState, now: Time) {
        match told {
            RemoteState::SlidingLog(..) => _ = self.counters.pardon(key),
            _ => self.counters.learn(key, told, now),
        }
    }

    /// Whether the last state that the store told of a key says exactly until when it refuses. For a log the store
    /// tells only the part that decides about requests of the same cost.
    pub fn remembers_refusals(&self) -> bool {
        !matches!(self.quota, Quota::SlidingLog(..)) || matches!(self.cost, CostKind::Constant(_))
    }

    /// Forgets everything known of its keys, their bans too.
    pub fn forget(&self) {
        self.counters.forget();
        if let Some(bans) = &self.bans {
            bans.forget();
        }
    }

    /// Forgets the debt and the ban of a key; whether there was anything.
    pub fn pardon(&self, key: Fingerprint) -> bool {
        let banned = self.bans.as_ref().is_some_and(|bans| bans.pardon(key));
        self.counters.pardon(key) || banned
    }

    /// What is left of a key's ban, as far as this process knows.
    pub fn banned_for(&self, key: Fingerprint, now: Time) -> Option<Span> {
        self.bans.as_ref().and_then(|bans| bans.left(key, now))
    }
}
