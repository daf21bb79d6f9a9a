//! Other numbers for some requests of a limit: plans, a candidate; and which requests it concerns at all.

use sluicegate_limiter::Quota;

use super::checks::{check_name, empty, value};
use super::matching::{header_values, method};
use super::quota::quota;
use crate::language::values::{self, grouped};
use crate::model::cost::Cost;
use crate::model::limit::When;
use crate::raw::RawPlan;
use crate::raw::{RawConfig, RawLimit, RawWhen};
use crate::read::Named;
use crate::read::at::At;
use crate::read::is_wrong;
use crate::read::report::Report;

/// The quotas by plan.
pub(super) fn plans(
    name: &At<String>,
    raw: &RawLimit,
    cost: Option<&Cost>,
    report: &mut Report,
) -> Option<Vec<(String, Quota)>> {
    let Some(At { value: Named(plans), .. }) = &raw.plans else {
        return (!is_wrong!(raw, plans)).then(Vec::new);
    };
    let mut valid = Vec::new();
    let mut all = true;
    for (plan, numbers) in plans {
        check_name(plan, "plan", report);
        let numbers = numbers.as_ref().map(|numbers| At { at: plan.at, value: numbers.clone() });
        if let Some(help) = numbers.as_ref().and_then(|numbers| missing_period(raw, numbers)) {
            let problem = plan.problem(format!("the plan `{}` has a number without a period", plan.value));
            report.error(problem.help(format!("write `plans: {{{}: {{rate: {help}}}}}`", plan.value)));
            all = false;
            continue;
        }
        match numbers.and_then(|numbers| special(name, raw, &numbers, cost, report)) {
            Some(quota) => valid.push((plan.value.clone(), quota)),
            None => all = false,
        }
    }
    all.then_some(valid)
}

/// The rate that is meant by a number alone, if the limit counts by time: the number in the period of the limit itself.
fn missing_period(raw: &RawLimit, numbers: &At<RawPlan>) -> Option<String> {
    let RawPlan(fields) = &numbers.value;
    let max = fields.max.as_ref().filter(|max| max.at == fields.at)?; // not written as `{max: 10}`
    let timed = raw.algorithm.as_ref().is_none_or(|algorithm| algorithm.value != "concurrency");
    let period = raw.rate.as_ref().and_then(|rate| Some(rate.value.split_once('/')?.1.trim()));
    timed.then(|| format!("{}/{}", max.value.0, period.unwrap_or("min")))
}

/// The plans that consumers can be on, because a limit names them; none if no limit has numbers for any.
pub(crate) fn known(raw: &RawConfig) -> Vec<String> {
    let limits =
        || raw.limits.iter().flat_map(|limits| &limits.value.0).filter_map(|(_, limit)| limit.as_ref());
    let of_limits = limits().flat_map(|limit| &limit.plans).flat_map(|plans| &plans.value.0);
    let mut known: Vec<String> = of_limits.map(|(plan, _)| plan.value.clone()).collect();
    if !known.is_empty() {
        known.extend(limits().flat_map(exempt).map(|(plan, _)| plan.to_owned()));
        let weights = limits().filter_map(|limit| limit.fair.as_ref()?.value.weights.as_ref());
        known.extend(weights.flat_map(|weights| &weights.value.0).map(|(plan, _)| plan.value.clone()));
    }
    known.sort();
    known.dedup();
    known
}

/// The plans that a limit leaves alone.
fn exempt(limit: &RawLimit) -> impl Iterator<Item = (&str, &At<String>)> {
    let all = limit.exempt.iter().flat_map(|exempt| &exempt.value);
    all.filter_map(|text| Some((text.value.strip_prefix("plan:")?, text)))
}

/// The quota that is tried beside the enforced one.
pub(super) fn candidate(
    name: &At<String>,
    raw: &RawLimit,
    cost: Option<&Cost>,
    report: &mut Report,
) -> Option<Option<Quota>> {
    match &raw.candidate {
        Some(numbers) => {
            if let Some(rate) = missing_period(raw, numbers) {
                let problem = numbers.problem("`candidate` is a number without a period");
                report.error(problem.help(format!("write `candidate: {rate}`")));
                return None;
            }
            special(name, raw, numbers, cost, report).map(Some)
        }
        None => (!is_wrong!(raw, candidate)).then_some(None),
    }
}

/// The limit's own algorithm with other numbers.
pub(super) fn special(
    name: &At<String>,
    raw: &RawLimit,
    numbers: &At<RawPlan>,
    cost: Option<&Cost>,
    report: &mut Report,
) -> Option<Quota> {
    let RawPlan(fields) = &numbers.value;
    if !fields.wrong.is_empty() {
        return None; // reported where they were read
    }
    // One is given where the other is meant: that is told once.
    let wrong = match (&fields.rate, &fields.max) {
        (None, Some(_)) => vec!["rate"],
        (Some(_), None) => vec!["max"],
        _ => Vec::new(),
    };
    // The zone is that of the limit, for those of its rates that begin in one.
    let in_zone = fields.rate.as_ref().is_none_or(|text| !matches!(values::rate(&text.value), Ok((_, None))));
    let all = RawLimit {
        zone: raw.zone.clone().filter(|_| in_zone),
        rate: fields.rate.clone(),
        burst: fields.burst.clone(),
        max: fields.max.clone(),
        wrong,
        ..raw.clone()
    };
    let at = At { at: numbers.at, value: name.value.clone() };
    let quota = quota(&at, &all, report)?;
    if let Some(Cost::Constant(cost)) = cost
        && *cost > quota.capacity()
    {
        let (cost, holds) = (grouped(*cost), grouped(quota.capacity()));
        report.error(
            numbers
                .problem(format!("a cost of {cost} can never be admitted: this holds {holds}"))
                .help("raise its rate or burst, or lower the cost"),
        );
        return None;
    }
    Some(quota)
}

/// The requests that a limit concerns.
pub(super) fn when(raw: Option<&At<RawWhen>>, report: &mut Report) -> Option<When> {
    let raw = raw?;
    let mut when = When::default();
    if let Some(methods) = &raw.value.methods {
        if methods.value.0.is_empty() {
            empty(methods.at, "methods", "leave it out for all", report);
        }
        when.methods = methods.value.0.iter().filter_map(|text| value(text, report, method)).collect();
    }
    when.headers = header_values(raw.value.headers.as_ref(), report);
    if let Some(keys) = &raw.value.key {
        if keys.value.0.is_empty() {
            empty(keys.at, "key", "leave it out for all", report);
        }
        when.keys = keys.value.0.iter().map(|key| key.value.clone()).collect();
    }
    Some(when)
}
