//! The decision about the descriptors of a request, by the limits that are in force.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_config::{BoundedRate, OverLimit};
use sluicegate_limiter::{Span, Time};
use sluicegate_rls::descriptors::Amount;
use sluicegate_rls::plan::{Ask as Asked, AskedLimit, Outcome, Plan};
use sluicegate_rls::wire::ratelimit::{Code, RateLimitRequest, RateLimitResponse, Unit};
use sluicegate_rls::wire::status::{Code as GrpcCode, Status};

use super::counting::{decide_all, decide_each};
use super::item::{Decider, Item, Judged};
use crate::limit::Limit;
use crate::request::View;
use crate::resources::{MAX_HITS, RlsLimits};
use crate::respond::rls_refusal;

/// The response to a request, which arrived at `now`.
///
/// # Errors
/// If the request is not valid, or if the store must decide and cannot, and no other limit refuses.
pub(super) async fn decide(
    view: &View,
    now: Time,
    request: &RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    let config = &view.snapshot.config;
    let (Some(rls), Some(limits)) = (&config.rls, &config.resources.rls) else {
        return Err(Status::unavailable(
            "there are no limits for this listener since the configuration was last loaded",
        ));
    };
    let plan = limits.domains.plan(request)?;
    let item = |asked| {
        let rule = plan.rule(asked);
        let is_advisory = rule.is_some_and(|rule| rule.shadow_mode || rule.quota_mode);
        Ok(Item { decider: decider(view, now, limits, asked)?, hits: asked.hits, is_advisory })
    };
    let items: Vec<Result<Item<'_>, Status>> = plan.asks.iter().map(item).collect();
    let judged = match rls.over_limit {
        OverLimit::Charge => decide_each(view, now, items).await,
        OverLimit::Keep => decide_all(view, now, items).await,
    };
    let admitted = Outcome { admitted: true, remaining: 0, reset: Duration::ZERO };
    let outcomes: Vec<_> =
        judged.iter().map(|judged| judged.as_ref().map_or(admitted, |judged| judged.outcome)).collect();
    let response = plan.answer(&outcomes)?;
    // A refusal is known whatever failed: most proxies let a request pass after an error.
    if response.is_over_limit() {
        return Ok(refused(&plan, &judged, response));
    }
    match judged.into_iter().find_map(Result::err) {
        Some(status) => Err(status),
        None => Ok(response),
    }
}

/// What decides about an ask.
///
/// # Errors
/// If it carries a limit that cannot be counted.
fn decider<'s>(view: &'s View, now: Time, limits: &RlsLimits, ask: &Asked) -> Result<Decider<'s>, Status> {
    let snapshot = &view.snapshot;
    let (index, limit, key) = match ask.limit {
        AskedLimit::Rule(rule) => match (limits.limits[rule], limits.domains.rules()[rule].amount) {
            (Some(index), _) => (index, &snapshot.limits[index], None),
            (None, Amount::Limited { unit, .. }) => return Ok(zero(unit)),
            (None, Amount::Unlimited) => return Ok(Decider::zero(1)), // such a rule is not asked
        },
        AskedLimit::Override { requests_per_unit: 0, unit } => return Ok(zero(unit)),
        AskedLimit::Override { requests_per_unit, unit } => {
            let index = limits.of_requests;
            let limit = with_rate(&snapshot.limits[index], requests_per_unit, unit);
            let limit = limit.ok_or_else(|| {
                Status::new(
                    GrpcCode::ResourceExhausted,
                    "a descriptor carries a limit that cannot be counted",
                )
            })?;
            // Another unit has another window.
            (index, limit, Some(format!("{}|{}", ask.key, unit.name())))
        }
    };
    let key = key.as_deref().unwrap_or(&ask.key);
    Ok(Decider::limit(snapshot, (index, limit), (key, ask.hits), now))
}

fn zero<'s>(unit: Unit) -> Decider<'s> {
    Decider::zero(unit.seconds().unwrap_or(1))
}

/// The limit of the rates that requests carry, with this one; `None` if it cannot have it.
fn with_rate(limit: &Arc<Limit>, hits: u32, unit: Unit) -> Option<&Arc<Limit>> {
    let rate = BoundedRate::unbounded(hits.min(MAX_HITS).into(), unit.seconds()?)?;
    match limit.counted.quota.rate().is_some_and(|own| rate.is(own)) {
        true => Some(limit),
        false => limit.with_identity_rate(rate, None),
    }
}

/// The response with what the client of the proxy is told of the refusal: the limit with the longest wait.
fn refused(
    plan: &Plan<'_>,
    judged: &[Result<Judged, Status>],
    mut response: RateLimitResponse,
) -> RateLimitResponse {
    let is_over = |ask: &Asked| response.statuses[ask.descriptor].code == Code::OverLimit as i32;
    let over = plan.asks.iter().zip(judged).filter(|(ask, _)| is_over(ask));
    let over = over.filter_map(|(ask, judged)| Some((ask, judged.as_ref().ok()?)));
    let Some((ask, judged)) = over.max_by_key(|(_, judged)| judged.wait.unwrap_or(Span::MAX)) else {
        return response;
    };
    let limit = plan.limit(ask);
    let name = match (limit.name.as_str(), plan.rule(ask)) {
        ("", Some(rule)) => rule.path.clone(),
        (name, _) => name.to_owned(),
    };
    let (headers, body) = rls_refusal(&name, judged.wait.map(|wait| wait.ceil_secs().max(1)));
    response.raw_body = body.into();
    response.with_response_headers(headers)
}
