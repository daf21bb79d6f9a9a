//! All limits of a request are one decision: check all, then charge all.

use sluicegate_limiter::{Receipt, Refusal, Span, Usage};
use smallvec::SmallVec;

use super::ask::{Ask, Verdict};
use super::ban::{longer, while_banned};
use super::ban_check::{BanCheck, BanChecks};
use super::counters::{DividedKey, Reservation};
use super::holds::{Hold, Holds, RemoteHold};
use super::key_state::KeyState;
use super::table::CheckResult;
use super::verdicts::Verdicts;

/// The answer of all limits together. `R` is what stores count of what the request holds: see [`SendDecision`].
#[non_exhaustive]
pub struct Decision<R: RemoteHold + ?Sized = dyn RemoteHold> {
    /// A verdict for each limit asked, in the same order.
    pub verdicts: Verdicts,
    /// Whether every enforced limit admits the request. Then, and only then, all are charged.
    pub admitted: bool,
    /// The time for which the request is to be delayed.
    pub delay: Span,
    /// What the request has to give back when it ends or gives up.
    pub holds: Holds<R>,
    /// Whether shared limits were decided without their store.
    pub fallen_back: bool,
    /// Whether it was refused because a limit is only decided by its store, and the store failed.
    pub unavailable: bool,
}

/// A decision that other threads can take over, as a request that is served by tasks of a runtime with several threads needs it.
pub type SendDecision = Decision<dyn RemoteHold + Send>;

impl<R: RemoteHold + ?Sized> Default for Decision<R> {
    fn default() -> Self {
        Evaluation::default().into()
    }
}

/// What limits say, without what a request then holds.
#[derive(Default)]
struct Evaluation {
    verdicts: Verdicts,
    admitted: bool,
    delay: Span,
}

impl<R: RemoteHold + ?Sized> From<Evaluation> for Decision<R> {
    fn from(Evaluation { verdicts, admitted, delay }: Evaluation) -> Self {
        let holds = Holds::default();
        Self { verdicts, admitted, delay, holds, fallen_back: false, unavailable: false }
    }
}

impl<R: RemoteHold + ?Sized> Decision<R> {
    /// A decision with these verdicts, in which the request is not delayed and holds nothing.
    #[inline]
    pub fn new(verdicts: Verdicts, admitted: bool) -> Self {
        let holds = Holds::default();
        Self { verdicts, admitted, delay: Span::ZERO, holds, fallen_back: false, unavailable: false }
    }

    /// The decision of a single limit. It is built in place, because a decision is four cache lines long and most of it is
    /// never written.
    #[inline]
    fn of_one(ask: &Ask<'_>, asked: &CheckResult) -> Self {
        let verdict = Verdict { answer: asked.answer, usage: asked.usage };
        let admitted = asked.answer.is_ok() || !ask.limit.enforced;
        let verdicts = Verdicts::one(verdict);
        let holds = Holds::default();
        Self { verdicts, admitted, delay: Span::ZERO, holds, fallen_back: false, unavailable: false }
    }
}

/// Decides by the counters in this process. With `queue`, a delayed request gets a ticket of the queue; a replay does not
/// wait and needs none.
///
/// All keys are locked in the same order by every thread, then all are checked, then all are charged: a refusal by one
/// takes nothing from any other, and of M concurrent requests exactly N pass.
///
/// A limit may be asked twice, about one key or two: then the limits are decided in turn, and what was charged is refunded if one
/// refuses.
///
/// Here and below, `asks` may be elements of any type that have an [`Ask`], so that a caller can keep more beside it.
#[inline]
pub fn decide<'a>(asks: &[impl AsRef<Ask<'a>>], queue: bool) -> Decision {
    decide_here(asks, queue, false)
}

/// Like [`decide`], for limits that no store counts: the decision can be sent to another thread.
#[inline]
pub fn decide_send<'a>(asks: &[impl AsRef<Ask<'a>>], queue: bool) -> SendDecision {
    decide_here(asks, queue, false)
}

/// Like [`decide`], but every charge is kept in the holds, so that it can be undone, and no ticket is given.
pub fn decide_for_now<'a>(asks: &[impl AsRef<Ask<'a>>]) -> Decision {
    decide_here(asks, false, true)
}

/// Like [`decide`], but every charge is kept in the holds, until a store has decided about other limits.
pub fn decide_reserving<'a>(asks: &[impl AsRef<Ask<'a>>]) -> Decision {
    decide_here(asks, true, true)
}

