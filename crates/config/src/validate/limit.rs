//! Validates limits.

use std::sync::Arc;

use super::ban;
use super::checks::{in_range, missing, value, word};
use super::context::Context;
use super::cost;
use super::fair;
use super::identity_rate;
use super::key::{self, exempt};
use super::penalty;
use super::plan;
use super::queue;
use super::quota::quota;
use super::section::Section;
use super::share::share;
use super::shared::check_shared;
use super::sync;
use crate::language::values::grouped;
use crate::model::api_key::ApiKeyConfig;
use crate::model::cost::Cost;
use crate::model::limit::{LimitConfig, Mode, OnMissing, OnStoreFailure};
use crate::model::listener::ClientIpConfig;
use crate::model::route::RouteConfig;
use crate::model::sync::SyncMode;
use crate::raw::RawLimit;
use crate::read::at::At;
use crate::read::foreign;
use crate::read::is_wrong;
use crate::read::report::{Mistake, Report};
use sluicegate_limiter::Quota;

use crate::{Part, PartSource};

/// Live counters of a limit when nothing else is said.
const MAX_KEYS: u64 = 1_000_000;

pub(super) fn limit(
    name: &At<String>,
    raw: &RawLimit,
    context: Context<'_>,
    report: &mut Report,
) -> Option<LimitConfig> {
    if raw.key.is_none() {
        missing(name.at, &format!("the limit `{}`", name.value), ("key", "ip"), &raw.wrong, report);
    }
    let key = raw.key.as_ref().and_then(|key| key::key(key, context, report));
    let with_default = identity_rate::with_default(raw, report);
    let (as_written, raw) = (raw, with_default.as_ref().unwrap_or(raw));
    let quota = quota(name, raw, report);
    let cost = match &raw.cost {
        Some(cost) => cost::cost(cost, quota.as_ref(), context.checked, report),
        None => Some(Cost::Constant(1)),
    };
    cost::check_overdraft(raw, cost.as_ref(), report);
    let ban = ban::ban(raw, report);
    let modes = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)];
    let mode = raw.mode.as_ref().map_or(Some(Mode::Enforce), |text| word(text, "mode", &modes, report));
    let missings = [("shared", OnMissing::Shared), ("skip", OnMissing::Skip), ("deny", OnMissing::Deny)];
    let on_missing = raw
        .on_missing
        .as_ref()
        .map_or(Some(OnMissing::Shared), |text| word(text, "on_missing", &missings, report));
    let max_keys =
        raw.max_keys.as_ref().map_or(Some(MAX_KEYS), |n| in_range(n, 1..=1_000_000_000, "max_keys", report));
    let shared = shared(raw, context.store, report);
    let on_store_failure = on_store_failure(raw, shared, report);
    let sync = sync::sync(raw, quota.as_ref(), cost.as_ref(), (shared, context.gateways), report);
    if let Some((quota, true)) = quota.as_ref().zip(shared) {
        check_shared(quota, raw, report);
    }
    let exempt = exempt(raw.exempt.as_ref(), key.as_ref(), context, report);
    // An error in the quota itself would be reported again for each variant.
    let has_quota = quota.is_some();
    let plans = if has_quota { plan::plans(name, raw, cost.as_ref(), report) } else { None };
    let candidate = if has_quota { plan::candidate(name, raw, cost.as_ref(), report) } else { None };
    for quota in plans.iter().flatten().map(|(_, quota)| quota).chain(candidate.iter().flatten()) {
        if shared == Some(true) {
            check_shared(quota, raw, report);
        }
    }
    let identity_rate = match &with_default {
        Some(_) => {
            let numbers = (quota.as_ref(), cost.as_ref(), shared);
            identity_rate::identity_rate(name, (as_written, raw), numbers, context, report).map(Some)
        }
        None => Some(None),
    };
    let nobody_says = !context.consumers && !context.checked && !context.tokens;
    if let Some(plans) = raw.plans.as_ref().filter(|_| nobody_says) {
        report.error(
            plans
                .problem("`plans` need something that says who is on which")
                .help("auth.api_key.consumers with a plan for each, or auth.jwt with a plan_claim"),
        );
    }
    let when = plan::when(raw.when.as_ref(), report);
    let fair = match &raw.fair {
        None => Some(None),
        Some(fair) => {
            let mode = sync.map_or(SyncMode::Exact, |sync| sync.mode);
            fair::check(fair, raw, (key.as_ref(), quota.as_ref()), mode, report);
            fair::fair(fair, context, report).map(Some)
        }
    };
    let penalty = match &raw.penalty {
        None => Some(None),
        Some(penalty) => penalty::penalty(penalty, raw, cost.as_ref(), report).map(Some),
    };
    let queue = queue::queue(name, raw, context, report);
    let warn = raw.warn.as_ref().and_then(|text| value(text, report, warn));
    Some(LimitConfig {
        name: name.value.clone(),
        key: key?,
        quota: quota?,
        identity_rate: identity_rate?,
        zone: raw.zone.as_ref().map(|zone| zone.value.clone()),
        plans: plans?,
        candidate: candidate?,
        when,
        cost: cost?,
        ban: ban?,
        warn,
        fair: fair?,
        penalty: penalty?,
        queue: queue?,
        mode: mode?,
        exempt,
        on_missing: on_missing?,
        shared: shared?,
        whole_key: true,
        sync: sync?,
        on_store_failure: on_store_failure?,
        division: None,
        smallest_region: None,
        max_keys: max_keys? as usize,
        written: Arc::new(raw.clone()),
    })
}

