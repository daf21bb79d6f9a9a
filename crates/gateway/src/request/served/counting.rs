//! How the hits of descriptors are counted: each for itself, or all in one decision.

use futures_util::future::join_all;
use sluicegate_counters::{StoreFailurePolicy, Verdict, Verdicts};
use sluicegate_limiter::{MAX_COUNT, Quota, Span, Time, Usage};
use sluicegate_rls::plan::{Hits, Outcome};
use sluicegate_rls::wire::status::Status;

use super::item::{Decider, Item, Judged};
use crate::limit::{Ask, Decided, Decision, SelectedLimit};
use crate::request::View;
use crate::request::limit_selection::LimitSelection;

/// Decides about each descriptor, whatever others say. Hits above a limit are counted, too.
pub(super) async fn decide_each(
    view: &View,
    now: Time,
    items: Vec<Result<Item<'_>, Status>>,
) -> Vec<Result<Judged, Status>> {
    charge_each(view, now, items, is_charged_above).await
}

/// Counts hits, whatever limits say.
pub(super) async fn report(
    view: &View,
    now: Time,
    items: Vec<Result<Item<'_>, Status>>,
) -> Vec<Result<Judged, Status>> {
    charge_each(view, now, items, |_| true).await
}

async fn charge_each(
    view: &View,
    now: Time,
    items: Vec<Result<Item<'_>, Status>>,
    is_charged_above: fn(&Ask<'_>) -> bool,
) -> Vec<Result<Judged, Status>> {
    let each = items.into_iter().map(async |item| {
        let Item { decider, hits, .. } = item?;
        match decider {
            Decider::Zero(period) => Ok(Judged::zero(now, period, hits)),
            Decider::Limit(selected) if selected.ask.cost == 0 => {
                let looked = look(view, &selected).await?;
                refund(view, &selected, hits);
                Ok(after_refund(looked, hits))
            }
            Decider::Limit(selected) => charge(view, now, selected, is_charged_above).await,
        }
    });
    join_all(each).await
}

/// Decides about hits. If they are refused and `is_charged_above` says so, they are counted nevertheless.
async fn charge(
    view: &View,
    now: Time,
    selected: SelectedLimit<'_>,
    is_charged_above: fn(&Ask<'_>) -> bool,
) -> Result<Judged, Status> {
    let mut selection = LimitSelection::default();
    selection.selected.push(selected);
    let store = view.store_of(&selection).cloned();
    let mut decision = selection.decide_on(store.as_ref(), now).await;
    decision.holds.keep();
    view.observe_limits(Decided { selected: &selection.selected, decision: &decision });
    if decision.unavailable {
        return Err(unavailable());
    }
    let (ask, verdict) = (&selection.selected[0].ask, decision.verdicts[0]);
    let mut usage = verdict.usage;
    if verdict.answer.is_err() && is_charged_above(ask) {
        match &store {
            Some(store) => store.charge(ask, ask.cost),
            None => ask.limit.counters.settle(ask.key, ask.at, ask.cost),
        }
        usage.remaining = 0;
    }
    Ok(Judged::new(verdict.answer.err(), usage))
}

/// Whether the hits of a refused descriptor are charged. A window counts them until it is known to be above its limit: further ones
/// change nothing. A bucket is charged with reports of several hits, such as tokens that a response has used; a client that repeats a
/// refused request would otherwise never be admitted again.
fn is_charged_above(ask: &Ask<'_>) -> bool {
    match ask.limit.quota {
        Quota::FixedWindow(..) => ask.limit.refusal(ask.key, ask.at, 0).is_none(),
        _ => ask.cost > 1,
    }
}

/// Decides about all at once: if a limit refuses, nothing is counted.
pub(super) async fn decide_all(
    view: &View,
    now: Time,
    items: Vec<Result<Item<'_>, Status>>,
) -> Vec<Result<Judged, Status>> {
    decide_together(view, now, items, true).await
}

/// What [`decide_all`] would decide. Nothing is counted.
pub(super) async fn check(
    view: &View,
    now: Time,
    items: Vec<Result<Item<'_>, Status>>,
) -> Vec<Result<Judged, Status>> {
    decide_together(view, now, items, false).await
}

/// What is counted of each limit.
pub(super) async fn usages(view: &View, now: Time, items: Vec<Item<'_>>) -> Vec<Result<Judged, Status>> {
    let each = items.into_iter().map(async |Item { decider, hits, .. }| match decider {
        Decider::Zero(period) => Ok(Judged::zero(now, period, hits)),
        Decider::Limit(selected) => {
            let verdict = counted(view, &selected.ask).await?;
            Ok(Judged::new(verdict.answer.err(), verdict.usage))
        }
    });
    join_all(each).await
}

async fn decide_together(
    view: &View,
    now: Time,
    items: Vec<Result<Item<'_>, Status>>,
    counts: bool,
) -> Vec<Result<Judged, Status>> {
    let mut selection = LimitSelection::default();
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        all.push(match item {
            Err(status) => (None, Err(status)),
            Ok(Item { decider: Decider::Zero(period), hits, is_advisory }) => {
                (Some(is_advisory), Ok(Place::Judged(Judged::zero(now, period, hits))))
            }
            Ok(Item { decider: Decider::Limit(selected), hits, is_advisory }) if selected.ask.cost == 0 => {
                (Some(is_advisory), Ok(Place::Look(Box::new(selected), hits)))
            }
            Ok(Item { decider: Decider::Limit(selected), is_advisory, .. }) => {
                (Some(is_advisory), Ok(Place::Counted(add(&mut selection, selected))))
            }
        });
    }
    let looked = join_all(all.iter().map(async |(_, place)| match place {
        Ok(Place::Look(selected, _)) => Some(look(view, selected).await),
        _ => None,
    }));
    let looked = looked.await;
    let refuses = |(is_advisory, place): &(Option<bool>, Result<Place<'_>, Status>), looked: &Looked| {
        let admitted = match (place, looked) {
            (_, Some(Ok(judged))) | (Ok(Place::Judged(judged)), _) => judged.outcome.admitted,
            (Ok(Place::Look(_, hits)), _) => hits.negative,
            _ => true,
        };
        !admitted && *is_advisory == Some(false)
    };
    let is_refused = all.iter().zip(&looked).any(|(one, looked)| refuses(one, looked));
    let store = view.store_of(&selection).cloned();
    let mut decision = match counts && !is_refused {
        true => selection.decide_on(store.as_ref(), now).await,
        false => foresee(view, &selection).await,
    };
    decision.admitted &= !is_refused;
    decision.holds.keep();
    view.observe_limits(Decided { selected: &selection.selected, decision: &decision });
    let each = all.into_iter().zip(looked).map(|((_, place), looked)| match place? {
        Place::Judged(judged) => Ok(judged),
        Place::Counted(_) if decision.unavailable => Err(unavailable()),
        Place::Counted(at) => {
            let verdict = decision.verdicts[at];
            Ok(Judged::new(verdict.answer.err(), verdict.usage))
        }
        Place::Look(selected, hits) => {
            let looked = looked.unwrap_or_else(|| Err(unavailable()))?;
            if !decision.admitted || !counts {
                return Ok(looked);
            }
            refund(view, &selected, hits);
            Ok(after_refund(looked, hits))
        }
    });
    each.collect()
}

/// What a look has found, if there was one.
type Looked = Option<Result<Judged, Status>>;

/// Where the decision about a descriptor comes from.
enum Place<'s> {
    /// It is known.
    Judged(Judged),
    /// It is the verdict with this index.
    Counted(usize),
    /// Nothing is counted.
    Look(Box<SelectedLimit<'s>>, Hits),
}

/// Adds a limit to those that decide together, and returns its index. Hits for the same key of the same limit are one charge.
fn add<'s>(selection: &mut LimitSelection<'s>, selected: SelectedLimit<'s>) -> usize {
    let same = |other: &SelectedLimit<'_>| {
        other.ask.key == selected.ask.key && std::ptr::eq(&**other.ask.limit, &**selected.ask.limit)
    };
    if let Some(at) = selection.selected.iter().position(same) {
        let ask = &mut selection.selected[at].ask;
        ask.cost = ask.cost.saturating_add(selected.ask.cost).min(MAX_COUNT);
        ask.base = ask.cost;
        return at;
    }
    selection.selected.push(selected);
    selection.selected.len() - 1
}

