//! Validates `priorities`, and `overload` of an upstream.

use std::collections::BTreeMap;
use std::time::Duration;

use super::checks::{between, header_name, in_range, value, word};
use super::jwt::is_reserved;
use super::share::share;
use crate::language::values;
use crate::model::overload::{OverloadConfig, OwnOverloadConfig, PrioritiesConfig};
use crate::raw::overload::{RawOverload, RawOwnOverload, RawPriorities};
use crate::read::Named;
use crate::read::at::At;
use crate::read::is_wrong;
use crate::read::report::{Mistake, Problem, Report};
use sluicegate_overload::Priority;

const MAX_IN_FLIGHT: u64 = 1_000;
const MIN_IN_FLIGHT: u64 = 10;
const QUEUE: u64 = 500;
const DEADLINE: Duration = Duration::from_secs(1);
/// In millionths.
const RESERVE: u32 = 200_000;
const MAX_DELAY: Duration = Duration::from_millis(100);
const LEAST_MEMORY: u64 = 16 << 20;

pub(super) fn priority(text: Option<&At<String>>, report: &mut Report) -> Option<Priority> {
    text.map_or(Some(Priority::default()), |text| word(text, "priority", &Priority::NAMED, report))
}

pub(super) fn priorities(
    raw: Option<&At<RawPriorities>>,
    plans: &[String],
    has_consumers: bool,
    report: &mut Report,
) -> PrioritiesConfig {
    let Some(At { value: raw, .. }) = raw else { return PrioritiesConfig::default() };
    let mut named = |raw: Option<&At<Named<At<String>>>>| -> BTreeMap<String, Priority> {
        let pairs = raw.map_or(&[][..], |raw| &raw.value.0).iter();
        pairs
            .filter_map(|(name, text)| Some((name.value.clone(), priority(text.as_ref(), report)?)))
            .collect()
    };
    let (of_plans, of_consumers) = (named(raw.plans.as_ref()), named(raw.consumers.as_ref()));
    for (name, _) in raw.plans.as_ref().map_or(&[][..], |plans| &plans.value.0) {
        if !plans.contains(&name.value) && !has_consumers {
            let problem = name.problem(format!("nobody can be on the plan `{}`", name.value));
            report.error(
                problem.help("consumers, tokens or an external check say who is on which plan: see auth"),
            );
        }
    }
    if let Some(consumers) = raw.consumers.as_ref().filter(|_| !has_consumers) {
        let problem = Problem::new(consumers.at, "there are no consumers");
        report.error(problem.help("name their file: auth.api_key.consumers"));
    }
    let header = raw.header.as_ref().and_then(|text| value(text, report, header_name));
    if let Some((text, name)) = raw.header.as_ref().zip(header.as_ref())
        && is_reserved(name)
    {
        let problem = text.problem(format!("a priority cannot be in `{}`", text.value));
        report.error(
            problem.help(
                "that header means something else already; take a name of your own, such as X-Priority",
            ),
        );
    }
    let forward = raw.forward.as_ref();
    if let Some(forward) =
        forward.filter(|forward| forward.value && raw.header.is_none() && !is_wrong!(raw, header))
    {
        let problem = Problem::new(forward.at, "`forward` needs `header`");
        report.error(problem.help("such as `header: X-Priority`"));
    }
    let forward = forward.is_some_and(|forward| forward.value);
    PrioritiesConfig { plans: of_plans, consumers: of_consumers, header, forward }
}

/// That of the gateway itself.
pub(super) fn own(raw: &RawOwnOverload, report: &mut Report) -> Option<OwnOverloadConfig> {
    // `None` is a mistake, `Some(None)` a field that is not there.
    let max_memory = raw.max_memory.as_ref().map_or(Some(None), |text| {
        let bytes = value(text, report, |text| match values::bytes(text)? {
            bytes @ LEAST_MEMORY.. => Ok(bytes),
            _ => Err(Mistake::new(format!("`max_memory` is at least 16MiB, not {text}"))),
        });
        bytes.map(Some)
    });
    let bounds = [(Duration::from_millis(5), "5ms"), (Duration::from_secs(10), "10s")];
    let max_delay = raw.max_delay.as_ref();
    let max_delay =
        max_delay.map_or(Some(MAX_DELAY), |text| between(text, "max_delay", bounds[0], bounds[1], report));
    Some(OwnOverloadConfig { max_memory: max_memory?, max_delay: max_delay? })
}

pub(super) fn overload(raw: &RawOverload, report: &mut Report) -> Option<OverloadConfig> {
    let most = raw
        .max_in_flight
        .as_ref()
        .map_or(Some(MAX_IN_FLIGHT), |n| in_range(n, 1..=1_000_000, "max_in_flight", report));
    let usual = MIN_IN_FLIGHT.min(most.unwrap_or(MAX_IN_FLIGHT));
    let least = raw
        .min_in_flight
        .as_ref()
        .map_or(Some(usual), |n| in_range(n, 1..=1_000_000, "min_in_flight", report));
    if let Some((at, (least, most))) = raw.min_in_flight.as_ref().zip(least.zip(most))
        && least > most
    {
        let problem = at.problem("`min_in_flight` is above `max_in_flight`");
        report.error(problem.help(format!("{most} at most")));
    }
    let adaptive = raw.adaptive.as_ref().is_none_or(|adaptive| adaptive.value);
    for (at, field) in [
        (raw.min_in_flight.as_ref().map(|text| text.at), "min_in_flight"),
        (raw.latency_target.as_ref().map(|text| text.at), "latency_target"),
    ] {
        if let Some(at) = at.filter(|_| !adaptive) {
            let problem = Problem::new(at, format!("`{field}` means nothing without `adaptive`"));
            report.error(
                problem.help("remove it, or `adaptive: false`: then the limit is always `max_in_flight`"),
            );
        }
    }
    let bounds = [(Duration::from_millis(1), "1ms"), (Duration::from_secs(60), "1min")];
    let latency_target = raw
        .latency_target
        .as_ref()
        .map_or(Some(None), |text| between(text, "latency_target", bounds[0], bounds[1], report).map(Some));
    let queue = raw.queue.as_ref().map(|queue| &queue.value);
    let size = queue.and_then(|queue| queue.size.as_ref());
    let size = size.map_or(Some(QUEUE), |n| in_range(n, 0..=100_000, "size", report));
    let deadline = queue.and_then(|queue| queue.deadline.as_ref());
    let deadline =
        deadline.map_or(Some(DEADLINE), |text| between(text, "deadline", bounds[0], bounds[1], report));
    let reserve = raw.reserve.as_ref().and_then(|reserve| reserve.value.critical.as_ref());
    let reserve = reserve.map_or(Some(RESERVE), |text| Some(value(text, report, share)?.as_millionths()));
    Some(OverloadConfig {
        max_in_flight: most? as u32,
        min_in_flight: least? as u32,
        adaptive,
        latency_target: latency_target?,
        queue_size: size? as usize,
        queue_deadline: deadline?,
        reserve: reserve?,
    })
}
