//! The report of a replay: as JSON, and as one HTML page that needs no network.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluicegate_limiter::{Quota, Span};

use super::compare::{Judged, LimitComparison};
use super::suggest::{Suggestion, rate};
use super::{Against, Comparison, Finding, Group, LimitStatistics, Replay, Series, Statistics};
use sluicegate_gateway::limit::Limit;
use sluicegate_gateway::pages::DOM;
use sluicegate_observe::shown_key::ShownKeys;

/// Below this number of clients the shares are coarse.
const FEW: usize = 1_000;
/// The keys, targets and groups that are listed.
const LISTED: usize = 50;
/// The bounds of the shares of a limit that clients need, and of the limit.
const BOUNDS: [f64; 14] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5, 2.0, 5.0, 10.0];

const PAGE: &str = include_str!("report/index.html");
const STYLE: &str = include_str!("report/style.css");
const SCRIPT: &str = include_str!("report/script.js");
const CHARTS: &str = include_str!("report/charts.js");

/// What a report is made of.
pub struct Input<'a> {
    /// The replay.
    pub replay: &'a Replay<'a>,
    /// The name of the configuration.
    pub config: String,
    /// The names of the logs.
    pub logs: Vec<String>,
    /// The lines that were read.
    pub lines: u64,
    /// Those of them that could not be understood.
    pub unreadable: u64,
    /// Admitted, refused and unmatched requests.
    pub outcomes: [u64; 3],
    /// Admitted requests that would have waited.
    pub delayed: u64,
    /// Requests that would have been queued.
    pub queued: u64,
    /// What was assumed of the logs.
    pub assumptions: Vec<String>,
    /// Whether the result can be trusted.
    pub trust: Vec<Finding>,
    /// The suggested rates by the index of the limit, or why there are none.
    pub suggestions: Vec<Result<Vec<Suggestion>, String>>,
    /// The other configuration and the differences.
    pub against: Option<(String, &'a Against)>,
}

/// The time axis of all charts: the second at which it begins, the seconds of a step, and the number of steps.
type Axis = (u64, u64, usize);

impl Input<'_> {
    /// The report as JSON.
    pub fn json(&self) -> Value {
        let snapshot = self.replay.snapshot();
        let shown = snapshot.shown_keys();
        let [admitted, refused, unmatched] = self.outcomes;
        let none = Statistics::new(0, false);
        let statistics = self.replay.statistics.as_ref().unwrap_or(&none);
        let axis = axis(&statistics.traffic);
        let (from, step, steps) = axis;
        let traffic = |which| statistics.traffic.column(which, axis);
        let limits = self.replay.limits().into_iter().map(|(at, name, count)| {
            let limit = &snapshot.limits[at];
            let mut row = json!({
                "name": name,
                "quota": quota(&limit.config.quota),
                "admitted": count.admitted,
                "refused": count.refused,
                "queued": count.queued,
                "shadow_refused": count.shadow_refused,
                "candidate_refused": count.candidate_refused,
            });
            if let (Some(found), Some(row)) = (statistics.limits.get(at), row.as_object_mut()) {
                let suggestions = match self.suggestions.get(at) {
                    Some(Ok(all)) => Ok(all.as_slice()),
                    Some(Err(why)) => Err(why.as_str()),
                    None => Ok(&[][..]),
                };
                row.extend(of_limit(limit, found, (axis, statistics.all_keys), &shown, suggestions));
            }
            row
        });
        let targets = self.replay.unmatched.targets.top(LISTED);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "config": self.config,
            "logs": self.logs,
            "lines": self.lines,
            "unreadable": self.unreadable,
            "unmatched": unmatched,
            "admitted": admitted,
            "refused": refused,
            "delayed": self.delayed,
            "queued": self.queued,
            "from": from,
            "to": from + step * steps as u64,
            "step": step,
            "assumptions": self.assumptions,
            "trust": self.trust.iter().map(|found| json!({ "level": found.level.name(), "text": found.text })).collect::<Vec<_>>(),
            "traffic": { "requests": traffic(0), "refused": traffic(1), "unmatched": traffic(2) },
            "limits": limits.collect::<Vec<_>>(),
            "groups": {
                "route": groups(&statistics.groups.routes),
                "plan": groups(&statistics.groups.plans),
                "consumer": groups(&statistics.groups.consumers),
            },
            "unmatched_paths": targets.iter().map(|(target, count)| json!({ "target": target, "count": count })).collect::<Vec<_>>(),
            "unmatched_why": self.replay.unmatched.differences().iter().map(|(parts, count)| json!({
                "why": parts.names().collect::<Vec<_>>().join(", "),
                "count": count,
            })).collect::<Vec<_>>(),
            "against": self.against.as_ref().map(|(old, against)| of_against(old, against, axis, &shown)),
            "algorithms": self.replay.comparison.as_ref().map(|comparison| self.compared(comparison, axis)),
        })
    }

    /// The report as a page.
    pub fn html(&self) -> String {
        let data = self.json().to_string().replace('<', "\\u003c");
        let script = format!("{DOM}{CHARTS}\n{SCRIPT}");
        PAGE.replace("/*style*/", STYLE).replace("/*script*/", &script).replace("/*data*/", &data)
    }

    fn compared(&self, comparison: &Comparison, axis: Axis) -> Vec<Value> {
        let limits = comparison.limits.iter().zip(&self.replay.snapshot().limits);
        let compared = limits.filter_map(|(compared, limit)| Some((compared.as_ref()?, limit)));
        let asked = compared.filter(|(compared, _)| compared.requests > 0);
        asked.map(|(compared, limit)| of_comparison(compared, limit, axis)).collect()
    }
}

