//! Requests whose shared limits have tokens that were paid for: they are decided without the store.

use std::rc::Rc;

use sluicegate_counters::{Ask, Decision, Verdict, decide};
use sluicegate_counters_redis::{Store, Taken};
use sluicegate_limiter::{Refusal, Span, Time, Usage};
use smallvec::SmallVec;

/// Decides a request at `now` by the tokens that were paid for and the counters of this process; `None` if the store has to be
/// asked, or knows that it refuses.
#[inline]
pub fn decide_leased(store: &Rc<Store>, asks: &[Ask<'_>], now: Time) -> Option<Decision> {
    if !is_leased(asks) {
        return None;
    }
    let mut taken: SmallVec<[Option<Taken>; 2]> = SmallVec::new();
    let mut is_mixed = false;
    for ask in asks {
        if ask.limit.shared.is_none() {
            is_mixed = true;
            taken.push(None);
            continue;
        }
        match store.take(ask, now) {
            Some(tokens) => taken.push(Some(tokens)),
            None => {
                give_back(store, asks, &taken);
                return None;
            }
        }
    }
    let mut here = match is_mixed {
        true => decide(&local(asks), true),
        false => Decision { admitted: true, ..Decision::default() },
    };
    if !here.admitted {
        give_back(store, asks, &taken);
    }
    let mut verdicts = std::mem::take(&mut here.verdicts).into_iter();
    here.verdicts = asks
        .iter()
        .zip(&taken)
        .filter_map(|(ask, taken)| match taken {
            Some(taken) => Some(Verdict { answer: Ok(Span::ZERO), usage: usage(ask, taken) }),
            None => verdicts.next(),
        })
        .collect();
    Some(here)
}

/// Whether all shared limits of a request are leased, and one of them has something to lease.
fn is_leased(asks: &[Ask<'_>]) -> bool {
    let mut shared = asks.iter().filter(|ask| ask.limit.shared.is_some());
    shared.all(|ask| ask.limit.leased().is_some() && !ask.limit.quota.is_concurrency() && !ask.for_now)
}

/// The asks of limits that this process counts alone.
fn local<'a>(asks: &[Ask<'a>]) -> SmallVec<[Ask<'a>; 2]> {
    asks.iter().filter(|ask| ask.limit.shared.is_none()).cloned().collect()
}

fn give_back(store: &Store, asks: &[Ask<'_>], taken: &[Option<Taken>]) {
    for (ask, taken) in asks.iter().zip(taken) {
        if let Some(taken) = taken {
            store.untake(ask, taken);
        }
    }
}

fn usage(ask: &Ask<'_>, taken: &Taken) -> Usage {
    let capacity = ask.limit.quota.capacity();
    Usage { remaining: taken.remaining.min(capacity), capacity, reset: taken.reset }
}

/// There were no tokens for a request: asks for some if requests come often.
pub(super) fn missed(store: &Rc<Store>, asks: &[Ask<'_>], now: Time) {
    if is_leased(asks) {
        asks.iter().filter(|ask| ask.limit.shared.is_some()).for_each(|ask| store.missed(ask, now));
    }
}

/// The longest time for which a leased limit of the request is refused without a call, because many requests come and the
/// store had nothing left a moment ago.
pub(super) fn paused(store: &Store, asks: &[Ask<'_>], now: Time) -> Option<(usize, Span)> {
    if !is_leased(asks) {
        return None;
    }
    let all = asks.iter().enumerate().filter(|(_, ask)| ask.limit.shared.is_some());
    all.filter_map(|(at, ask)| Some((at, store.paused(ask, now)?))).max_by_key(|(_, left)| *left)
}

/// The store has decided about a request: if a leased limit has refused, the store is not asked again at once.
pub(super) fn decided(store: &Store, asks: &[Ask<'_>], verdicts: &[Verdict], now: Time) {
    let shared = asks.iter().filter(|ask| ask.limit.shared.is_some());
    for (ask, verdict) in shared.zip(verdicts).filter(|(ask, _)| ask.limit.leased().is_some()) {
        if let Err(refusal) = verdict.answer {
            // A window refuses until it ends, and not longer; a bucket has the next token soon, but not for many.
            let windowed = ask.limit.quota.window_left(now).is_some();
            let at_most = match refusal {
                Refusal::Until(wait) if windowed => wait,
                Refusal::Never => continue, // other requests cost less
                _ => Span::MAX,
            };
            store.pause(ask, now, at_most);
        }
    }
}
