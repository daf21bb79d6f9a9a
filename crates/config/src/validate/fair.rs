//! Validates `fair`.

use sluicegate_limiter::Quota;

use super::checks::in_range;
use super::context::Context;
use super::key;
use crate::model::fair::FairConfig;
use crate::model::sync::SyncMode;
use crate::raw::RawLimit;
use crate::raw::fair::RawFair;
use crate::raw::scalars::RawCount;
use crate::read::at::At;
use crate::read::report::{Problem, Report};
use crate::{KeySpec, Part};

pub(super) fn fair(raw: &At<RawFair>, context: Context<'_>, report: &mut Report) -> Option<FairConfig> {
    let by = match &raw.value.by {
        Some(by) => key::key(by, context, report),
        None if context.consumers || context.checked || context.tokens => {
            Some(KeySpec::new(vec![vec![Part::Consumer]]))
        }
        None => {
            let problem = Problem::new(raw.at, "`fair` divides a limit among consumers, and there are none");
            report.error(problem.help("name their file: auth.api_key.consumers, or somebody else: `by: ip`"));
            None
        }
    };
    if by.as_ref().is_some_and(|by| by.parts().all(|part| matches!(part, Part::Global))) {
        let at = raw.value.by.as_ref().map_or(raw.at, |by| by.at);
        let problem = Problem::new(at, "all requests have the key `global`: there is nobody to share with");
        report.error(problem.help("such as `by: consumer`"));
    }
    let weights = raw.value.weights.as_ref().map_or(&[][..], |weights| &weights.value.0);
    let weight = |(plan, weight): &(At<String>, Option<RawCount>), report: &mut Report| {
        let weight = At { at: plan.at, value: (*weight)? };
        let weight = in_range(&weight, 1..=1_000, "weights", report)?;
        Some((plan.value.clone(), weight as u32))
    };
    // All of them are looked at, so that each mistake is reported.
    let weights: Vec<Option<_>> = weights.iter().map(|pair| weight(pair, report)).collect();
    Some(FairConfig { by: by?, weights: weights.into_iter().collect::<Option<_>>()? })
}

/// That of an upstream.
pub(super) fn of_upstream(
    raw: &At<RawFair>,
    has_overload: bool,
    context: Context<'_>,
    report: &mut Report,
) -> Option<FairConfig> {
    if !has_overload {
        let problem =
            Problem::new(raw.at, "`fair` needs `overload`, which measures what the upstream can handle");
        report.error(problem.help("such as `overload: {}`"));
    }
    let fair = fair(raw, context, report)?;
    if fair.by != KeySpec::new(vec![vec![Part::Consumer]]) {
        let problem = Problem::new(raw.at, "`fair` divides an upstream among consumers only");
        report.error(problem.help("leave `by` out, or put `fair` on a limit"));
    }
    Some(fair)
}

/// Refuses what cannot be divided.
pub(super) fn check(
    at: &At<RawFair>,
    raw: &RawLimit,
    (key, quota): (Option<&KeySpec>, Option<&Quota>),
    sync: SyncMode,
    report: &mut Report,
) {
    let mut refuse = |what: &str, help: &str| {
        report.error(Problem::new(at.at, format!("`fair` {what}")).help(help.to_owned()));
    };
    if key.is_some_and(|key| !key.parts().all(|part| matches!(part, Part::Global))) {
        refuse("divides one bucket among consumers, and this limit has many", "write `key: global`");
    }
    if quota.is_some_and(|quota| !matches!(quota, Quota::TokenBucket(..))) {
        refuse("divides a rate", "write `algorithm: token_bucket`");
    }
    if raw.plans.is_some() {
        refuse("and `plans` exclude each other", "give the plans weights: `fair: {weights: {pro: 4}}`");
    }
    if raw.ban.is_some() {
        refuse("and `ban` exclude each other: the bans of `key: global` are for everybody", "remove one");
    }
    if raw.overdraft.is_some() {
        refuse("and `overdraft` exclude each other: the debt of one would be everybody's", "remove one");
    }
    if raw.candidate.is_some() {
        refuse("and `candidate` exclude each other", "remove one");
    }
    if sync != SyncMode::Exact {
        refuse("needs to know what is left, and leases do not", "write `sync: exact`");
    }
}
