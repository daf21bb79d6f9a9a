//! 5: all limits of a request are one decision: check all, then charge all.
//!
//! Knows no HTTP and reads no clock: the key is a fingerprint, the time an argument.

mod ban;
mod counters;
#[cfg(test)]
mod fixture;
mod kept;
#[cfg(all(test, feature = "model"))]
mod model;
mod open;
mod queue;
pub mod redis;
mod slots;
mod stored;
mod sync;
mod table;
#[cfg(all(test, not(feature = "model")))]
mod tests;
mod turn;

use std::sync::Arc;

use sluicegate_limiter::{Quota, Receipt, Refusal, Span, Standing, Time};
use smallvec::SmallVec;

pub use ban::{Bans, while_banned};
use ban::{Bar, Bars, longer};
pub use counters::Counters;
use counters::{Shared, Taken};
pub use redis::{Peeked, Store, StoreState, StoreStatus, try_store};
use table::Asked;
pub use turn::{Hold, Holds};

use crate::config::{Cost, DetailedCost, LimitConfig, Mode};
use crate::keys::{self, Fingerprint, KeySecret, KeyText};

/// A limit of the configuration in force, with its counters.
pub struct Limit {
    /// What the file says.
    pub config: LimitConfig,
    /// The counters, which live on when the file changes.
    pub counters: Arc<Counters>,
    /// Who is banned, if it bans. They live on too.
    pub bans: Option<Arc<Bans>>,
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
    /// What the names of its keys in a shared store begin with.
    names: Vec<u8>,
    /// The longest that it ever refuses a key; none where late costs may take any time to be paid.
    longest: Option<Span>,
    /// What the store is told of it, where every request costs the same.
    argument: Option<Vec<u8>>,
}

