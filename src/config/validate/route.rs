//! Routes: what they match, where they lead, which limits they ask.

use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::super::model::{Action, HeaderFamilies, ListenerConfig, Match, Reject, RouteConfig};
use super::super::raw::{RawConfig, RawCount, RawMatch, RawRoute};
use super::super::read::{At, OneOrMany};
use super::super::report::{Problem, Report};
use super::super::values;
use super::limit::Limits;
use super::upstream::Upstreams;
use super::{check_name, families, header_name, in_range, missing, reference, value, word};
use crate::key::Part;
use crate::route::{HostPattern, PathPattern, PatternError};

/// What routes refer to.
pub(super) struct Known<'a> {
    pub(super) listeners: &'a [ListenerConfig],
    pub(super) limits: &'a Limits,
    pub(super) upstreams: &'a Upstreams,
    pub(super) headers: HeaderFamilies,
    pub(super) max_body: Option<u64>,
}

/// The most limits that one route may ask.
const MAX_LIMITS: usize = 32;

pub(super) fn all(raw: &RawConfig, known: &Known<'_>, report: &mut Report) -> Vec<RouteConfig> {
    let Some(raws) = raw.routes.as_ref().filter(|routes| !routes.value.is_empty()) else {
        missing(raw.at, "the file", "routes", "[{name: all, upstream: api}]", report);
        return Vec::new();
    };
    let mut routes: Vec<RouteConfig> = Vec::new();
    let mut places: Vec<At<String>> = Vec::new();
    for (index, raw) in raws.value.iter().enumerate() {
        let unnamed = At { at: raw.at, value: format!("route-{}", index + 1) };
        let name = raw.name.clone().unwrap_or(unnamed);
        check_name(&name, "a route", report);
        if let Some(earlier) = places.iter().find(|earlier| earlier.value == name.value) {
            report.error(
                name.problem(format!("two routes are called `{}`", name.value))
                    .help(format!("the first one is on line {}", earlier.at.line)),
            );
        }
        let route = self::route(&name, raw, known, report);
        places.push(name);
        if let Some(route) = route {
            unreachable(&routes, &route, &places, report);
            routes.push(route);
        }
    }
    routes
}

fn route(name: &At<String>, raw: &RawRoute, known: &Known<'_>, report: &mut Report) -> Option<RouteConfig> {
    let matches =
        raw.matches.as_ref().map_or_else(Match::default, |m| self::matches(&m.value, known, report));
    let limits = limits(raw, known, &matches, report);
    let max_body =
        raw.max_body.as_ref().and_then(|text| value(text, report, values::bytes)).or(known.max_body);
    let reject = raw.reject.as_ref().map(|reject| {
        let reject = &reject.value;
        Reject {
            status: status(reject.status.as_ref(), StatusCode::TOO_MANY_REQUESTS, 400..=599, report),
            body: reject.body.as_ref().map_or_else(String::new, |body| body.value.clone()),
            content_type: content_type(reject.content_type.as_ref(), report),
        }
    });
    Some(RouteConfig {
        name: name.value.clone(),
        matches,
        action: action(name, raw, known, report)?,
        limits,
        headers: families(raw.headers.as_ref(), report).unwrap_or(known.headers),
        reject,
        max_body,
    })
}

fn limits(raw: &RawRoute, known: &Known<'_>, matches: &Match, report: &mut Report) -> Vec<usize> {
    let mut limits = Vec::new();
    for name in raw.limits.as_ref().map_or(&[][..], |limits| &limits.value) {
        let names = known.limits.iter().map(|(name, _)| name.as_str());
        let Some(index) = reference(name, "limit", names, report) else { continue };
        let Some(limit) = &known.limits[index].1 else { continue };
        // The configuration holds the valid limits only.
        let index = known.limits[..index].iter().filter(|(_, limit)| limit.is_some()).count();
        if limits.contains(&index) {
            report.error(name.problem(format!("the limit `{}` is given twice", name.value)));
            continue;
        }
        for part in limit.key.parts() {
            let Part::Param(param) = part else { continue };
            if matches.paths.is_empty() || !matches.paths.iter().all(|path| path.has_param(param)) {
                report.error(
                    name.problem(format!(
                        "`{}` counts by path:{param}, which this path does not have",
                        name.value
                    ))
                    .help(format!("match a path with {{{param}}}, such as /items/{{{param}}}")),
                );
            }
        }
        limits.push(index);
    }
    if limits.len() > MAX_LIMITS {
        report.error(Problem::new(raw.at, format!("a route asks at most {MAX_LIMITS} limits")));
    }
    limits
}

fn matches(raw: &RawMatch, known: &Known<'_>, report: &mut Report) -> Match {
    let listener = raw.listener.as_ref().and_then(|name| {
        reference(name, "listener", known.listeners.iter().map(|l| l.name.as_str()), report)
    });
    let methods = each(raw.methods.as_ref(), report, |text| {
        let upper = text.to_ascii_uppercase();
        Method::from_bytes(upper.as_bytes())
            .map_err(|_| PatternError { message: format!("`{text}` is not a method"), help: None })
    });
    let mut headers = Vec::new();
    for (name, wanted) in raw.headers.as_ref().map_or(&[][..], |headers| &headers.value.0) {
        let Some(name) = header_name(name, report) else { continue };
        let wanted_value = (wanted.value != "*").then(|| HeaderValue::from_str(&wanted.value));
        match wanted_value.transpose() {
            Ok(wanted) => headers.push((name, wanted)),
            Err(_) => report.error(wanted.problem(format!("`{}` is not a header value", wanted.value))),
        }
    }
    Match {
        listener,
        hosts: each(raw.host.as_ref(), report, HostPattern::parse),
        paths: each(raw.path.as_ref(), report, PathPattern::parse),
        methods,
        headers,
    }
}

