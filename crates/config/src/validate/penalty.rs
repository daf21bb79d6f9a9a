//! Validates `penalty`: a slower lane.

use sluicegate_limiter::{LeakyBucket, Quota};

use super::checks::{in_range, missing, value};
use crate::Cost;
use crate::language::values::{self, grouped};
use crate::raw::RawLimit;
use crate::raw::excess::RawPenalty;
use crate::read::at::At;
use crate::read::report::{Problem, Report};

/// The most requests of a key that wait when nothing else is said.
const WAITERS: u64 = 100;
/// The most that may be configured.
const MOST_WAITERS: u64 = 10_000;

/// The quota of the lane.
pub(super) fn penalty(
    raw: &At<RawPenalty>,
    limit: &RawLimit,
    cost: Option<&Cost>,
    report: &mut Report,
) -> Option<Quota> {
    let mut excludes = |field: &str, help: &str| {
        let problem = Problem::new(raw.at, format!("`penalty` and `{field}` exclude each other"));
        report.error(problem.help(help.to_owned()));
    };
    if limit.ban.is_some() {
        excludes("ban", "a ban counts refusals, and who waits is not refused; remove one");
    }
    if limit.fair.is_some() {
        excludes("fair", "remove one");
    }
    if limit.count_rejected.as_ref().is_some_and(|count| count.value) {
        excludes("count_rejected", "remove one");
    }
    if matches!(cost, Some(Cost::Detailed(cost)) if cost.settles()) {
        let help = "the lane is charged before the answer says what a request costs; remove one";
        let problem = Problem::new(raw.at, "`penalty` and a cost of the answer exclude each other");
        report.error(problem.help(help));
    }
    let Some(rate) = &raw.value.rate else {
        missing(raw.at, "`penalty`", ("rate", "1/s"), &raw.value.wrong, report);
        return None;
    };
    let waiters = raw.value.waiters.as_ref();
    let waiters = waiters.map_or(Some(WAITERS), |n| in_range(n, 1..=MOST_WAITERS, "waiters", report));
    let ((rate, _), waiters) = (value(rate, report, values::rate)?, waiters?);
    if let Some(cost) = cost.map(largest).filter(|cost| *cost > waiters) {
        let cost_text = grouped(cost);
        let problem = format!("a request that costs {cost_text} never waits in a lane with {waiters} places");
        let help = match cost {
            ..=MOST_WAITERS => format!("write `waiters: {cost}` or more"),
            _ => format!("a lane has {} places at most: remove `penalty`", grouped(MOST_WAITERS)),
        };
        report.error(Problem::new(raw.at, problem).help(help));
    }
    let lane = LeakyBucket::new(rate, waiters, None).ok()?;
    Some(Quota::LeakyBucket(lane, rate, waiters))
}

/// The largest cost of a request that the file says.
fn largest(cost: &Cost) -> u64 {
    match cost {
        Cost::Constant(cost) => *cost,
        Cost::Header(_) | Cost::Check | Cost::Hits => 1,
        Cost::Detailed(cost) => {
            let (methods, routes) = (cost.methods.iter().map(|of| of.1), cost.routes.iter().map(|of| of.1));
            methods.chain(routes).fold(cost.request, u64::max)
        }
    }
}
