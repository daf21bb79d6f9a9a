//! Validates how a shared limit is counted: by the store for each request, or with tokens that are leased.

use sluicegate_leases::ErrorBudget;
use sluicegate_limiter::Quota;

use super::checks::{value, word};
use super::share::share;
use crate::model::cost::Cost;
use crate::model::lease::Unleased;
use crate::model::limit::LimitConfig;
use crate::model::sync::{Sync, SyncMode};
use crate::raw::RawLimit;
use crate::read::at::At;
use crate::read::report::{Mistake, Report};

/// The counting of a limit; `shared` says whether a store counts it.
pub(super) fn sync(
    raw: &RawLimit,
    quota: Option<&Quota>,
    cost: Option<&Cost>,
    (shared, gateways): (Option<bool>, u32),
    report: &mut Report,
) -> Option<Sync> {
    let mode = match &raw.sync {
        Some(text) => word(text, "sync", &SyncMode::WORDS, report)?,
        None => SyncMode::default(),
    };
    let budget = match &raw.error_budget {
        Some(text) => value(text, report, budget)?,
        None => ErrorBudget::USUAL,
    };
    let strict = raw.strict.as_ref().is_some_and(|strict| strict.value);
    if let Some(text) = &raw.sync {
        if shared == Some(false) {
            let problem = text.problem("`sync` means nothing for a limit that no store counts");
            report.error(match &raw.scope {
                Some(_) => problem.help("remove it, or remove `scope: local`"),
                None => problem.help("remove it: without `store` all limits are counted in this process"),
            });
        } else if mode == SyncMode::Leased {
            check_leased(text, raw, quota, cost, report);
        }
    }
    if let Some(text) = raw.error_budget.as_ref().filter(|_| mode == SyncMode::Exact) {
        report.error(
            text.problem("`error_budget` means nothing for a limit of which the store decides each request")
                .help("remove it, or write `sync: leased`"),
        );
    }
    Some(Sync { mode, budget, strict, gateways })
}

/// Reports what cannot be leased.
fn check_leased(
    text: &At<String>,
    raw: &RawLimit,
    quota: Option<&Quota>,
    cost: Option<&Cost>,
    report: &mut Report,
) {
    let why = match () {
        () if matches!(quota, Some(Quota::SlidingLog(..))) => {
            "a sliding_log has the instant of each request, which is not known when tokens are paid for"
        }
        () if raw.ban.is_some() => "a ban counts the refusals of all gateways, which the store must see",
        () if matches!(cost, Some(Cost::Detailed(cost)) if cost.settles()) => {
            "costs that are known after the answer are charged in the store"
        }
        () => return,
    };
    let help = "use `sync: exact`, or `sync: auto`, which is exact where it has to be";
    report.error(text.problem(format!("`sync: leased`: {why}")).help(help));
}

/// Warns of a limit that says `leased` and that is too small or too fast for that.
pub(super) fn warnings(name: &At<String>, limit: &LimitConfig, report: &mut Report) {
    let said = limit.shared && limit.sync.mode == SyncMode::Leased;
    if let Err(why @ (Unleased::TooSmall | Unleased::TooFast)) = limit.lease(&limit.quota)
        && said
    {
        let problem = name.problem(format!("`{}` is not leased: {}", name.value, why.why()));
        report.warning(problem.help(match limit.quota {
            Quota::SlidingWindow(..) => {
                "the store decides about each request; raise `error_budget`, lower `slices`, or write `sync: exact`"
            }
            _ => "the store decides about each request; raise `error_budget`, or write `sync: exact`",
        }));
    }
}

/// `5%`, `0.5%`.
fn budget(text: &str) -> Result<ErrorBudget, Mistake> {
    let share = share(text)?;
    ErrorBudget::from_millionths(share.as_millionths()).ok_or_else(|| {
        Mistake::new(format!("`error_budget` is between 0.0001% and 50%, not {text}")).help(
            "such as `error_budget: 5%`: the part of the rate's count that may be paid for and not spent",
        )
    })
}