/// Whether the limit is counted in the store.
fn shared(raw: &RawLimit, has_store: bool, report: &mut Report) -> Option<bool> {
    let Some(scope) = &raw.scope else {
        return (!is_wrong!(raw, scope)).then_some(has_store);
    };
    match scope.value.as_str() {
        "local" => Some(false),
        "shared" if has_store => Some(true),
        "shared" => {
            report.error(
                scope
                    .problem("a shared scope needs a store, and the file has none")
                    .help("such as `store: {redis: {url: redis://127.0.0.1:6379}}`, or leave `scope` out"),
            );
            None
        }
        // Nothing is "near" here: who writes `global` wants the opposite of `local`.
        other => {
            let help = foreign::word("scope", other).unwrap_or("known: shared, local");
            report.error(scope.problem(format!("unknown scope `{other}`")).help(help));
            None
        }
    }
}

fn on_store_failure(raw: &RawLimit, shared: Option<bool>, report: &mut Report) -> Option<OnStoreFailure> {
    let Some(text) = &raw.on_store_failure else { return Some(OnStoreFailure::default()) };
    let policy = word(text, "on_store_failure", &OnStoreFailure::WORDS, report);
    if shared == Some(false) {
        let problem = text.problem("`on_store_failure` means nothing for a limit that no store counts");
        report.error(match &raw.scope {
            Some(_) => problem.help("remove it, or remove `scope: local`"),
            None => problem.help("remove it: without `store` all limits are counted in this process"),
        });
    }
    policy
}

/// `80%`.
fn warn(text: &str) -> Result<u32, Mistake> {
    match share(text)?.as_millionths() {
        part @ 1..1_000_000 => Ok(part),
        _ => Err(Mistake::new(format!("`warn` is a part of the limit, not {text}")).help("such as 80%")),
    }
}

/// The memory of a limit above which it is warned of.
const LARGE: u64 = 2 << 30;

/// Warns of a limit whose keys are large and many.
fn large_keys(name: &At<String>, limit: &LimitConfig, report: &mut Report) {
    let (bytes, help) = match &limit.quota {
        Quota::SlidingWindow(window, _) => (16 + 4 * (u64::from(window.slices()) + 1), "`slices`"),
        Quota::SlidingLog(_, rate) => (48 + 16 * rate.count(), "the count of the rate"),
        _ => return,
    };
    let all = bytes.saturating_mul(limit.max_keys as u64);
    if all > LARGE {
        let (all, keys, bytes) = (grouped(all >> 20), grouped(limit.max_keys as u64), grouped(bytes));
        let problem = name.problem(format!(
            "`{}` can take {all} MiB of memory: {keys} keys (`max_keys`) of up to {bytes} bytes",
            name.value
        ));
        report.warning(problem.help(format!("lower {help}, or `max_keys`")));
    }
}

/// The header of a key that lists addresses, of which only those that proxies have added can be trusted.
fn address_header(part: &Part) -> Option<&str> {
    let name = part.header()?;
    ["forwarded", "x-forwarded-for", "x-real-ip"].into_iter().find(|header| name == header)
}

