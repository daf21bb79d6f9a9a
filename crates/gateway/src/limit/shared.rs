//! Requests with limits that are counted in a shared store: how local and shared decisions are combined, and what
//! happens to requests while the store fails.

use std::rc::Rc;

use sluicegate_counters::{
    Ask, Decision, StoreFailurePolicy, Verdict, decide_for_now, decide_reserving, refuse,
};
use sluicegate_counters_redis::Store;

use sluicegate_limiter::{Refusal, Span, Time};
use smallvec::SmallVec;

use super::leased;

/// Decides a request at `now`. It takes no longer than the timeout of the store and never fails: without the store, the
/// policy `on_store_failure` of each limit applies.
pub fn decide(store: &Rc<Store>, asks: &mut [&mut Ask<'_>], now: Time) -> impl Future<Output = Decision> {
    decide_since(store, asks, now, now)
}

/// The same for a request that has waited for the store since `since`: the timeout counts from then.
pub async fn decide_since(store: &Rc<Store>, asks: &mut [&mut Ask<'_>], since: Time, now: Time) -> Decision {
    if let Some(decision) = leased::decide_leased(store, asks, now) {
        return decision;
    }
    if let Some(refusal) = remembered_refusal(store, asks, now) {
        store.count_remembered();
        return refusal;
    }
    if let Some((paused, left)) =
        leased::paused(store, asks, now).filter(|_| asks.iter().all(|ask| ask.limit.is_current(ask.key)))
    {
        store.count_remembered();
        return refused_for(asks, paused, left);
    }
    leased::missed(store, asks, now);
    let mixed = asks.iter().any(|ask| !is_shared(ask));
    let reserved = mixed.then(|| Reserved { store, decision: Some(reserve(asks)) });
    if let Some(refusal) =
        reserved.as_ref().and_then(|reserved| reserved.decision.as_ref()).filter(|local| !local.admitted)
    {
        return together(asks, Decision::new(refusal.verdicts.clone(), false), not_asked(asks));
    }
    let for_now = asks.iter().any(|ask| ask.for_now);
    match store.decide(asks.iter().map(|ask| &**ask).filter(|ask| is_shared(ask)), since).await {
        Some(decision) => {
            leased::decided(store, asks, &decision.verdicts, now);
            match reserved {
                Some(reserved) => with_reserved(store, asks, reserved.take(), decision, for_now),
                None => decision,
            }
        }
        None => {
            drop(reserved);
            // The store may have taken its whole timeout, in which keys have regained units.
            let now = store.now();
            asks.iter_mut().for_each(|ask| ask.renew(now));
            decide_without(store, asks, now)
        }
    }
}

/// Whether an enforced limit may refuse, according to the state in this process: the store is not asked, and nothing is
/// charged. Other processes may have refunded charges since, so this is a hint, not a decision.
pub fn may_refuse<'a>(store: &Store, asks: &[impl AsRef<Ask<'a>>], now: Time) -> bool {
    asks.iter().map(AsRef::as_ref).filter(|ask| ask.limit.enforced).any(|ask| {
        let Some(shared) = &ask.limit.shared else { return ask.refuses_at(now, ask.cost) };
        if ask.limit.leased().is_some() {
            return false; // there may be tokens of which the known state says nothing
        }
        let server = store.server_of(ask, now);
        let at = server.map_or(now, |server| server.latest);
        if server.is_some_and(|server| server.is_up) {
            return ask.refuses_at(at, ask.cost);
        }
        let cost = ask.cost.saturating_mul(u64::from(store.state().gateways()));
        shared.on_failure == StoreFailurePolicy::Closed || ask.refuses_at(at, cost)
    })
}

#[inline]
fn is_shared(ask: &Ask<'_>) -> bool {
    ask.limit.shared.is_some()
}