/// What limits would decide. Hits that are only asked about must not be seen by others, who would be refused: nothing is charged, not
/// even for a moment.
async fn foresee(view: &View, selection: &LimitSelection<'_>) -> Decision {
    let verdicts = join_all(selection.selected.iter().map(|selected| peek(view, &selected.ask))).await;
    let Ok(verdicts) = verdicts.into_iter().collect::<Result<Verdicts, Status>>() else {
        let mut decision = Decision::default();
        decision.unavailable = true;
        return decision;
    };
    let mut all = selection.selected.iter().zip(verdicts.iter());
    let admitted = all.all(|(selected, verdict)| verdict.answer.is_ok() || !selected.ask.limit.enforced);
    Decision::new(verdicts, admitted)
}

/// Looks at a limit without a charge. It refuses only if more is used than the limit has.
///
/// # Errors
/// If only the store may decide, and does not answer.
async fn look(view: &View, selected: &SelectedLimit<'_>) -> Result<Judged, Status> {
    let verdict = peek(view, &selected.ask).await?;
    Ok(Judged::new(verdict.answer.err(), verdict.usage))
}

/// What a limit would decide.
///
/// # Errors
/// If only the store may decide, and does not answer.
async fn peek(view: &View, ask: &Ask<'_>) -> Result<Verdict, Status> {
    let counted = counted(view, ask).await;
    let (Err(_), Some(store), Some(shared)) = (&counted, view.store(), &ask.limit.shared) else {
        return counted;
    };
    match shared.on_failure {
        StoreFailurePolicy::Closed if ask.limit.enforced => Err(unavailable()),
        StoreFailurePolicy::Closed | StoreFailurePolicy::Open => Ok(Verdict::not_asked(ask)),
        StoreFailurePolicy::Local => {
            // Each hit counts once for every gateway, as if it were charged.
            let mut alone = ask.clone();
            store.divide(&mut alone, store.now());
            alone.cost = alone.cost.saturating_mul(alone.share.into());
            Ok(known(&alone, alone.at, None))
        }
    }
}

