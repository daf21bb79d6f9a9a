//! Validates rates that the identity of a request names: `rate: jwt:CLAIM` with `max_rate` and `default_rate`.

use std::sync::Arc;

use sluicegate_limiter::Quota;

use super::checks::{missing, value};
use super::context::Context;
use super::plan;
use super::shared::check_shared;
use crate::Part;
use crate::language::values;
use crate::model::cost::Cost;
use crate::model::identity_rate::{BoundedRate, IdentityRate, RateSource};
use crate::model::limit::LimitConfig;
use crate::raw::RawPlan;
use crate::raw::{RawLimit, RawPlanFields};
use crate::read::at::At;
use crate::read::is_wrong;
use crate::read::report::Report;

/// Where rates can be found, as the file writes it, and an example of each.
const SOURCES: [(&str, &str); 3] =
    [("jwt:", "jwt:limit"), ("consumer:", "consumer:metadata.rate"), ("check:", "check:rate")];
const METADATA: &str = "metadata.";

/// The limit with its default rate in place of the source of its rate; `None` if its rate is in the file.
pub(super) fn with_default(raw: &RawLimit, report: &mut Report) -> Option<RawLimit> {
    let timed = raw.algorithm.as_ref().is_none_or(|algorithm| algorithm.value != "concurrency");
    let Some(rate) = raw.rate.as_ref().filter(|rate| timed && is_source(&rate.value)) else {
        let stray = [("max_rate", &raw.max_rate), ("default_rate", &raw.default_rate)];
        for (field, text) in stray.into_iter().filter(|_| timed && !is_wrong!(raw, rate)) {
            if let Some(text) = text {
                report.error(
                    text.problem(format!("`{field}` means nothing for a rate that is in the file"))
                        .help("it belongs to `rate: jwt:CLAIM`, `consumer:metadata.NAME` and `check:rate`"),
                );
            }
        }
        return None;
    };
    let what = format!("`rate: {}`", rate.value);
    for (field, example, text) in
        [("max_rate", "1000/s", &raw.max_rate), ("default_rate", "100/s", &raw.default_rate)]
    {
        if text.is_none() {
            missing(rate.at, &what, (field, example), &raw.wrong, report);
        }
    }
    let mut written = RawLimit { rate: raw.default_rate.clone(), ..raw.clone() };
    if written.rate.is_none() {
        written.wrong.push("rate"); // reported above
    }
    Some(written)
}

fn is_source(rate: &str) -> bool {
    SOURCES.iter().any(|(prefix, _)| rate.starts_with(prefix))
}

/// Where the rate of a limit comes from and what bounds it. `written` is the limit with its default rate.
pub(super) fn identity_rate(
    name: &At<String>,
    (raw, written): (&RawLimit, &RawLimit),
    (quota, cost, shared): (Option<&Quota>, Option<&Cost>, Option<bool>),
    context: Context<'_>,
    report: &mut Report,
) -> Option<IdentityRate> {
    let source = raw.rate.as_ref().and_then(|rate| source(rate, context, report));
    let max = raw.max_rate.as_ref()?;
    let (rate, unit) = value(max, report, values::rate)?;
    let bound = BoundedRate::new(rate, unit);
    let quota = quota?; // otherwise its mistakes would be reported again
    let fields = RawPlanFields {
        rate: Some(max.clone()),
        burst: written.burst.clone(),
        ..RawPlanFields::empty(max.at)
    };
    let numbers = At { at: max.at, value: RawPlan(fields) };
    let highest = plan::special(name, written, &numbers, cost, report)?;
    if shared == Some(true) {
        check_shared(&highest, written, report);
    }
    if let Some((default, text)) = quota.rate().zip(raw.default_rate.as_ref())
        && BoundedRate::new(default, None).is_above(&bound)
    {
        report
            .error(text.problem("`default_rate` is above `max_rate`").help("lower it, or raise `max_rate`"));
        return None;
    }
    Some(IdentityRate { source: source?, max: bound })
}

