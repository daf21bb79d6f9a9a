//! Requests whose shared limits have tokens that were paid for: they are decided without the store.

use std::rc::Rc;

use sluicegate_counters::{Ask, Decision, Hold, Verdict, Verdicts, decide};
use sluicegate_counters_redis::{Store, Taken};
use sluicegate_limiter::{Refusal, Span, Time, Usage};
use smallvec::SmallVec;

/// What a request has taken of a leased limit.
enum Paid {
    Tokens(Taken),
    /// Places, and how many are left of those that were kept.
    Places(Hold, u64),
}

/// Decides a request at `now` by the tokens that were paid for and the counters of this process; `None` if the store has to be
/// asked, or knows that it refuses.
#[inline]
pub fn decide_leased<'a>(store: &Rc<Store>, asks: &[impl AsRef<Ask<'a>>], now: Time) -> Option<Decision> {
    if !is_leased(asks) {
        return None;
    }
    let asks: SmallVec<[&Ask<'a>; 2]> = asks.iter().map(AsRef::as_ref).collect();
    let asks = &asks[..];
    let mut paid: SmallVec<[Option<Paid>; 2]> = SmallVec::new();
    for &ask in asks {
        if ask.limit.shared.is_none() {
            paid.push(None);
            continue;
        }
        match pay(store, ask, now) {
            Some(one) => paid.push(Some(one)),
            None => {
                give_back(store, asks, paid);
                return None;
            }
        }
    }
    let mut decision = match paid.iter().any(Option::is_none) {
        true => {
            // The limits that this process counts alone.
            let local = asks.iter().copied().filter(|ask| ask.limit.shared.is_none());
            decide(&local.collect::<SmallVec<[&Ask<'_>; 2]>>(), true)
        }
        false => Decision::new(Verdicts::default(), true),
    };
    let mut here = std::mem::take(&mut decision.verdicts).into_iter();
    decision.verdicts = asks
        .iter()
        .zip(&paid)
        .filter_map(|(ask, paid)| match paid {
            Some(paid) => Some(Verdict::new(Ok(Span::ZERO), usage(ask, paid))),
            None => here.next(),
        })
        .collect();
    if decision.admitted {
        for paid in paid.into_iter().flatten() {
            if let Paid::Places(hold, _) = paid {
                decision.holds.push(hold);
            }
        }
    } else {
        give_back(store, asks, paid);
    }
    Some(decision)
}

fn pay(store: &Rc<Store>, ask: &Ask<'_>, now: Time) -> Option<Paid> {
    match ask.limit.quota.is_concurrency() {
        true => store.take_places(ask, now).map(|(hold, left)| Paid::Places(hold, left)),
        false => store.take(ask, now).map(Paid::Tokens),
    }
}

/// Whether all shared limits of a request are leased. A charge that may be undone later is one in the store.
fn is_leased<'a>(asks: &[impl AsRef<Ask<'a>>]) -> bool {
    let mut shared = asks.iter().map(AsRef::as_ref).filter(|ask| ask.limit.shared.is_some());
    shared.all(|ask| ask.limit.leased().is_some() && !ask.for_now)
}

/// Gives back what was taken; places go back when they are dropped.
fn give_back(store: &Store, asks: &[&Ask<'_>], paid: SmallVec<[Option<Paid>; 2]>) {
    for (ask, paid) in asks.iter().zip(paid) {
        if let Some(Paid::Tokens(taken)) = paid {
            store.untake(ask, &taken);
        }
    }
}

fn usage(ask: &Ask<'_>, paid: &Paid) -> Usage {
    let capacity = ask.limit.quota.capacity();
    let (remaining, reset) = match paid {
        Paid::Tokens(taken) => (taken.remaining, taken.reset),
        Paid::Places(_, left) => (*left, Span::ZERO),
    };
    Usage { remaining: remaining.min(capacity), capacity, reset }
}

/// There were no tokens for a request: asks for some if requests come often.
pub(super) fn missed(store: &Rc<Store>, asks: &[&mut Ask<'_>], now: Time) {
    if is_leased(asks) {
        // Places are kept when requests end, and not paid for in advance.
        let tokens = |ask: &&&mut Ask<'_>| ask.limit.shared.is_some() && !ask.limit.quota.is_concurrency();
        asks.iter().filter(tokens).for_each(|ask| store.missed(ask, now));
    }
}

/// The longest time for which a leased limit of the request is refused without a call, because many requests come and the
/// store had nothing left a moment ago.
pub(super) fn paused(store: &Store, asks: &[&mut Ask<'_>], now: Time) -> Option<(usize, Span)> {
    if !is_leased(asks) {
        return None;
    }
    let all = asks.iter().enumerate().filter(|(_, ask)| ask.limit.shared.is_some());
    all.filter_map(|(at, ask)| Some((at, store.paused(ask, now)?))).max_by_key(|(_, left)| *left)
}

/// The store has decided about a request: if a leased limit has refused, the store is not asked again at once.
pub(super) fn decided(store: &Store, asks: &[&mut Ask<'_>], verdicts: &[Verdict], now: Time) {
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