/// Whether an enforced limit would refuse now. Nothing is charged, and no refusal is counted.
pub fn may_refuse<'a>(asks: &[impl AsRef<Ask<'a>>]) -> bool {
    asks.iter().map(AsRef::as_ref).any(|ask| ask.limit.enforced && ask.refuses_at(ask.at, ask.cost))
}

/// Like `decide`. With `keep`, every charge is kept in the holds, so that it can be undone.
///
/// Most requests have one limit, which is decided in one step without lists, unless it bans, delays, has late costs or is
/// divided among processes.
#[inline]
fn decide_here<'a, R: RemoteHold + ?Sized>(
    asks: &[impl AsRef<Ask<'a>>],
    queue: bool,
    keep: bool,
) -> Decision<R> {
    if let [ask] = asks
        && let ask = ask.as_ref()
        && ask.share == 1
        && ask.in_flight() == 0
        && ask.limit.bans.is_none()
        && !keep
        && ask.limit.late_cost().is_none()
        && let Some(asked) = ask.limit.counters.acquire(ask.key, ask.at, ask.cost, ask.limit.own_quota())
    {
        if asked.added {
            ask.limit.counters.sweep_a_little(asked.key, ask.at);
        }
        return Decision::of_one(ask, &asked);
    }
    decide_together(&all(asks), queue, keep)
}

/// The asks without what surrounds them.
pub(super) fn all<'a, 'b>(asks: &'b [impl AsRef<Ask<'a>>]) -> SmallVec<[&'b Ask<'a>; 2]> {
    asks.iter().map(AsRef::as_ref).collect()
}

/// Whether two of these asks are of one limit.
fn asks_twice(asks: &[&Ask<'_>]) -> bool {
    let id = |ask: &&Ask<'_>| ask.limit.counters.id;
    asks.iter().enumerate().any(|(at, ask)| asks[..at].iter().any(|other| id(other) == id(ask)))
}

/// Decides about limits one after another, because some of them are the same: keys that are counted behind one lock cannot be locked
/// together. What was charged is refunded if one of them refuses.
#[cold]
fn decide_in_turn<R: RemoteHold + ?Sized>(asks: &[&Ask<'_>], queue: bool, keep: bool) -> Decision<R> {
    let mut all = Decision { admitted: true, ..Decision::default() };
    for ask in asks {
        let one: Decision<R> = decide_together(&[*ask], queue, true);
        all.admitted &= one.admitted;
        all.delay = all.delay.max(one.delay);
        all.verdicts.extend(one.verdicts);
        all.holds.append(one.holds);
    }
    match all.admitted {
        true if keep => {}
        true => all.holds.keep(),
        false => {
            all.delay = Span::ZERO;
            all.holds.undo(asks[0].now);
        }
    }
    all
}

/// Locks all keys, checks them all, then charges them all.
fn decide_together<R: RemoteHold + ?Sized>(asks: &[&Ask<'_>], queue: bool, keep: bool) -> Decision<R> {
    if asks.len() > 1 && asks_twice(asks) {
        return decide_in_turn(asks, queue, keep);
    }
    let mut held = lock_keys(asks);
    let mut holds = Holds::default();
    let mut bans = ban_checks(asks, &held);
    let evaluated = evaluation(asks, &mut held, &mut bans, true, |index, key, delay, receipt| {
        if let Some(hold) = held_by(asks[index], key, delay, receipt, (queue, keep)) {
            holds.push(hold);
        }
    });
    let decision = Decision { holds, ..evaluated.into() };

    let added: SmallVec<[usize; 2]> =
        held.iter().filter(|(_, key)| key.added()).map(|(index, _)| *index).collect();
    drop(held);
    for index in added {
        asks[index].limit.counters.sweep_a_little(asks[index].key, asks[index].at);
    }
    decision
}

/// The hold of a charged request; with `keep`, on the charge itself.
fn held_by<R: RemoteHold + ?Sized>(
    ask: &Ask<'_>,
    key: &mut DividedKey<'_>,
    delay: Span,
    receipt: Receipt,
    (queue, keep): (bool, bool),
) -> Option<Hold<R>> {
    let reservation = match key.reservation(ask.now, delay, queue && ask.limit.enforced) {
        Reservation::Nothing if keep || ask.limit.late_cost().is_some() => Reservation::Charge,
        Reservation::Nothing => return None,
        reservation => reservation,
    };
    let cost = key.counted_cost(ask.at, ask.cost);
    let charge = match reservation {
        Reservation::Charge | Reservation::Queued(_) => Some(key.open(cost, receipt)),
        Reservation::Nothing | Reservation::Place => None,
    };
    Some(Hold::of(ask, key.key(), cost, charge, reservation))
}

/// The verdicts of all limits about a request that is refused anyway. Nothing is charged.
pub fn refuse<'a>(asks: &[impl AsRef<Ask<'a>>]) -> Decision {
    let asks = all(asks);
    if asks.len() > 1 && asks_twice(&asks) {
        let verdicts = asks.iter().flat_map(|ask| refuse(&[*ask]).verdicts).collect();
        return Decision { verdicts, ..Decision::default() };
    }
    let mut held = lock_keys(&asks);
    let mut bans = ban_checks(&asks, &held);
    evaluate(&asks, &mut held, &mut bans, false, |_, _, _, _| {})
}

/// Locks the keys, in the same order in every thread.
fn lock_keys<'a>(asks: &[&'a Ask<'_>]) -> SmallVec<[(usize, DividedKey<'a>); 2]> {
    let mut order: SmallVec<[usize; 2]> = (0..asks.len()).collect();
    if asks.len() > 1 {
        order.sort_unstable_by_key(|index| asks[*index].limit.counters.id);
    }
    let locked = |index: usize| {
        let ask = asks[index];
        let counters = &ask.limit.counters;
        let mut locked = counters.lock_key(ask.key, ask.at, ask.cost, ask.share, ask.limit.own_quota());
        locked.in_flight = ask.in_flight();
        (index, locked)
    };
    order.into_iter().map(locked).collect()
}

