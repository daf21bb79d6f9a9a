//! Validates load balancing, health checks, ejection and retries.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode};

use super::checks::{in_range, missing, value, word};
use super::context::Context;
use super::key;
use crate::language::values;
use crate::model::route::RouteConfig;
use crate::model::upstream::{Balance, EjectionConfig, HealthConfig, RetryConfig, UNIX, UpstreamConfig};
use crate::raw::balance::{RawBalance, RawEjection};
use crate::raw::scalars::RawCount;
use crate::raw::upstream::RawUpstream;
use crate::read::at::At;
use crate::read::is_wrong;
use crate::read::report::{Mistake, Report};
use crate::{KeySpec, Part};

/// The longest of all durations here.
const DAY: Duration = Duration::from_secs(86_400);
/// Requests that wait when nothing else is said.
const MAX_PENDING: usize = 100;

pub(super) fn balance(raw: &RawUpstream, context: Context<'_>, report: &mut Report) -> Option<Balance> {
    let Some(balance) = &raw.balance else {
        return (!is_wrong!(raw, balance)).then_some(Balance::RoundRobin);
    };
    match &balance.value {
        RawBalance::Word(text) => {
            let text = At { at: balance.at, value: text.clone() };
            let words = [("round_robin", 0), ("least_requests", 1), ("random", 2)];
            Some(match word(&text, "balance", &words, report)? {
                0 => Balance::RoundRobin,
                1 => Balance::LeastRequests,
                _ => Balance::Random,
            })
        }
        RawBalance::Fields(fields) => {
            if fields.hash.is_none() {
                missing(fields.at, "a balance by mapping", ("hash", "ip"), &fields.wrong, report);
            }
            key::key(fields.hash.as_ref()?, context, report).map(Balance::Hash)
        }
    }
}

pub(super) fn resolve(raw: &RawUpstream, report: &mut Report) -> Option<Duration> {
    let usual = Duration::from_secs(30);
    duration(raw.resolve.as_ref(), "resolve", usual, Duration::from_secs(1)..=DAY, report)
}

pub(super) fn health(raw: &RawUpstream, report: &mut Report) -> Option<Option<HealthConfig>> {
    let Some(health) = &raw.health else {
        return (!is_wrong!(raw, health)).then_some(None);
    };
    let raw = &health.value;
    if raw.path.is_none() {
        missing(raw.at, "a health check", ("path", "/healthz"), &raw.wrong, report);
    }
    let path = raw.path.as_ref().and_then(|text| {
        value(text, report, |text| match PathAndQuery::try_from(text) {
            Ok(path) if text.starts_with('/') => Ok(path),
            _ => Err(Mistake::new(format!("expected a path such as /healthz, found `{text}`"))),
        })
    });
    let host = match &raw.host {
        None => Some(None),
        Some(text) => value(text, report, |text| {
            let bad = || Mistake::new(format!("`{text}` is not a host"));
            let authority: http::uri::Authority = text.parse().map_err(|_| bad())?;
            let plain = !authority.as_str().contains('@');
            HeaderValue::from_str(text).ok().filter(|_| plain).ok_or_else(bad)
        })
        .map(Some),
    };
    let least = Duration::from_millis(100);
    let every = duration(raw.every.as_ref(), "every", Duration::from_secs(5), least..=DAY, report);
    let short = Duration::from_millis(1)..=Duration::from_secs(60);
    let timeout = duration(raw.timeout.as_ref(), "timeout", Duration::from_secs(1), short, report);
    let healthy = count(raw.healthy.as_ref(), "healthy", 2, 1..=100, report);
    let unhealthy = count(raw.unhealthy.as_ref(), "unhealthy", 3, 1..=100, report);
    let status = match &raw.status {
        None => Some(vec![200..=299]),
        Some(texts) => {
            let all: Vec<_> = texts.value.0.iter().map(|text| value(text, report, statuses)).collect();
            all.into_iter().collect()
        }
    };
    Some(Some(HealthConfig {
        path: path?,
        host: host?,
        every: every?,
        timeout: timeout?,
        healthy: healthy?,
        unhealthy: unhealthy?,
        status: status?,
    }))
}

pub(super) fn ejection(raw: &RawUpstream, report: &mut Report) -> Option<Option<EjectionConfig>> {
    let usual = EjectionConfig {
        failures: 5,
        span: Duration::from_secs(10),
        max: Duration::from_secs(300),
        share: 50,
        status: Vec::new(),
    };
    let Some(ejection) = &raw.ejection else {
        return (!is_wrong!(raw, ejection)).then_some(Some(usual));
    };
    let RawEjection::Fields(raw) = &ejection.value else { return Some(None) };
    let failures = count(raw.failures.as_ref(), "failures", usual.failures, 1..=1_000, report);
    let some = Duration::from_millis(100)..=DAY;
    let span = duration(raw.span.as_ref(), "for", usual.span, some.clone(), report);
    let most = span.map_or(usual.max, |span| usual.max.max(span));
    let max = duration(raw.max.as_ref(), "max", most, some, report);
    if let Some(text) = raw.max.as_ref().filter(|_| span.zip(max).is_some_and(|(span, max)| max < span)) {
        report.error(text.problem("`max` is shorter than `for`").help("leave it out, or make it longer"));
    }
    let share = percent(raw.share.as_ref(), "share", usual.share, 100, report);
    let status: Option<Vec<StatusCode>> = match &raw.status {
        None => Some(usual.status),
        Some(codes) => {
            let all: Vec<_> =
                codes.value.0.iter().map(|code| in_range(code, 500..=599, "status", report)).collect();
            all.into_iter().map(|code| StatusCode::from_u16(u16::try_from(code?).ok()?).ok()).collect()
        }
    };
    Some(Some(EjectionConfig { failures: failures?, span: span?, max: max?, share: share?, status: status? }))
}

