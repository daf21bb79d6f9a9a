//! Costs: what a request spends, by what it is and by what comes of it.

use super::super::cost::{Cost, DetailedCost};
use super::super::forms::RawCost;
use super::super::model::Quota;
use super::super::raw::RawCostFields;
use super::super::read::At;
use super::super::report::{Mistake, Report};
use super::super::values;
use super::matching::method;
use super::{header_name, key, value};

pub(super) fn cost(raw: &At<RawCost>, quota: Option<&Quota>, report: &mut Report) -> Option<Cost> {
    match &raw.value {
        RawCost::Text(text) => simple(&At { at: raw.at, value: text.clone() }, quota, report),
        RawCost::Fields(fields) => detailed(fields, quota, report),
    }
}

fn simple(text: &At<String>, quota: Option<&Quota>, report: &mut Report) -> Option<Cost> {
    if let Some(name) = text.value.strip_prefix("header:") {
        return key::header(text, name, report).map(Cost::Header);
    }
    let cost = value(text, report, |text| {
        values::count(text)
            .map_err(|_| format!("expected a number, header:NAME or a mapping as the cost, found `{text}`"))
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

fn detailed(raw: &RawCostFields, quota: Option<&Quota>, report: &mut Report) -> Option<Cost> {
    let errors = report.errors.len();
    let quota = quota?;
    let mut cost = DetailedCost {
        request: u64::from(raw.status.is_some() || raw.methods.is_some()),
        request_header: None,
        methods: Vec::new(),
        status: Vec::new(),
        response_header: raw.response_header.as_ref().and_then(|name| value(name, report, header_name)),
        bytes: raw.bytes.is_some(),
        reserve: None,
    };
    if let Some(text) = &raw.request {
        match text.value.strip_prefix("header:") {
            Some(name) => cost.request_header = key::header(text, name, report),
            None => {
                let said = value(text, report, |text| {
                    values::count(text)
                        .map_err(|_| format!("expected a number or header:NAME as the cost, found `{text}`"))
                });
                if let Some(said) = said.filter(|said| fits(*said, text, quota, report)) {
                    cost.request = said;
                }
            }
        }
    }
    for (name, said) in raw.methods.as_ref().map_or(&[][..], |methods| &methods.value.0) {
        if let (Some(name), Some(said)) = (value(name, report, method), said)
            && fits(said.0, raw.methods.as_ref()?, quota, report)
        {
            cost.methods.push((name, said.0));
        }
    }
    for text in raw.status.as_ref().map_or(&[][..], |status| &status.value.0) {
        cost.status.extend(value(text, report, statuses));
    }
    if let Some(text) = raw.bytes.as_ref().filter(|text| text.value != "response") {
        report.error(text.problem(format!("unknown bytes `{}`", text.value)).help("known: response"));
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