fn axis<const N: usize>(series: &Series<N>) -> Axis {
    let (from, step) = series.begin_and_step();
    (from, step, series.len())
}

/// What is found out about a limit.
fn of_limit(
    limit: &Limit,
    found: &LimitStatistics,
    (axis, all_keys): (Axis, bool),
    shown: &ShownKeys<'_>,
    suggestions: Result<&[Suggestion], &str>,
) -> serde_json::Map<String, Value> {
    let suggested = suggestions.unwrap_or_default().iter().map(|suggestion| of_suggestion(limit, suggestion));
    let top = found.most_refused(LISTED).into_iter().map(|key| {
        json!({
            "key": shown.text(&key.text),
            "refused": key.refused,
            "admitted": key.admitted,
            "first": key.first_refused.map(|at| at.as_nanos() as f64 / 1e9),
        })
    });
    let mut peaks = [0_u64; BOUNDS.len() + 1];
    for key in found.keys.values().filter(|key| key.demand.is_known() && key.count > 0) {
        let share = key.demand.count().map_or(f64::INFINITY, |count| count as f64 / key.count as f64);
        peaks[BOUNDS.partition_point(|bound| *bound < share)] += 1;
    }
    let clients = found.keys.len() + usize::from(found.beyond > 0);
    let note = match (clients, found.beyond) {
        _ if suggestions.is_err() => suggestions.err().map(str::to_owned),
        (_, 1..) => Some(format!("{} requests of further keys are counted in sum only", found.beyond)),
        (1, _) => Some("there is one client: a share of 0.1 % is less than it".to_owned()),
        (..FEW, _) => Some(format!("{clients} clients are few: a share of 0.1 % is less than one of them")),
        _ => None,
    };
    let row = json!({
        "clients": all_keys.then_some(found.keys.len()),
        "clients_refused": found.keys.values().filter(|key| key.refused > 0).count(),
        "series": { "admitted": found.series.column(0, axis), "refused": found.series.column(1, axis) },
        "top_refused": top.collect::<Vec<_>>(),
        // Of many keys the refusals are of one or another all the time.
        "refused_from_to": if found.keys.len() == 1 { spans(&found.series.column(1, axis), axis) } else { Vec::new() },
        "peaks": { "bounds": BOUNDS, "clients": peaks },
        "suggested": suggested.collect::<Vec<_>>(),
        "suggestion_note": note,
    });
    match row {
        Value::Object(row) => row,
        _ => serde_json::Map::new(),
    }
}

/// When a limit refuses: the spans of steps without a break, the first of them.
fn spans(refused: &[u64], (from, step, _): Axis) -> Vec<Value> {
    let mut spans: Vec<(u64, u64, u64)> = Vec::new();
    for (at, count) in (0..).zip(refused).filter(|(_, count)| **count > 0) {
        let begin = from + at * step;
        match spans.last_mut().filter(|(_, end, _)| *end == begin) {
            Some((_, end, sum)) => (*end, *sum) = (begin + step, *sum + count),
            None => spans.push((begin, begin + step, *count)),
        }
    }
    let row = |(from, to, refused)| json!({ "from": from, "to": to, "refused": refused });
    spans.into_iter().take(LISTED).map(row).collect()
}

