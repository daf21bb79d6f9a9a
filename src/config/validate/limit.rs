//! Limits: whose requests, how many, and what can be doubted about them.

use super::super::forms::RawCost;
use super::super::model::{ClientIpConfig, Cost, LimitConfig, Mode, OnMissing, Quota, RouteConfig};
use super::super::raw::RawLimit;
use super::super::read::At;
use super::super::report::{Mistake, Report};
use super::super::values;
use super::key::{self, exempt};
use super::quota::quota;
use super::section::Section;
use super::{in_range, missing, value, word};
use crate::key::Part;

/// Live counters of a limit when nothing else is said.
const MAX_KEYS: u64 = 1_000_000;

pub(super) fn limit(name: &At<String>, raw: &RawLimit, report: &mut Report) -> Option<LimitConfig> {
    if raw.key.is_none() {
        missing(name.at, &format!("the limit `{}`", name.value), ("key", "ip"), &raw.wrong, report);
    }
    let key = raw.key.as_ref().and_then(|key| key::key(key, report));
    let quota = quota(name, raw, report);
    let cost = match &raw.cost {
        Some(cost) => self::cost(cost, quota.as_ref(), report),
        None => Some(Cost::Constant(1)),
    };
    let modes = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)];
    let mode = raw.mode.as_ref().map_or(Some(Mode::Enforce), |text| word(text, "mode", &modes, report));
    let missings = [("shared", OnMissing::Shared), ("skip", OnMissing::Skip), ("deny", OnMissing::Deny)];
    let on_missing = raw
        .on_missing
        .as_ref()
        .map_or(Some(OnMissing::Shared), |text| word(text, "on_missing", &missings, report));
    let max_keys =
        raw.max_keys.as_ref().map_or(Some(MAX_KEYS), |n| in_range(n, 1..=1_000_000_000, "max_keys", report));
    if let Some(scope) = &raw.scope {
        check_scope(scope, report);
    }
    let exempt = exempt(raw.exempt.as_ref(), key.as_ref(), report);
    Some(LimitConfig {
        name: name.value.clone(),
        key: key?,
        quota: quota?,
        cost: cost?,
        mode: mode?,
        exempt,
        on_missing: on_missing?,
        max_keys: max_keys? as usize,
    })
}

fn check_scope(scope: &At<String>, report: &mut Report) {
    match scope.value.as_str() {
        "local" => {}
        "shared" => report.error(
            scope
                .problem("a shared scope needs a store, which this version does not have")
                .help("leave `scope` out: counters live in this process"),
        ),
        // Nothing is "near" here: who writes `global` wants the opposite of `local`.
        other => report.error(scope.problem(format!("unknown scope `{other}`")).help("known: local")),
    }
}

fn cost(raw: &At<RawCost>, quota: Option<&Quota>, report: &mut Report) -> Option<Cost> {
    let text = At { at: raw.at, value: raw.value.0.clone() };
    if let Some(name) = text.value.strip_prefix("header:") {
        return key::header(&text, name, report).map(Cost::Header);
    }
    let cost = value(&text, report, |text| {
        values::count(text)
            .map_err(|_| format!("expected a number or header:NAME as the cost, found `{text}`"))
    })?;
    let wrong = if cost == 0 {
        Mistake::new("a cost is at least 1").help("use `mode: off` to count nothing")
    } else {
        let quota = quota?;
        let capacity = quota.capacity();
        if cost <= capacity {
            return Some(Cost::Constant(cost));
        }
        let (cost, capacity) = (values::grouped(cost), values::grouped(capacity));
        let larger = match quota {
            Quota::TokenBucket(..) | Quota::LeakyBucket(..) => "`burst`",
            _ => "the rate's count",
        };
        Mistake::new(format!("a cost of {cost} can never be admitted: the limit holds {capacity}"))
            .help(format!("raise {larger}, or lower the cost"))
    };
    report.error(wrong.at(text.at));
    None
}

/// What works, but perhaps not as meant.
pub(super) fn doubts(
    limits: &Section<LimitConfig>,
    routes: &[RouteConfig],
    client_ip: &ClientIpConfig,
    report: &mut Report,
) {
    let enforced_by_address = |limit: &LimitConfig| {
        limit.mode == Mode::Enforce && limit.key.parts().all(|part| matches!(part, Part::Ip | Part::Global))
    };
    let guards: Vec<bool> = limits.valid().map(|(_, limit)| enforced_by_address(limit)).collect();
    let guarded = |route: &RouteConfig| route.limits.iter().any(|used| guards.get(*used) == Some(&true));
    let unverified =
        |part: &Part| matches!(part, Part::ApiKey | Part::Header(_) | Part::Query(_) | Part::Cookie(_));
    for (index, (name, limit)) in limits.valid().enumerate() {
        let users: Vec<&RouteConfig> = routes.iter().filter(|route| route.limits.contains(&index)).collect();
        if users.is_empty() && report.errors.is_empty() {
            report.warning(
                name.problem(format!("no route uses the limit `{}`", name.value))
                    .help("add it to the `limits` of a route"),
            );
        }
        if limit.key.parts().any(unverified) && users.iter().any(|route| !guarded(route)) {
            report.warning(
                name.problem(format!("a client can escape `{}` by changing what it sends", name.value))
                    .help("nothing verifies this key; put a limit with `key: ip` (or `global`) beside it"),
            );
        }
        if matches!(limit.cost, Cost::Header(_)) && client_ip.trusted_proxies.is_empty() && !users.is_empty()
        {
            report.warning(
                name.problem(format!("clients choose what their requests cost in `{}`", name.value)).help(
                    "nothing verifies the header; let a trusted proxy write it, or give a constant cost",
                ),
            );
        }
    }
}
