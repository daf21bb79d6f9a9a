//! The decision about the descriptors of a request, by the limits that are in force.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sluicegate_config::{BoundedRate, OverLimit};
use sluicegate_limiter::{Quota, Span, Time, Usage};
use sluicegate_rls::descriptors::Amount;
use sluicegate_rls::plan::{Ask as Asked, AskedLimit, Outcome, Plan};
use sluicegate_rls::wire::ratelimit::{RateLimitRequest, RateLimitResponse, Unit};
use sluicegate_rls::wire::status::{Code, Status};
use sluicegate_route::keys;

use crate::limit::{Ask, Decided, Limit, SelectedLimit};
use crate::request::View;
use crate::request::limit_selection::LimitSelection;
use crate::resources::{MAX_HITS, RlsLimits};
use crate::respond::rls_refusal;

/// What decides about one descriptor.
enum Decider<'s> {
    /// Nothing is admitted, until the unit ends.
    Nothing(Unit),
    Limit(SelectedLimit<'s>),
}

/// The response to a request, which arrived at `now`.
///
/// # Errors
/// If the request is not valid, or the store must decide and cannot.
pub(super) async fn decide(
    view: &View,
    now: Time,
    request: &RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    let config = &view.snapshot.config;
    let (Some(rls), Some(limits)) = (&config.rls, &config.resources.rls) else {
        return Err(Status::unavailable("the configuration has no limits for other proxies"));
    };
    let plan = limits.domains.plan(request)?;
    let deciders: Vec<_> =
        plan.asks.iter().map(|ask| decider(view, now, limits, ask)).collect::<Result<_, _>>()?;
    let each = deciders.into_iter().zip(&plan.asks);
    let outcomes = match rls.over_limit {
        OverLimit::Charge => {
            let all = join_all(each.map(|(decider, ask)| alone(view, now, decider, ask))).await;
            all.into_iter().collect::<Result<Vec<_>, _>>()?
        }
        OverLimit::Keep => together(view, now, limits, each.collect()).await?,
    };
    let response = plan.answer(&outcomes)?;
    Ok(match response.is_over_limit() {
        true => refused(&plan, &outcomes, response),
        false => response,
    })
}

/// What decides about an ask.
fn decider<'s>(view: &'s View, now: Time, limits: &RlsLimits, ask: &Asked) -> Result<Decider<'s>, Status> {
    let snapshot = &view.snapshot;
    let (index, limit, key) = match ask.limit {
        AskedLimit::Rule(rule) => match (limits.limits[rule], limits.domains.rules()[rule].amount) {
            (Some(index), _) => (index, &snapshot.limits[index], None),
            (None, Amount::Limited { unit, .. }) => return Ok(Decider::Nothing(unit)),
            (None, Amount::Unlimited) => return Ok(Decider::Nothing(Unit::Second)), // is not asked
        },
        AskedLimit::Override { requests_per_unit: 0, unit } => return Ok(Decider::Nothing(unit)),
        AskedLimit::Override { requests_per_unit, unit } => {
            let index = limits.of_requests;
            let limit = of_request(&snapshot.limits[index], requests_per_unit, unit);
            let limit = limit.ok_or_else(|| {
                Status::new(Code::ResourceExhausted, "a descriptor carries a limit that cannot be counted")
            })?;
            // Another unit has another window.
            (index, limit, Some(format!("{}|{}", ask.key, unit.name())))
        }
    };
    let (key, text) = keys::of_descriptor(key.as_deref().unwrap_or(&ask.key), &snapshot.secret);
    let cost = if ask.hits.negative { 0 } else { ask.hits.count.min(sluicegate_limiter::MAX_COUNT) };
    let ask = Ask { text, ..Ask::new(&limit.counted, key, cost, now) };
    Ok(Decider::Limit(SelectedLimit { index, limit, candidate: false, ask, fair: None }))
}

/// The limit of the rates that requests carry, with this one.
fn of_request(limit: &Arc<Limit>, hits: u32, unit: Unit) -> Option<&Arc<Limit>> {
    let rate = BoundedRate::unbounded(hits.min(MAX_HITS).into(), unit.seconds()?)?;
    match limit.counted.quota.rate().is_some_and(|own| rate.is(own)) {
        true => Some(limit),
        false => limit.with_identity_rate(rate, None),
    }
}

/// Decides about one descriptor, whatever others say: hits above its limit are counted, too.
async fn alone(view: &View, now: Time, decider: Decider<'_>, asked: &Asked) -> Result<Outcome, Status> {
    let selected = match decider {
        Decider::Nothing(unit) => return Ok(nothing(now, unit, asked)),
        Decider::Limit(selected) if selected.ask.cost == 0 => return Ok(look(view, selected, asked).await),
        Decider::Limit(selected) => selected,
    };
    let mut selection = LimitSelection::default();
    selection.selected.push(selected);
    let store = view.store_of(&selection).cloned();
    let mut decision = selection.decide_on(store.as_ref(), now).await;
    decision.holds.keep();
    let decided = Decided { selected: &selection.selected, decision: &decision };
    view.observe_limits(decided);
    if decision.unavailable {
        return Err(away());
    }
    let (ask, verdict) = (&selection.selected[0].ask, decision.verdicts[0]);
    if verdict.answer.is_err() && !is_above(ask) {
        match &store {
            Some(store) => store.charge(ask, ask.cost),
            None => ask.limit.counters.settle(ask.key, ask.at, ask.cost),
        }
        return Ok(outcome(false, Usage { remaining: 0, ..verdict.usage }));
    }
    Ok(outcome(verdict.answer.is_ok(), verdict.usage))
}