/// What a limit would decide by what is counted, wherever that is.
///
/// # Errors
/// If the store has it, and does not answer.
async fn counted(view: &View, ask: &Ask<'_>) -> Result<Verdict, Status> {
    let Some(store) = view.store().filter(|_| ask.limit.shared.is_some()) else {
        return Ok(known(ask, ask.at, None));
    };
    let peeked = store.peek(ask.limit, ask.key, &ask.text, store.timeout()).await.ok_or_else(unavailable)?;
    Ok(known(ask, peeked.at, Some(peeked.usage)))
}

/// What a limit would decide by the known state of the key.
fn known(ask: &Ask<'_>, at: Time, usage: Option<Usage>) -> Verdict {
    let usage = usage.or_else(|| ask.limit.usage(ask.key, at)).unwrap_or_else(|| ask.limit.fresh(at));
    Verdict::new(ask.limit.refusal(ask.key, at, ask.cost).map_or(Ok(Span::ZERO), Err), usage)
}

/// Gives hits back, if the descriptor says so.
fn refund(view: &View, selected: &SelectedLimit<'_>, hits: Hits) {
    let (ask, count) = (&selected.ask, hits.count.min(MAX_COUNT));
    if !hits.negative || count == 0 {
        return;
    }
    match view.store().filter(|_| ask.limit.shared.is_some()) {
        Some(store) => store.refund_earlier(ask, count),
        None => ask.limit.counters.refund(ask.key, ask.at, count),
    }
}

/// What was found, after hits were given back.
fn after_refund(looked: Judged, hits: Hits) -> Judged {
    if !hits.negative {
        return looked;
    }
    let outcome = Outcome {
        admitted: true,
        remaining: looked.outcome.remaining.saturating_add(hits.count),
        ..looked.outcome
    };
    Judged { outcome, wait: None }
}

fn unavailable() -> Status {
    Status::unavailable("the store that counts this limit cannot be reached")
}