/// The bans of the asks' keys.
fn ban_checks<'a>(asks: &[&'a Ask<'_>], held: &[(usize, DividedKey<'_>)]) -> BanChecks<'a> {
    let alone = |index: usize| held.iter().any(|(at, key)| *at == index && key.key() == asks[index].key);
    asks.iter().enumerate().map(|(index, ask)| BanCheck::here(ask, alone(index))).collect()
}

/// Checks all keys, each with the index of its ask, then charges all if every enforced limit admits and `may_admit` is
/// set. `charged` is called for each charge, with its delay.
///
/// No limit counts a request that a ban refuses: otherwise a banned client would use up other limits too, and a store would
/// have to see each of its requests.
pub fn evaluate<'a, K: KeyState>(
    asks: &[impl AsRef<Ask<'a>>],
    keys: &mut [(usize, K)],
    bans: &mut [BanCheck<'_>],
    may_admit: bool,
    charged: impl FnMut(usize, &mut K, Span, Receipt),
) -> Decision {
    evaluation(asks, keys, bans, may_admit, charged).into()
}

fn evaluation<'a, K: KeyState>(
    asks: &[impl AsRef<Ask<'a>>],
    keys: &mut [(usize, K)],
    bans: &mut [BanCheck<'_>],
    may_admit: bool,
    mut charged: impl FnMut(usize, &mut K, Span, Receipt),
) -> Evaluation {
    let (mut admitted, mut banned, mut delay) = (may_admit, false, Span::ZERO);
    let unknown = Usage { remaining: 0, capacity: 0, reset: Span::ZERO };
    let mut verdicts = Verdicts::repeated(Verdict { answer: Ok(Span::ZERO), usage: unknown }, asks.len());
    for (index, key) in &*keys {
        let ask = asks[*index].as_ref();
        let mut answer = key.check(ask.at, ask.cost);
        let ban_left = bans[*index].left(ask.now);
        if let Some(left) = ban_left {
            answer = Err(longer(left, answer.err()));
        }
        if ask.limit.enforced {
            banned |= ban_left.is_some();
            match answer {
                Ok(own) => delay = delay.max(own),
                Err(_) => admitted = false,
            }
        }
        verdicts[*index].answer = answer;
    }
    for (index, key) in keys {
        let (ask, verdict) = (asks[*index].as_ref(), &mut verdicts[*index]);
        let mut receipt = None;
        match verdict.answer {
            Ok(_) if admitted => receipt = Some(key.charge(ask.at, ask.cost)),
            Err(refusal) if !banned && !matches!(refusal, Refusal::Banned(_)) => {
                key.refused(ask.at, ask.cost);
                if let Some(left) = bans[*index].refused(ask.now) {
                    verdict.answer = Err(longer(left, Some(refusal)));
                }
            }
            Ok(_) | Err(_) => {}
        }
        verdict.usage = key.usage(ask.at);
        if let Err(Refusal::Banned(left)) = verdict.answer {
            verdict.usage = while_banned(verdict.usage, left);
        }
        if let (Ok(delay), Some(receipt)) = (verdict.answer, receipt) {
            charged(*index, key, delay, receipt);
        }
    }
    let delay = if admitted { delay } else { Span::ZERO };
    Evaluation { verdicts, admitted, delay }
}