fn of_suggestion(limit: &Limit, suggestion: &Suggestion) -> Value {
    let period = limit.config.quota.rate().map_or(Span::SECOND, |rate| rate.period());
    let rate = rate(suggestion.count, period);
    json!({
        "refused_clients": suggestion.share,
        "rate": rate,
        "yaml": format!("limits: {{{}: {{rate: {rate}}}}}", limit.config.name),
        "clients_refused": suggestion.refused,
        "clients": suggestion.clients,
        "current": limit.config.quota.rate().is_some_and(|rate| rate.count() == suggestion.count),
    })
}

fn quota(quota: &Quota) -> String {
    let rate = quota.rate().map(|configured| rate(configured.count(), configured.period()));
    let numbers = match quota {
        Quota::TokenBucket(_, _, burst) | Quota::LeakyBucket(_, _, burst) => format!(", burst {burst}"),
        Quota::SlidingWindow(window, _) => {
            format!(", {} slices{}", window.slices(), if window.is_strict() { ", strict" } else { "" })
        }
        Quota::Concurrency(_, most) => format!(", {most} at once"),
        Quota::FixedWindow(..) | Quota::SlidingLog(..) => String::new(),
    };
    format!("{}{}{numbers}", quota.algorithm(), rate.map(|rate| format!(", {rate}")).unwrap_or_default())
}

fn groups(groups: &BTreeMap<Box<str>, Group>) -> Vec<Value> {
    let mut all: Vec<_> = groups.iter().collect();
    all.sort_by_key(|(_, group)| Reverse((group.refused, group.requests)));
    let row = |(name, group): (_, &Group)| json!({ "name": name, "requests": group.requests, "refused": group.refused });
    all.into_iter().take(LISTED).map(row).collect()
}

fn of_against(old: &str, against: &Against, axis: Axis, shown: &ShownKeys<'_>) -> Value {
    let limits = against.limits.iter().map(|(name, differences)| {
        json!({ "name": name, "newly_refused": differences.newly_refused, "freed": differences.freed })
    });
    let keys = against.top(LISTED).into_iter().map(|(key, differences)| {
        json!({
            "key": shown.text(key),
            "newly_refused": differences.newly_refused,
            "freed": differences.freed,
        })
    });
    json!({
        "old": old,
        "newly_refused": against.all.newly_refused,
        "freed": against.all.freed,
        "clients_newly_refused": against.clients[0].len(),
        "clients_freed": against.clients[1].len(),
        "limits": limits.collect::<Vec<_>>(),
        "keys": keys.collect::<Vec<_>>(),
        "series": { "newly_refused": against.series.column(0, axis), "freed": against.series.column(1, axis) },
    })
}

fn of_comparison(compared: &LimitComparison, limit: &Limit, axis: Axis) -> Value {
    let requests = compared.requests.max(1) as f64;
    let count = compared.rate.count();
    let row = |judged: &Judged| {
        json!({
            "label": judged.label,
            "refused": judged.refused,
            "wrongly_refused": judged.wrongly_refused as f64 / requests,
            "wrongly_admitted": judged.wrongly_admitted as f64 / requests,
            "worst": judged.most as f64 / count as f64,
        })
    };
    let all = std::iter::once(compared.exact()).chain(&compared.algorithms);
    let curve = |judged: &Judged| json!({ "label": judged.label, "counts": judged.admitted.column(0, axis) });
    let windows = compared.windows.iter().enumerate().map(|(index, (slices, judged))| {
        let mut row = row(judged);
        row["n"] = (*slices).into();
        row["mean_error"] = compared.mean_error(index).into();
        row
    });
    json!({
        "limit": limit.config.name,
        "rate": rate(count, compared.rate.period()),
        "requests": compared.requests,
        "rows": all.map(row).collect::<Vec<_>>(),
        "curves": std::iter::once(compared.exact()).chain(&compared.algorithms).map(curve).collect::<Vec<_>>(),
        "windows": windows.collect::<Vec<_>>(),
    })
}