fn each<T>(
    raw: Option<&At<OneOrMany<At<String>>>>,
    report: &mut Report,
    parse: impl Fn(&str) -> Result<T, PatternError>,
) -> Vec<T> {
    let mut all = Vec::new();
    for text in raw.map_or(&[][..], |raw| &raw.value.0) {
        match parse(&text.value) {
            Ok(parsed) => all.push(parsed),
            Err(error) => {
                let problem = text.problem(error.message);
                report.error(match error.help {
                    Some(help) => problem.help(help),
                    None => problem,
                });
            }
        }
    }
    all
}

fn action(name: &At<String>, raw: &RawRoute, known: &Known<'_>, report: &mut Report) -> Option<Action> {
    let words = [("normalized", false), ("original", true)];
    let original_path = raw.forward_path.as_ref().and_then(|text| word(text, "forward_path", &words, report));
    match (&raw.upstream, &raw.respond) {
        (Some(_), Some(respond)) => {
            report.error(
                respond
                    .problem(format!("the route `{}` has both `upstream` and `respond`", name.value))
                    .help("keep one: a request is forwarded, or answered by the gateway"),
            );
            None
        }
        (None, None) => {
            report.error(
                name.problem(format!("the route `{}` leads nowhere", name.value))
                    .help("give it an `upstream`, or an answer of its own: `respond: {status: 200}`"),
            );
            None
        }
        (Some(upstream), None) => {
            let names = known.upstreams.iter().map(|(name, _)| name.as_str());
            let index = reference(upstream, "upstream", names, report)?;
            known.upstreams[index].1.as_ref()?;
            let upstream = known.upstreams[..index].iter().filter(|(_, upstream)| upstream.is_some()).count();
            Some(Action::Forward { upstream, original_path: original_path.unwrap_or(false) })
        }
        (None, Some(respond)) => {
            if let Some(path) = &raw.forward_path {
                report.error(path.problem("`forward_path` means nothing for a route that responds itself"));
            }
            let respond = &respond.value;
            Some(Action::Respond {
                status: status(respond.status.as_ref(), StatusCode::OK, 200..=599, report),
                body: respond.body.as_ref().map_or_else(String::new, |body| body.value.clone()),
                content_type: content_type(respond.content_type.as_ref(), report),
            })
        }
    }
}

fn status(
    raw: Option<&At<RawCount>>,
    usual: StatusCode,
    range: std::ops::RangeInclusive<u64>,
    report: &mut Report,
) -> StatusCode {
    let code = raw.and_then(|raw| in_range(raw, range, "status", report));
    code.and_then(|code| StatusCode::from_u16(code as u16).ok()).unwrap_or(usual)
}

fn content_type(raw: Option<&At<String>>, report: &mut Report) -> HeaderValue {
    let usual = HeaderValue::from_static("text/plain; charset=utf-8");
    let Some(text) = raw else { return usual };
    value(text, report, |text| {
        HeaderValue::from_str(text).map_err(|_| format!("`{text}` is not a content type"))
    })
    .unwrap_or(usual)
}

/// Warns of a route behind one that takes all its requests.
fn unreachable(before: &[RouteConfig], route: &RouteConfig, places: &[At<String>], report: &mut Report) {
    let Some(wide) = before.iter().find(|wide| covers(&wide.matches, &route.matches)) else { return };
    if let Some(place) = places.last() {
        let first = places.iter().find(|p| p.value == wide.name).map_or(0, |p| p.at.line);
        report.warning(
            place
                .problem(format!("no request reaches the route `{}`", route.name))
                .help(format!("`{}` on line {first} matches all of them first; put it below", wide.name)),
        );
    }
}

/// Whether `wide` takes every request that `narrow` takes, as far as the patterns tell.
fn covers(wide: &Match, narrow: &Match) -> bool {
    let subset = |own: bool, others: bool, all: bool| own || (!others && all);
    let methods = |m: &Method| wide.methods.contains(m);
    let paths = |path: &PathPattern| wide.paths.iter().any(|own| own.covers(path));
    let hosts = |host: &HostPattern| wide.hosts.contains(host);
    let headers = |header: &(HeaderName, Option<HeaderValue>)| narrow.headers.contains(header);
    let everything = PathPattern::parse("/*").is_ok_and(|all| wide.paths.contains(&all));
    (wide.listener.is_none() || wide.listener == narrow.listener)
        && subset(wide.methods.is_empty(), narrow.methods.is_empty(), narrow.methods.iter().all(methods))
        && subset(
            wide.paths.is_empty() || everything,
            narrow.paths.is_empty(),
            narrow.paths.iter().all(paths),
        )
        && subset(wide.hosts.is_empty(), narrow.hosts.is_empty(), narrow.hosts.iter().all(hosts))
        && wide.headers.iter().all(headers)
}