/// Warns of limits that are valid but probably not intended.
pub(super) fn warnings(
    limits: &Section<LimitConfig>,
    routes: &[RouteConfig],
    client_ip: &ClientIpConfig,
    api_key: &ApiKeyConfig,
    report: &mut Report,
) {
    let by_address = |limit: &LimitConfig| limit.key.parts().all(Part::is_of_address);
    let enforced_by_address = |limit: &LimitConfig| limit.mode == Mode::Enforce && by_address(limit);
    let all: Vec<&LimitConfig> = limits.valid().map(|(_, limit)| limit).collect();
    let guards: Vec<bool> = limits.valid().map(|(_, limit)| enforced_by_address(limit)).collect();
    let guarded = |route: &RouteConfig| route.limits.iter().any(|used| guards.get(used.index) == Some(&true));
    // A limit of everybody together does not tell who asks for many shares of it.
    let addresses: Vec<bool> = limits
        .valid()
        .map(|(_, limit)| enforced_by_address(limit) && limit.key.parts().any(|part| *part != Part::Global))
        .collect();
    let counted_by_address =
        |route: &RouteConfig| route.limits.iter().any(|used| addresses.get(used.index) == Some(&true));
    let unverified = |limit: &LimitConfig, part: &Part| match (part.source(), &api_key.consumers) {
        // An unknown key counts as none, so that changing it changes nothing, unless none goes free.
        (PartSource::ApiKey, Some(consumers)) => !consumers.required && limit.on_missing == OnMissing::Skip,
        (PartSource::ApiKey | PartSource::Header | PartSource::Query | PartSource::Cookie, _) => true,
        (
            PartSource::Address
            | PartSource::Nothing
            | PartSource::Route
            | PartSource::PathParameter
            | PartSource::Consumer
            | PartSource::Token
            | PartSource::Certificate
            | PartSource::Question,
            _,
        ) => false,
    };
    let mut users: Vec<Vec<&RouteConfig>> = limits.valid().map(|_| Vec::new()).collect();
    routes.iter().for_each(|route| route.limits.iter().for_each(|used| users[used.index].push(route)));
    for ((name, limit), users) in limits.valid().zip(&users) {
        if users.is_empty() && report.errors.is_empty() {
            report.warning(
                name.problem(format!("no route uses the limit `{}`", name.value))
                    .help("add it to the `limits` of a route"),
            );
        }
        let escapes = report.errors.is_empty() && users.iter().any(|route| !guarded(route));
        if limit.key.parts().any(|part| unverified(limit, part)) && escapes {
            let beside = users.iter().flat_map(|route| &route.limits).filter_map(|used| all.get(used.index));
            let shadow =
                beside.into_iter().find(|limit| limit.mode == Mode::Shadow && by_address(limit)).map_or_else(
                    || "put a limit with `key: ip` (or `global`) beside it".to_owned(),
                    |limit| format!("`{}` beside it refuses nobody while it has `mode: shadow`", limit.name),
                );
            report.warning(
                name.problem(format!("a client can escape `{}` by changing what it sends", name.value))
                    .help(format!("nothing verifies this key; {shadow}")),
            );
        }
        let divided = report.errors.is_empty() && users.iter().any(|route| !counted_by_address(route));
        let by = limit.fair.iter().flat_map(|fair| fair.by.parts());
        if by.into_iter().any(|part| unverified(limit, part)) && divided {
            report.warning(
                name.problem(format!("a client can have many shares of `{}` by changing what it sends", name.value)).help(
                    "nothing verifies the key of `fair.by`; use `by: consumer` or `by: ip`, or put a limit with `key: ip` beside it",
                ),
            );
        }
        if let Some(header) = limit.key.parts().find_map(address_header) {
            report.warning(
                name.problem(format!("a client chooses its key of `{}`: it can write `{header}` itself", name.value))
                    .help("write `key: ip`, with the proxies in front of the gateway in `client_ip.trusted_proxies`"),
            );
        }
        ban::warnings(name, limit, report);
        cost::warnings(name, limit, report);
        large_keys(name, limit, report);
        identity_rate::warnings(name, limit, report);
        sync::warnings(name, limit, report);
        let chosen = match &limit.cost {
            Cost::Constant(_) | Cost::Check | Cost::Hits => false,
            Cost::Header(_) => true,
            Cost::Detailed(cost) => cost.request_header.is_some(),
        };
        if chosen && !client_ip.has_proxies() && !users.is_empty() {
            report.warning(
                name.problem(format!("clients choose what their requests cost in `{}`", name.value)).help(
                    "nothing verifies the header; let a trusted proxy write it, or give a constant cost",
                ),
            );
        }
    }
}