/// Whether the count of a window is known to be above its limit: further hits change nothing. The debt of a bucket has no such
/// end.
fn is_above(ask: &Ask<'_>) -> bool {
    matches!(ask.limit.quota, Quota::FixedWindow(..)) && ask.limit.refusal(ask.key, ask.at, 0).is_some()
}

/// Looks at a limit without a charge, and gives hits back if the descriptor says so. It refuses only if more is used than the limit
/// has.
async fn look(view: &View, selected: SelectedLimit<'_>, asked: &Asked) -> Outcome {
    let (limit, mut selection) = (selected.limit, LimitSelection::default());
    selection.selected.push(selected);
    let store = view.store_of(&selection).cloned();
    let ask = &selection.selected[0].ask;
    let peeked = match &store {
        Some(store) => store.peek(ask.limit, ask.key, &ask.text, store.timeout()).await,
        None => None,
    };
    let at = peeked.as_ref().map_or(ask.at, |peeked| peeked.at);
    let usage = peeked.map(|peeked| peeked.usage).or_else(|| ask.limit.usage(ask.key, at));
    let usage = usage.unwrap_or_else(|| limit.counted.fresh(at));
    if !asked.hits.negative {
        return outcome(ask.limit.refusal(ask.key, at, 0).is_none(), usage);
    }
    let count = asked.hits.count;
    match &store {
        Some(store) => store.refund_earlier(ask, count),
        None => ask.limit.counters.refund(ask.key, at, count),
    }
    let remaining = usage.remaining.saturating_add(count).min(usage.capacity);
    outcome(true, Usage { remaining, ..usage })
}

/// Decides about all descriptors at once: if a limit refuses, nothing is counted.
async fn together(
    view: &View,
    now: Time,
    limits: &RlsLimits,
    deciders: Vec<(Decider<'_>, &Asked)>,
) -> Result<Vec<Outcome>, Status> {
    let mut selection = LimitSelection::default();
    let mut places = Vec::with_capacity(deciders.len());
    let mut refused = false;
    for (decider, asked) in deciders {
        places.push(match decider {
            Decider::Nothing(unit) => {
                let outcome = nothing(now, unit, asked);
                refused |= !outcome.admitted && !is_never_enforced(limits, asked);
                Err(outcome)
            }
            Decider::Limit(selected) if selected.ask.cost == 0 => {
                let outcome = look(view, selected, asked).await;
                refused |= !outcome.admitted && !is_never_enforced(limits, asked);
                Err(outcome)
            }
            Decider::Limit(selected) => {
                selection.selected.push(selected);
                Ok(selection.selected.len() - 1)
            }
        });
    }
    let store = view.store_of(&selection).cloned();
    let mut decision = match refused {
        true => selection.try_out(store.as_ref(), now).await,
        false => selection.decide_on(store.as_ref(), now).await,
    };
    decision.holds.keep();
    view.observe_limits(Decided { selected: &selection.selected, decision: &decision });
    if decision.unavailable {
        return Err(away());
    }
    let outcomes = places.into_iter().map(|place| match place {
        Err(outcome) => outcome,
        Ok(at) => outcome(decision.verdicts[at].answer.is_ok(), decision.verdicts[at].usage),
    });
    Ok(outcomes.collect())
}

/// Whether a refusal of this limit refuses no request by itself.
fn is_never_enforced(limits: &RlsLimits, asked: &Asked) -> bool {
    asked
        .rule()
        .map(|rule| &limits.domains.rules()[rule])
        .is_some_and(|rule| rule.shadow_mode || rule.quota_mode)
}

fn away() -> Status {
    Status::unavailable("the store that counts this limit cannot be reached")
}

/// The outcome of a limit of 0.
fn nothing(now: Time, unit: Unit, asked: &Asked) -> Outcome {
    let second = Span::SECOND.as_nanos();
    let period = unit.seconds().unwrap_or(1).saturating_mul(second);
    let reset = Duration::from_nanos(period - now.as_nanos() % period);
    Outcome { admitted: asked.hits.count == 0 || asked.hits.negative, remaining: 0, reset }
}

fn outcome(admitted: bool, usage: Usage) -> Outcome {
    Outcome { admitted, remaining: usage.remaining, reset: Duration::from_nanos(usage.reset.as_nanos()) }
}

/// The response with what the client of the proxy is told of the refusal.
fn refused(plan: &Plan<'_>, outcomes: &[Outcome], mut response: RateLimitResponse) -> RateLimitResponse {
    let over = plan.asks.iter().zip(outcomes).filter(|(_, outcome)| !outcome.admitted);
    let longest = over.max_by_key(|(_, outcome)| outcome.reset);
    let Some((ask, outcome)) = longest else { return response };
    let limit = plan.limit(ask);
    let name = match (limit.name.as_str(), plan.rule(ask)) {
        ("", Some(rule)) => rule.path.clone(),
        (name, _) => name.to_owned(),
    };
    let reset = outcome.reset;
    let seconds = reset.as_secs() + u64::from(reset.subsec_nanos() > 0);
    let (headers, body) = rls_refusal(&name, seconds.max(1));
    response.raw_body = body.into();
    response.with_response_headers(headers)
}