/// The refusal, if the last answer of the store refused the key until a time in the future. It is exact without a call,
/// because other processes can only have spent more since. A ban holds even while the store is unavailable.
fn remembered_refusal(store: &Store, asks: &mut [&mut Ask<'_>], now: Time) -> Option<Decision> {
    let is_banned = |ask: &Ask<'_>| ask.limit.enforced && ask.limit.banned_for(ask.key, now).is_some();
    let banned = asks.iter().any(|ask| is_banned(ask));
    let mut refuses = banned;
    for ask in asks.iter_mut() {
        let Some(shared) = &ask.limit.shared else { continue };
        if banned {
            ask.at = store.server_of(ask, now).map_or(now, |server| server.earliest);
            continue;
        }
        if ask.limit.counts_refusals() {
            return None; // the store must see every request
        }
        let server = store.server_of(ask, now).filter(|server| server.is_up)?;
        ask.at = server.earliest;
        let refusal = ask.limit.refusal(ask.key, server.latest, ask.cost);
        refuses |= ask.limit.enforced
            && match refusal {
                None => false,
                Some(Refusal::Never) => true,
                // No limit refuses for this long: the clock of the store was set back.
                Some(Refusal::Until(wait)) if shared.longest_wait.is_some_and(|longest| wait > longest) => {
                    false
                }
                Some(_) => ask.limit.remembers_refusals(),
            };
    }
    if refuses && !banned && !asks.iter().all(|ask| ask.limit.is_current(ask.key)) {
        return None;
    }
    let refusal = refuses.then(|| refuse(asks))?;
    let refused = |(ask, verdict): (&&mut Ask<'_>, &Verdict)| ask.limit.enforced && verdict.answer.is_err();
    // Another thread may have received a newer state that admits the request.
    asks.iter().zip(&refusal.verdicts).any(refused).then_some(refusal)
}

/// The refusal of a request by one of its limits, for this long. Nothing is charged.
fn refused_for(asks: &[&mut Ask<'_>], by: usize, left: Span) -> Decision {
    let mut decision = refuse(asks);
    decision.admitted = false;
    if let Some(verdict) = decision.verdicts.get_mut(by).filter(|verdict| verdict.answer.is_ok()) {
        verdict.answer = Err(Refusal::Until(left));
        verdict.usage.remaining = 0;
    }
    decision
}

/// The charges of the limits that are counted in this process, until the store has decided about the others. Dropping it refunds them: the
/// client may leave while the store is asked.
struct Reserved<'a> {
    store: &'a Store,
    decision: Option<Decision>,
}

impl Reserved<'_> {
    /// The charges, which are not refunded any more.
    fn take(mut self) -> Decision {
        self.decision.take().unwrap_or_default()
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(decision) = &mut self.decision {
            decision.holds.undo(self.store.now());
        }
    }
}

/// Charges the limits that are counted in this process, until the store has decided about the others.
fn reserve(asks: &[&mut Ask<'_>]) -> Decision {
    let local = asks.iter().map(|ask| &**ask).filter(|ask| !is_shared(ask));
    decide_reserving(&local.collect::<SmallVec<[&Ask<'_>; 2]>>())
}

/// The verdicts of shared limits that were not asked, because a local limit refuses.
fn not_asked(asks: &[&mut Ask<'_>]) -> Decision {
    let shared = asks.iter().filter(|ask| is_shared(ask));
    Decision::new(shared.map(|ask| Verdict::not_asked(ask)).collect(), true)
}

/// The decision of all limits, after the store has decided the shared ones.
fn with_reserved(
    store: &Store,
    asks: &[&mut Ask<'_>],
    mut local: Decision,
    shared: Decision,
    for_now: bool,
) -> Decision {
    match shared.admitted {
        true if for_now => {}
        true => local.holds.keep(),
        false => local.holds.undo(store.now()),
    }
    together(asks, local, shared)
}

/// The verdicts of both in the order of `asks`.
fn together(asks: &[&mut Ask<'_>], local: Decision, shared: Decision) -> Decision {
    let (mut here, mut there) = (local.verdicts.into_iter(), shared.verdicts.into_iter());
    let verdicts = asks.iter().filter_map(|ask| if is_shared(ask) { there.next() } else { here.next() });
    let verdicts = verdicts.collect();
    let admitted = local.admitted && shared.admitted;
    let delay = if admitted { local.delay.max(shared.delay) } else { Span::ZERO };
    let mut holds = local.holds;
    holds.append(shared.holds);
    let mut decision = Decision::new(verdicts, admitted);
    (decision.delay, decision.holds) = (delay, holds);
    decision
}

/// Decides without the store. Limits with the policy `local` continue from the last state that the store reported, and
/// each request is charged once for every live process, so that together they stay within the limit.
fn decide_without(store: &Rc<Store>, asks: &mut [&mut Ask<'_>], now: Time) -> Decision {
    let policy = |ask: &Ask<'_>| ask.limit.shared.as_ref().map(|shared| shared.on_failure);
    let closed = |ask: &Ask<'_>| ask.limit.enforced && policy(ask) == Some(StoreFailurePolicy::Closed);
    if asks.iter().any(|ask| closed(ask)) {
        let verdicts = asks.iter().map(|ask| Verdict::not_asked(ask)).collect();
        let mut decision = Decision::new(verdicts, false);
        (decision.fallen_back, decision.unavailable) = (true, true);
        return decision;
    }
    asks.iter_mut().filter(|ask| is_shared(ask)).for_each(|ask| store.divide(ask, now));
    let counted = |ask: &Ask<'_>| policy(ask).is_none_or(|policy| policy == StoreFailurePolicy::Local);
    let here: SmallVec<[&Ask<'_>; 2]> = asks.iter().map(|ask| &**ask).filter(|ask| counted(ask)).collect();
    let for_now = here.iter().any(|ask| ask.for_now);
    let mut decision = if for_now { decide_for_now(&here) } else { sluicegate_counters::decide(&here, true) };
    if decision.admitted {
        for (ask, verdict) in here.iter().zip(&decision.verdicts) {
            if is_shared(ask) && verdict.answer.is_ok() {
                store.report_later(ask, &mut decision.holds);
            }
        }
    }
    let mut verdicts = std::mem::take(&mut decision.verdicts).into_iter();
    let all = asks.iter().map(|ask| match counted(ask) {
        true => verdicts.next().unwrap_or_else(|| Verdict::not_asked(ask)),
        false => Verdict::not_asked(ask),
    });
    decision.verdicts = all.collect();
    decision.fallen_back = true;
    decision
}
