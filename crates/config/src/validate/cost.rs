//! Validates costs.

use std::collections::HashMap;

use sluicegate_limiter::Quota;

use super::checks::{header_name, value, word};
use super::key;
use super::matching::method;
use crate::language::values;
use crate::model::cost::{CHECKED, Cost, DetailedCost};
use crate::model::limit::LimitConfig;
use crate::model::route::RouteConfig;
use crate::raw::RawCost;
use crate::raw::{RawConfig, RawCostFields, RawLimit};
use crate::read::at::At;
use crate::read::report::{Mistake, Report};

/// A cost. `checked`: requests are checked outside, and the answer may name it.
pub(super) fn cost(
    raw: &At<RawCost>,
    quota: Option<&Quota>,
    checked: bool,
    report: &mut Report,
) -> Option<Cost> {
    match &raw.value {
        RawCost::Text(text) => simple(&At { at: raw.at, value: text.clone() }, quota, checked, report),
        RawCost::Fields(fields) => detailed(fields, quota, checked, report),
    }
}

fn simple(text: &At<String>, quota: Option<&Quota>, checked: bool, report: &mut Report) -> Option<Cost> {
    if text.value == CHECKED {
        return needs_check(text, checked, report).then_some(Cost::Check);
    }
    if let Some(name) = text.value.strip_prefix("header:") {
        return key::header(text, name, report).map(Cost::Header);
    }
    let cost = value(text, report, |text| {
        values::count(text).map_err(|mistake| {
            mistake.saying(format!("expected a number, header:NAME or a mapping as the cost, found `{text}`"))
        })
    })?;
    if cost == 0 {
        let zero = Mistake::new("a cost is at least 1").help("use `mode: off` to count nothing");
        report.error(zero.at(text.at));
        return None;
    }
    fits(cost, text, quota?, report).then_some(Cost::Constant(cost))
}

/// Whether the limit could ever admit such a cost.
fn fits<T>(cost: u64, at: &At<T>, quota: &Quota, report: &mut Report) -> bool {
    if cost <= quota.capacity() {
        return true;
    }
    let (cost, capacity) = (values::grouped(cost), values::grouped(quota.capacity()));
    let larger = match quota {
        Quota::TokenBucket(..) | Quota::LeakyBucket(..) => "`burst`",
        _ => "the rate's count",
    };
    report.error(
        Mistake::new(format!("a cost of {cost} can never be admitted: the limit holds {capacity}"))
            .help(format!("raise {larger}, or lower the cost"))
            .at(at.at),
    );
    false
}

/// Whether a request can have this cost. A cost of 0 requires a charge after the response.
fn spent<T>(cost: u64, at: &At<T>, settled: bool, quota: &Quota, report: &mut Report) -> bool {
    if cost == 0 && !settled {
        let zero =
            Mistake::new("a cost is at least 1").help("requests that cost nothing are left out by `when`");
        report.error(zero.at(at.at));
        return false;
    }
    cost == 0 || fits(cost, at, quota, report)
}

/// Whether there is an external check, which a cost needs that its answer names.
fn needs_check(text: &At<String>, checked: bool, report: &mut Report) -> bool {
    if !checked {
        report.error(
            text.problem(format!("the cost `{CHECKED}` needs `auth.check`"))
                .help("its answer names the cost, in X-Sluicegate-Cost"),
        );
    }
    checked
}

fn detailed(raw: &RawCostFields, quota: Option<&Quota>, checked: bool, report: &mut Report) -> Option<Cost> {
    let errors = report.errors.len();
    let quota = quota?;
    let mut cost = DetailedCost {
        request: u64::from(raw.status.is_some() || raw.methods.is_some() || raw.routes.is_some()),
        request_header: None,
        request_check: false,
        methods: Vec::new(),
        status: Vec::new(),
        response_header: raw.response_header.as_ref().and_then(|name| value(name, report, header_name)),
        routes: Vec::new(),
        request_bytes: false,
        response_bytes: false,
        reserve: None,
    };
    if let Some(text) = &raw.request {
        match text.value.strip_prefix("header:") {
            None if text.value == CHECKED => cost.request_check = needs_check(text, checked, report),
            Some(name) => cost.request_header = key::header(text, name, report),
            None => {
                let said = value(text, report, |text| {
                    values::count(text).map_err(|mistake| {
                        mistake
                            .saying(format!("expected a number or header:NAME as the cost, found `{text}`"))
                    })
                });
                if let Some(said) = said.filter(|said| fits(*said, text, quota, report)) {
                    cost.request = said;
                }
            }
        }
    }
    let settled = raw.status.is_some() || raw.response_header.is_some() || raw.bytes.is_some();
    for (name, said) in raw.methods.as_ref().map_or(&[][..], |methods| &methods.value.0) {
        if let (Some(method), Some(said)) = (value(name, report, method), said)
            && spent(said.0, name, settled, quota, report)
        {
            cost.methods.push((method, said.0));
        }
    }
    for (name, said) in raw.routes.as_ref().map_or(&[][..], |routes| &routes.value.0) {
        if let Some(said) = said.filter(|said| spent(said.0, name, settled, quota, report)) {
            cost.routes.push((name.value.clone(), said.0));
        }
    }
    for text in raw.status.as_ref().map_or(&[][..], |status| &status.value.0) {
        cost.status.extend(value(text, report, statuses));
    }
    if let Some(text) = &raw.bytes {
        let words = [("request", (true, false)), ("response", (false, true)), ("both", (true, true))];
        (cost.request_bytes, cost.response_bytes) = word(text, "bytes", &words, report).unwrap_or_default();
    }
    if let Some(reserve) = &raw.reserve {
        if !cost.settles() {
            report.error(
                reserve
                    .problem("nothing of this cost is only known when the answer is there")
                    .help("`reserve` belongs to `status`, `response_header` and `bytes`"),
            );
        }
        if reserve.value.0 == 0 {
            report.error(reserve.problem("at least 1 is taken until the answer is there"));
        }
        fits(reserve.value.0, reserve, quota, report);
        cost.reserve = Some(reserve.value.0);
    }
    if matches!(quota, Quota::LeakyBucket(..)) && cost.settles() {
        report.error(
            Mistake::new("a queue cannot be settled: requests have left it when their answer is there")
                .help("use token_bucket")
                .at(raw.at),
        );
    }
    (report.errors.len() == errors && raw.wrong.is_empty()).then(|| Cost::Detailed(Box::new(cost)))
}