/// One limit that is asked, for one key and cost.
#[derive(Clone)]
pub struct Ask<'a> {
    /// The limit.
    pub limit: &'a Arc<Limit>,
    /// The request's key.
    pub key: Fingerprint,
    /// What it spends, or what is taken until that is known.
    pub cost: u64,
    /// What the request itself costs.
    pub base: u64,
    /// When it asks, on the gateway's clock.
    pub now: Time,
    /// The same on the clock of whoever counts.
    pub at: Time,
    /// How many gateways count as this one does, without knowing of each other: a request then counts so often.
    pub share: u16,
    /// What the key is asked for elsewhere at this moment, and may still be admitted there.
    pub under_way: u32,
    /// The key in full, for limits that want it.
    pub text: KeyText,
    /// Whether all that is charged is held, so that it can be undone.
    pub for_now: bool,
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
    /// Whether the shared limits were decided without their store.
    pub fallen_back: bool,
    /// Whether it was not admitted because a limit wants its store or nothing.
    pub unavailable: bool,
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
    /// A limit of the file, with counters that exist or are new. `prefix` is that of its names in a shared store.
    pub fn new(
        config: LimitConfig,
        counters: Arc<Counters>,
        bans: Option<Arc<Bans>>,
        ipv6_prefix: u8,
        secret: &KeySecret,
        prefix: &str,
    ) -> Self {
        let readings = |value: &String| keys::from_text(&config.key, value, ipv6_prefix, secret);
        let fingerprints = |values: &[String]| -> Vec<Fingerprint> {
            values.iter().flat_map(readings).map(|(key, _)| key).collect()
        };
        let exempt = fingerprints(&config.exempt.values);
        let only = fingerprints(config.when.as_ref().map_or(&[], |when| &when.keys));
        let names = format!("{prefix}:{}:", config.name).into_bytes();
        let missing = keys::fingerprint_of_missing(secret);
        let (plans, candidate) = (Vec::new(), None);
        let longest =
            config.quota.drain().filter(|_| !matches!(&config.cost, Cost::Detailed(cost) if cost.settles()));
        let shown = config.quota.shown().to_string().into();
        let mut limit = Self {
            counters,
            bans,
            missing,
            exempt,
            only,
            plans,
            candidate,
            shown,
            names,
            longest,
            argument: None,
            config,
        };
        if let (true, Cost::Constant(cost)) = (limit.config.shared, &limit.config.cost) {
            limit.argument = Some(redis::limit_argument(&limit.config, *cost));
        }
        limit
    }

    /// With these variants for some requests. The plans of a limit share the names of its keys in a store, where a
    /// debt under another quota is carried over; a candidate is counted apart.
    pub fn with_variants(mut self, plans: Vec<(String, Arc<Self>)>, candidate: Option<Self>) -> Self {
        self.plans = plans;
        self.candidate = candidate.map(|mut candidate| {
            candidate.names.splice(candidate.names.len() - 1.., *b"+candidate:");
            Arc::new(candidate)
        });
        self
    }

    /// The limit for those on this plan.
    pub fn for_plan(self: &Arc<Self>, plan: Option<&str>) -> &Arc<Self> {
        let of_plan = plan.and_then(|plan| self.plans.iter().find(|(name, _)| name == plan));
        of_plan.map_or(self, |(_, limit)| limit)
    }

    /// The limit and its variants, each with counters of its own.
    pub fn all(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::once(self).chain(self.plans.iter().map(|(_, limit)| limit)).chain(&self.candidate)
    }

    /// Whether its refusal counts.
    pub fn enforces(&self) -> bool {
        self.config.mode == Mode::Enforce
    }

    /// What its requests cost, if that is only known when the answer is there.
    fn settles(&self) -> Option<&DetailedCost> {
        match &self.config.cost {
            Cost::Detailed(cost) if cost.settles() => Some(cost),
            _ => None,
        }
    }

    /// Whether whoever counts it must hear of every request, also of those that it refuses.
    fn counts_refusals(&self) -> bool {
        self.config.ban.is_some()
            || matches!(self.config.quota, Quota::SlidingLog(log, _) if log.counts_rejected())
    }

    /// Whether it refuses a request at `at` on the clock of whoever counts, by what is known here of the key.
    fn refuses_at(&self, ask: &Ask<'_>, at: Time, cost: u64) -> bool {
        self.banned_for(ask.key, ask.now).is_some() || self.counters.refusal(ask.key, at, cost).is_some()
    }

    /// Takes over what the store told of a key after giving back or writing back. Of a log it then tells too little to
    /// say until when it refuses, so nothing is remembered.
    fn relearn(&self, key: Fingerprint, told: &redis::RemoteKey, now: Time) {
        match told {
            redis::RemoteKey::SlidingLog(..) => _ = self.counters.pardon(key),
            _ => self.counters.learn(key, told, now),
        }
    }

    /// Whether what the store told of a key last says exactly until when it refuses. Of a log only the part is told
    /// that decides about requests of the same cost.
    fn remembers(&self) -> bool {
        !matches!(self.config.quota, Quota::SlidingLog(..)) || matches!(self.config.cost, Cost::Constant(_))
    }
}

impl<'a> Ask<'a> {
    /// A limit that is asked at `at`.
    pub fn new(limit: &'a Arc<Limit>, key: Fingerprint, cost: u64, at: Time) -> Self {
        Self {
            limit,
            key,
            cost,
            base: cost,
            now: at,
            at,
            share: 1,
            under_way: 0,
            text: KeyText::new(),
            for_now: false,
        }
    }
}

impl Verdict {
    /// Of a limit that was not asked.
    fn unasked(ask: &Ask<'_>) -> Self {
        Self::fresh(ask.limit)
    }

    /// Of a limit that knows of no request.
    fn fresh(limit: &Limit) -> Self {
        Self { answer: Ok(Span::ZERO), standing: limit.counters.fresh(Time::EPOCH) }
    }
}

impl Decision {
    /// What the one limit says that a request is under. Each way out builds the decision where it is returned: it is
    /// four cache lines, most of which are never written.
    #[inline]
    fn of_one(ask: &Ask<'_>, asked: &Asked) -> Self {
        let verdict = Verdict { answer: asked.answer, standing: asked.standing };
        let admitted = asked.answer.is_ok() || !ask.limit.enforces();
        let verdicts = SmallVec::from_buf_and_len([verdict; 2], 1);
        let holds = Holds::default();
        Self { verdicts, admitted, delay: Span::ZERO, holds, fallen_back: false, unavailable: false }
    }
}