pub(super) fn retries(raw: &RawUpstream, report: &mut Report) -> Option<RetryConfig> {
    let usual = RetryConfig { attempts: 1, budget: 20, all_methods: false };
    let Some(retries) = &raw.retries else {
        return (!is_wrong!(raw, retries)).then_some(usual);
    };
    let raw = &retries.value.0;
    let attempts = count(raw.attempts.as_ref(), "attempts", usual.attempts, 0..=10, report);
    let budget = percent(raw.budget.as_ref(), "budget", 20, 100, report);
    let all_methods = raw.all_methods.as_ref().is_some_and(|all| all.value);
    Some(RetryConfig { attempts: attempts?, budget: u32::from(budget?), all_methods })
}

/// Requests that a server has at once, and those that wait.
pub(super) fn circuit(raw: &RawUpstream, report: &mut Report) -> Option<(Option<usize>, usize)> {
    let most = 1..=1_000_000;
    let max = raw.max_connections.as_ref().map(|n| in_range(n, most, "max_connections", report));
    let pending = raw.max_pending.as_ref().map(|n| (n.at, in_range(n, 0..=1_000_000, "max_pending", report)));
    let is_bounded = raw.max_connections.is_some() || is_wrong!(raw, max_connections);
    if let Some(n) = raw.max_pending.as_ref().filter(|_| !is_bounded) {
        let problem = n.problem("`max_pending` means nothing without `max_connections`");
        report.error(problem.help("such as `max_connections: 100`"));
    }
    let max = max.map_or(Some(None), |max| max.map(|max| Some(max as usize)))?;
    Some((max, pending.map_or(Some(MAX_PENDING), |(_, pending)| pending.map(|n| n as usize))?))
}

/// Warns of settings without effect. `users` are the routes that forward to the upstream.
pub(super) fn warnings(
    name: &At<String>,
    upstream: &UpstreamConfig,
    users: &[&RouteConfig],
    report: &mut Report,
) {
    let has_one_address =
        |authority: &str| authority.starts_with(UNIX) || authority.parse::<SocketAddr>().is_ok();
    let alone = upstream.servers.len() == 1 && has_one_address(&upstream.servers[0].authority);
    if alone && upstream.balance != Balance::RoundRobin {
        let problem =
            name.problem(format!("`{}` has one server, so its `balance` means nothing", name.value));
        report.warning(problem.help("add servers, or remove it"));
    }
    for part in upstream.hashed_by().into_iter().flat_map(KeySpec::parts) {
        let Part::Param(param) = part else { continue };
        let lacks = |route: &&RouteConfig| !route.matches.paths.have_param(param);
        if let Some(route) = users.iter().find(|route| lacks(route)) {
            let message = format!(
                "requests of the route `{}` have no path:{param} that `{}` could hash",
                route.name, name.value
            );
            report.warning(name.problem(message).help("they go to the server with the fewest requests"));
        }
    }
}

fn count(
    raw: Option<&At<RawCount>>,
    field: &str,
    usual: u32,
    range: RangeInclusive<u64>,
    report: &mut Report,
) -> Option<u32> {
    raw.map_or(Some(usual), |raw| in_range(raw, range, field, report).and_then(|n| u32::try_from(n).ok()))
}

fn duration(
    text: Option<&At<String>>,
    field: &str,
    usual: Duration,
    range: RangeInclusive<Duration>,
    report: &mut Report,
) -> Option<Duration> {
    let Some(text) = text else { return Some(usual) };
    value(text, report, |text| match values::duration(text)? {
        duration if range.contains(&duration) => Ok(duration),
        _ => {
            let shown = |duration: &Duration| match *duration {
                DAY => "1 day".to_owned(),
                other => format!("{other:?}"),
            };
            let (least, most) = (shown(range.start()), shown(range.end()));
            Err(Mistake::new(format!("`{field}` is between {least} and {most}, not {text}")))
        }
    })
}

/// `20%`.
fn percent(text: Option<&At<String>>, field: &str, usual: u8, most: u8, report: &mut Report) -> Option<u8> {
    let Some(text) = text else { return Some(usual) };
    value(text, report, |text| {
        let number = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<u8>().ok());
        number.filter(|number| (1..=most).contains(number)).ok_or_else(|| {
            Mistake::new(format!("`{field}` is between 1% and {most}%, not `{text}`"))
                .help(format!("such as `{field}: {usual}%`"))
        })
    })
}

/// `204`, `2xx`, `200-399`.
fn statuses(text: &str) -> Result<RangeInclusive<u16>, Mistake> {
    let bad = || Mistake::new(format!("expected a status such as 200, 2xx or 200-299, found `{text}`"));
    let code = |text: &str| {
        let digits = text.len() == 3 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u16>().ok().filter(|code| digits && (100..=599).contains(code)).ok_or_else(bad)
    };
    let text = text.trim();
    if let Some(class) = text.strip_suffix("xx") {
        let first = code(&format!("{class}00"))?;
        return Ok(first..=first + 99);
    }
    match text.split_once('-') {
        None => code(text).map(|code| code..=code),
        Some((from, to)) => {
            let (from, to) = (code(from.trim())?, code(to.trim())?);
            (from <= to).then_some(from..=to).ok_or_else(bad)
        }
    }
}