/// An overdraft is only for a cost that is settled.
pub(super) fn check_overdraft(raw: &RawLimit, cost: Option<&Cost>, report: &mut Report) {
    let settled = matches!(cost, Some(Cost::Detailed(cost)) if cost.settles());
    if let (Some(overdraft), false, Some(_)) = (&raw.overdraft, settled, cost) {
        report.error(
            overdraft
                .problem(
                    "`overdraft` means nothing: what a request costs here is known before it is admitted",
                )
                .help("it belongs to a cost with `status`, `response_header` or `bytes`"),
        );
    }
}

/// Warns of late costs that nothing bounds: neither a reserve nor an overdraft.
pub(super) fn warnings(name: &At<String>, limit: &LimitConfig, report: &mut Report) {
    let Cost::Detailed(cost) = &limit.cost else { return };
    let unbounded = cost.response_header.is_some() || cost.request_bytes || cost.response_bytes;
    if !unbounded || cost.reserve.is_some() {
        return;
    }
    let (problem, help) = match &limit.quota {
        Quota::TokenBucket(bucket, ..) if bucket.overdraft() > 0 => return,
        Quota::TokenBucket(..) => (
            "nothing holds the late costs of",
            "give the cost a `reserve`, about what a request costs, or leave out `overdraft: 0`",
        ),
        _ => (
            "requests at the same time can together spend far more than",
            "give the cost a `reserve`, about what a request costs, or use a token_bucket, which pays late costs back",
        ),
    };
    report.warning(name.problem(format!("{problem} `{}`", name.value)).help(help));
}

/// `401`, or `5xx` for all from 500 to 599.
fn statuses(text: &str) -> Result<(u16, u16), Mistake> {
    let bad = || Mistake::new(format!("expected a status such as 401 or 5xx, found `{text}`"));
    if let Some(class) = text.strip_suffix("xx") {
        let class: u16 = class.parse().map_err(|_| bad())?;
        return if (1..=5).contains(&class) { Ok((class * 100, class * 100 + 99)) } else { Err(bad()) };
    }
    let status: u16 = text.parse().map_err(|_| bad())?;
    if (100..=599).contains(&status) { Ok((status, status)) } else { Err(bad()) }
}

/// Costs by route: each names a route, and one that asks the limit.
pub(super) fn routes(raw: &RawConfig, routes: &[RouteConfig], report: &mut Report) {
    if !report.errors.is_empty() {
        return; // a route with a mistake may be the one that is named
    }
    let by_name: HashMap<&str, &RouteConfig> =
        routes.iter().map(|route| (route.name.as_str(), route)).collect();
    for (limit, raw) in raw.limits.as_ref().map_or(&[][..], |limits| &limits.value.0) {
        let Some(RawCost::Fields(fields)) =
            raw.as_ref().and_then(|raw| raw.cost.as_ref()).map(|cost| &cost.value)
        else {
            continue;
        };
        for (name, _) in fields.routes.as_ref().map_or(&[][..], |routes| &routes.value.0) {
            let Some(route) = by_name.get(name.value.as_str()) else {
                let problem = name.problem(format!("there is no route called `{}`", name.value));
                let known = routes.iter().map(|route| route.name.as_str());
                let otherwise = || "name one of the routes of this file".to_owned();
                report.error(problem.did_you_mean(&name.value, known, otherwise));
                continue;
            };
            if !route.limits.iter().any(|used| used.name == limit.value) {
                report.error(
                    name.problem(format!(
                        "the route `{}` does not ask the limit `{}`",
                        name.value, limit.value
                    ))
                    .help("name the limit under the route's `limits`, or leave the cost out"),
                );
            }
        }
    }
}
