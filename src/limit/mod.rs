//! 5: all limits of a request are one decision: check all, then charge all.
//!
//! Knows no HTTP and reads no clock: the key is a fingerprint, the time an argument.

mod counters;
#[cfg(test)]
mod fixture;
#[cfg(all(test, feature = "model"))]
mod model;
mod queue;
pub mod redis;
mod slots;
mod sync;
mod table;
#[cfg(all(test, not(feature = "model")))]
mod tests;
mod turn;

use std::sync::Arc;

use sluicegate_limiter::{Receipt, Refusal, Span, Standing, Time};
use smallvec::SmallVec;

pub use counters::Counters;
use counters::{HeldKey, Taken};
pub use turn::{Hold, Holds};

use crate::config::{LimitConfig, Mode};
use crate::key::{Fingerprint, KeySecret, KeySpec};

/// A limit of the configuration in force, with its counters.
pub struct Limit {
    /// What the file says.
    pub config: LimitConfig,
    /// The counters, which live on when the file changes.
    pub counters: Arc<Counters>,
    /// The key of all requests that lack theirs.
    pub missing: Fingerprint,
    /// The keys that it leaves alone.
    pub exempt: Vec<Fingerprint>,
}

/// One limit that is asked, for one key and cost.
pub struct Ask<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// The request's key.
    pub key: Fingerprint,
    /// What it spends.
    pub cost: u64,
}

/// What one limit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The wait it wants (zero for all but the leaky bucket), or its refusal.
    pub answer: Result<Span, Refusal>,
    /// What is left behind this request.
    pub standing: Standing,
}

/// What all limits together say.
#[derive(Default)]
pub struct Decision {
    /// A verdict for each limit asked, in the same order.
    pub verdicts: SmallVec<[Verdict; 2]>,
    /// Whether every enforced limit admits the request. Then, and only then, all are charged.
    pub admitted: bool,
    /// How long it is to be held.
    pub delay: Span,
    /// What it gives back at its end, or when it gives up.
    pub holds: Holds,
}

/// The state of one key, here or as a store told it: what a decision is made on.
pub(crate) trait Key {
    /// See [`Algorithm::check`](sluicegate_limiter::Algorithm::check).
    fn check(&self, now: Time, cost: u64) -> Result<Span, Refusal>;
    /// See [`Algorithm::charge`](sluicegate_limiter::Algorithm::charge).
    fn charge(&mut self, now: Time, cost: u64) -> Receipt;
    /// See [`Algorithm::refused`](sluicegate_limiter::Algorithm::refused).
    fn refused(&mut self, now: Time, cost: u64);
    /// See [`Algorithm::standing`](sluicegate_limiter::Algorithm::standing).
    fn standing(&self, now: Time) -> Standing;
}

impl Limit {
    /// A limit of the file, with counters that exist or are new.
    pub fn new(config: LimitConfig, counters: Arc<Counters>, ipv6_prefix: u8, secret: &KeySecret) -> Self {
        let readings = |value: &String| config.key.from_text(value, ipv6_prefix, secret);
        let exempt = config.exempt.values.iter().flat_map(readings).collect();
        Self { counters, missing: KeySpec::missing(secret), exempt, config }
    }

    /// Whether its refusal counts.
    pub fn enforces(&self) -> bool {
        self.config.mode == Mode::Enforce
    }
}

/// Asks all limits at once. With `queue`, delayed requests take a ticket and wait for their turn; a replay,
/// which never waits, goes without.
///
/// All keys are locked, in one order for everybody, then all are checked, then all are charged: a refusal by
/// one takes nothing from any other, and of M requests at once exactly N pass.
pub fn decide(asks: &[Ask<'_>], now: Time, queue: bool) -> Decision {
    let mut order: SmallVec<[usize; 2]> = (0..asks.len()).collect();
    if asks.len() > 1 {
        order.sort_unstable_by_key(|index| asks[*index].limit.counters.order);
    }
    let mut held: SmallVec<[(usize, HeldKey<'_>); 2]> = SmallVec::new();
    for index in order {
        held.push((index, asks[index].limit.counters.hold(asks[index].key, now)));
    }

    let mut holds = Holds::default();
    let mut decision = settle(asks, &mut held, now, |index, key, delay, receipt| {
        let ask = &asks[index];
        let taken = key.taken(now, delay, queue && ask.limit.enforces());
        if taken != Taken::Nothing {
            holds.push(Hold::new(Arc::clone(&ask.limit.counters), key.key(), ask.cost, receipt, taken));
        }
    });
    decision.holds = holds;

    let added: SmallVec<[usize; 2]> =
        held.iter().filter(|(_, key)| key.added()).map(|(index, _)| *index).collect();
    drop(held);
    for index in added {
        asks[index].limit.counters.sweep_a_little(now);
    }
    decision
}

/// Checks all keys, each with the index of its ask, then charges all if every enforced limit admits. `charged` is
/// told of each charge, with the delay that goes with it.
pub(crate) fn settle<K: Key>(
    asks: &[Ask<'_>],
    keys: &mut [(usize, K)],
    now: Time,
    mut charged: impl FnMut(usize, &K, Span, Receipt),
) -> Decision {
    let mut decision = Decision { admitted: true, ..Decision::default() };
    let empty = Standing { remaining: 0, capacity: 0, reset: Span::ZERO };
    decision.verdicts.resize(asks.len(), Verdict { answer: Ok(Span::ZERO), standing: empty });
    for (index, key) in &*keys {
        let ask = &asks[*index];
        let answer = key.check(now, ask.cost);
        decision.verdicts[*index].answer = answer;
        if ask.limit.enforces() {
            match answer {
                Ok(delay) => decision.delay = decision.delay.max(delay),
                Err(_) => decision.admitted = false,
            }
        }
    }
    for (index, key) in keys {
        let ask = &asks[*index];
        let verdict = &mut decision.verdicts[*index];
        match verdict.answer {
            Ok(delay) if decision.admitted => {
                let receipt = key.charge(now, ask.cost);
                charged(*index, key, delay, receipt);
            }
            Ok(_) => {}
            Err(_) => key.refused(now, ask.cost),
        }
        verdict.standing = key.standing(now);
    }
    if !decision.admitted {
        decision.delay = Span::ZERO;
    }
    decision
}