fn source(rate: &At<String>, context: Context<'_>, report: &mut Report) -> Option<RateSource> {
    let text = rate.value.as_str();
    let (prefix, example) = SOURCES.iter().find(|(prefix, _)| text.starts_with(prefix))?;
    let name = &text[prefix.len()..];
    let (known, needs) = match *prefix {
        "jwt:" => (context.tokens, "`auth.jwt` or `auth.introspection`"),
        "consumer:" => (context.consumers, "`auth.api_key.consumers`"),
        _ => (context.checked, "`auth.check`"),
    };
    let found = match *prefix {
        "jwt:" => Some(name).filter(|name| !name.is_empty()).map(|name| RateSource::Claim(name.to_owned())),
        "consumer:" => name
            .strip_prefix(METADATA)
            .filter(|name| !name.is_empty())
            .map(|name| RateSource::Metadata(name.to_owned())),
        _ => (name == "rate").then_some(RateSource::Check),
    };
    if found.is_none() {
        report.error(rate.problem(format!("`{text}` names no rate")).help(format!("such as {example}")));
    } else if !known {
        report.error(
            rate.problem(format!("the rate `{text}` needs {needs}"))
                .help("only a verified identity names a rate; what a client sends unverified does not"),
        );
        return None;
    }
    found
}

/// Warns of a limit whose counters requests with different rates share.
pub(super) fn warnings(name: &At<String>, limit: &LimitConfig, report: &mut Report) {
    let Some(IdentityRate { source, .. }) = &limit.identity_rate else { return };
    let (is_own, keys): (fn(&Part) -> bool, _) = match source {
        RateSource::Claim(_) => (Part::is_of_user, "`key: user` or `jwt:CLAIM`"),
        RateSource::Metadata(_) => {
            (|part| matches!(part, Part::Consumer | Part::ApiKey), "`key: consumer` or `api_key`")
        }
        RateSource::Check => return, // its answer may depend on anything
    };
    if !limit.key.parts().any(is_own) {
        report.warning(
            name.problem(format!("requests with different rates share the counters of `{}`", name.value))
                .help(format!("what one rate lets go of, another one can use; count by identity: {keys}")),
        );
    }
}

impl LimitConfig {
    /// The quota of this limit with a rate that an identity names. A `burst` that is written stays. `burst` is that of a
    /// rule. A rate of which a region would have less than one request becomes the same average over a longer period.
    ///
    /// # Errors
    /// Why the limit cannot have such a rate.
    pub fn with_identity_rate(&self, rate: BoundedRate, burst: Option<u64>) -> Result<Quota, Vec<String>> {
        let burst = burst.or(self.written.burst.as_ref().map(|burst| burst.value.0));
        let with = |rate: BoundedRate| self.with_numbers(Some(&rate.to_string()), burst, None);
        let longer = || [2, 4, 8, 16, 32, 64].into_iter().find_map(|times| with(rate.over(times)?).ok());
        with(rate).or_else(|why| longer().filter(|_| self.smallest_region.is_some()).ok_or(why))
    }

    /// The quota with the highest rate that identities can name, if they name rates.
    pub fn highest_of_identities(&self) -> Option<Quota> {
        let max = self.identity_rate.as_ref()?.max;
        Some(self.of_region(self.with_identity_rate(max, None).ok()?))
    }

    /// The same limit with the quota of one of its plans.
    pub fn of_plan(&self, plan: &str, quota: Quota) -> Self {
        let plans = self.written.plans.iter().flat_map(|plans| &plans.value.0);
        let numbers = plans.filter(|(name, _)| name.value == plan).find_map(|(_, numbers)| numbers.as_ref());
        let mut own = self.variant(quota, self.mode);
        if let Some(RawPlan(fields)) = numbers {
            let RawPlanFields { rate, burst, max, .. } = fields.clone();
            own.written = Arc::new(RawLimit { rate, burst, max, ..(*self.written).clone() });
        }
        own
    }
}