/// Asks all limits at once, of the counters in this process. With `queue`, delayed requests take a ticket and wait
/// for their turn; a replay, which never waits, goes without.
///
/// All keys are locked, in one order for everybody, then all are checked, then all are charged: a refusal by
/// one takes nothing from any other, and of M requests at once exactly N pass.
pub fn decide(asks: &[Ask<'_>], queue: bool) -> Decision {
    decide_here(asks, queue, false)
}

/// Like [`decide`], but all that is charged is held, so that it can be undone, and nobody takes a ticket.
pub fn decide_for_now(asks: &[Ask<'_>]) -> Decision {
    decide_here(asks, false, true)
}

/// Whether an enforced limit may refuse, by what is known of the keys. Nothing is charged, and no refusal is counted.
pub fn may_refuse(asks: &[Ask<'_>]) -> bool {
    asks.iter().any(|ask| ask.limit.enforces() && ask.limit.refuses_at(ask, ask.at, ask.cost))
}

/// Like `decide`. With `keep`, all that is charged is held, so that it can be undone.
///
/// Most requests are under one limit that only counts: the same in one step, without any list. Not where that limit
/// bans, holds back, settles late costs, or is divided among gateways.
#[inline]
fn decide_here(asks: &[Ask<'_>], queue: bool, keep: bool) -> Decision {
    if let [ask] = asks
        && ask.share == 1
        && ask.under_way == 0
        && ask.limit.bans.is_none()
        && !keep
        && ask.limit.settles().is_none()
        && let Some(asked) = ask.limit.counters.ask(ask.key, ask.at, ask.cost)
    {
        if asked.added {
            ask.limit.counters.sweep_a_little(asked.key, ask.at);
        }
        return Decision::of_one(ask, &asked);
    }
    decide_together(asks, queue, keep)
}

/// Locks all keys, checks them all, then charges them all.
fn decide_together(asks: &[Ask<'_>], queue: bool, keep: bool) -> Decision {
    let mut held = hold(asks);
    let mut holds = Holds::default();
    let mut bars = bars(asks, &held);
    let mut decision = settle(asks, &mut held, &mut bars, true, |index, key, delay, receipt| {
        if let Some(hold) = held_by(&asks[index], key, delay, receipt, (queue, keep)) {
            holds.push(hold);
        }
    });
    decision.holds = holds;

    let added: SmallVec<[usize; 2]> =
        held.iter().filter(|(_, key)| key.added()).map(|(index, _)| *index).collect();
    drop(held);
    for index in added {
        asks[index].limit.counters.sweep_a_little(asks[index].key, asks[index].at);
    }
    decision
}

/// What a request that was charged holds of a limit: with `keep` all that it spends.
fn held_by(
    ask: &Ask<'_>,
    key: &mut Shared<'_>,
    delay: Span,
    receipt: Receipt,
    (queue, keep): (bool, bool),
) -> Option<Hold> {
    let taken = match key.taken(ask.now, delay, queue && ask.limit.enforces()) {
        Taken::Nothing if keep || ask.limit.settles().is_some() => Taken::Spent,
        Taken::Nothing => return None,
        taken => taken,
    };
    let cost = key.times(ask.at, ask.cost);
    let charge = match taken {
        Taken::Spent | Taken::Turn(_) => Some(key.open(cost, receipt)),
        Taken::Nothing | Taken::Place => None,
    };
    Some(Hold::of(ask, key.key(), cost, charge, taken))
}

/// What all limits say of a request that is refused in any case: nothing is charged.
fn refuse_here(asks: &[Ask<'_>]) -> Decision {
    let mut held = hold(asks);
    let mut bars = bars(asks, &held);
    settle(asks, &mut held, &mut bars, false, |_, _, _, _| {})
}

/// Locks the keys, in the order that is the same for everybody.
fn hold<'a>(asks: &'a [Ask<'_>]) -> SmallVec<[(usize, Shared<'a>); 2]> {
    let mut order: SmallVec<[usize; 2]> = (0..asks.len()).collect();
    if asks.len() > 1 {
        order.sort_unstable_by_key(|index| asks[*index].limit.counters.order);
    }
    let locked = |index: usize| {
        let ask = &asks[index];
        (index, ask.limit.counters.hold(ask.key, ask.at, Some(ask.cost)).shared(ask.share, ask.under_way))
    };
    order.into_iter().map(locked).collect()
}

/// What bars each of the asks' keys.
fn bars<'a>(asks: &'a [Ask<'_>], held: &[(usize, Shared<'_>)]) -> Bars<'a> {
    let alone = |index: usize| held.iter().any(|(at, key)| *at == index && key.key() == asks[index].key);
    asks.iter().enumerate().map(|(index, ask)| Bar::here(ask, alone(index))).collect()
}

/// Checks all keys, each with the index of its ask, then charges all if every enforced limit admits, unless it is
/// known that the request is refused. `charged` is told of each charge, with the delay that goes with it.
///
/// A request that a ban refuses counts for nothing anywhere, or it would cost a banned client other limits too, and
/// every gateway would have to hear of it.
fn settle<K: Key>(
    asks: &[Ask<'_>],
    keys: &mut [(usize, K)],
    bars: &mut [Bar<'_>],
    may_admit: bool,
    mut charged: impl FnMut(usize, &mut K, Span, Receipt),
) -> Decision {
    let mut course = Course::new(may_admit);
    let unknown = Standing { remaining: 0, capacity: 0, reset: Span::ZERO };
    let mut verdicts: SmallVec<[Verdict; 2]> = SmallVec::new();
    verdicts.resize(asks.len(), Verdict { answer: Ok(Span::ZERO), standing: unknown });
    for (index, key) in &*keys {
        verdicts[*index].answer = course.check(&asks[*index], key, &bars[*index]);
    }
    for (index, key) in keys {
        let answer = verdicts[*index].answer;
        let (verdict, receipt) = course.conclude(&asks[*index], key, &mut bars[*index], answer);
        verdicts[*index] = verdict;
        if let (Ok(delay), Some(receipt)) = (answer, receipt) {
            charged(*index, key, delay, receipt);
        }
    }
    Decision { verdicts, ..course.decision() }
}

/// How a decision goes while its limits are asked, one after the other: all are checked before any is concluded.
struct Course {
    admitted: bool,
    /// Whether a ban refuses the request.
    barred: bool,
    delay: Span,
}

impl Course {
    fn new(may_admit: bool) -> Self {
        Self { admitted: may_admit, barred: false, delay: Span::ZERO }
    }

    /// Checks one limit.
    fn check(&mut self, ask: &Ask<'_>, key: &impl Key, bar: &Bar<'_>) -> Result<Span, Refusal> {
        let mut answer = key.check(ask.at, ask.cost);
        let banned = bar.left(ask.now);
        if let Some(left) = banned {
            answer = Err(longer(left, answer.err()));
        }
        if ask.limit.enforces() {
            self.barred |= banned.is_some();
            match answer {
                Ok(delay) => self.delay = self.delay.max(delay),
                Err(_) => self.admitted = false,
            }
        }
        answer
    }

    /// Charges one limit if all admit, and says what it says in the end.
    fn conclude<K: Key>(
        &self,
        ask: &Ask<'_>,
        key: &mut K,
        bar: &mut Bar<'_>,
        mut answer: Result<Span, Refusal>,
    ) -> (Verdict, Option<Receipt>) {
        let mut receipt = None;
        match answer {
            Ok(_) if self.admitted => receipt = Some(key.charge(ask.at, ask.cost)),
            Ok(_) => {}
            Err(Refusal::Banned(_)) => {}
            Err(_) if self.barred => {}
            Err(refusal) => {
                key.refused(ask.at, ask.cost);
                if let Some(left) = bar.refused(ask.now) {
                    answer = Err(longer(left, Some(refusal)));
                }
            }
        }
        let mut standing = key.standing(ask.at);
        if let Err(Refusal::Banned(left)) = answer {
            standing = while_banned(standing, left);
        }
        (Verdict { answer, standing }, receipt)
    }

    /// The decision, as yet without its verdicts.
    fn decision(&self) -> Decision {
        let delay = if self.admitted { self.delay } else { Span::ZERO };
        Decision { admitted: self.admitted, delay, ..Decision::default() }
    }
}
