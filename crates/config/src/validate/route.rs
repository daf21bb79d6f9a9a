//! Validates routes: matches, actions and limits.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use http::{HeaderValue, StatusCode};

use super::checks::{check_name, empty, in_range, missing, value, word};
use super::client::timeout;
use super::context::Known;
use super::cors;
use super::header_settings::rate_limit_headers;
use super::lists::of_route;
use super::matching::matches;
use super::overload;
use super::served::{check_limit, check_usage, without_routes};
use super::template::Names;
use super::{shape, uri};
use crate::Part;
use crate::model::limit::{LimitConfig, Mode};
use crate::model::reference::Reference;
use crate::model::route::{Action, EncodedSlash, Match, Reject, RouteConfig, ShapeConfig};
use crate::raw::RawConfig;
use crate::raw::route::RawAnswer;
use crate::raw::route::RawRoute;
use crate::raw::scalars::RawCount;
use crate::read::at::At;
use crate::read::report::{Problem, Report};
/// The most limits that one route may ask.
const MAX_LIMITS: usize = 32;

/// The routes, and the names and matches of those whose `match` is understood.
pub(super) fn all(
    raw: &RawConfig,
    known: &Known<'_>,
    report: &mut Report,
) -> (Vec<RouteConfig>, Vec<(At<String>, Match)>) {
    let Some(raws) = &raw.routes else {
        if !without_routes(known.listeners) {
            missing(raw.at, "the file", ("routes", "[{name: all, upstream: api}]"), &raw.wrong, report);
        }
        return (Vec::new(), Vec::new());
    };
    if raws.value.is_empty() {
        empty(raws.at, "routes", "such as `routes: [{name: all, upstream: api}]`", report);
    }
    let mut routes: Vec<RouteConfig> = Vec::new();
    let mut lines: HashMap<String, u64> = HashMap::new();
    let mut matched: Vec<(At<String>, Match)> = Vec::new();
    for (index, raw) in raws.value.iter().enumerate() {
        let unnamed = At { at: raw.at, value: format!("route-{}", index + 1) };
        let name = raw.name.clone().unwrap_or(unnamed);
        check_name(&name, "route", report);
        if let Some(line) = lines.get(&name.value) {
            let help = match raw.name {
                Some(_) => format!("the first one is on line {line}"),
                None => format!(
                    "this one has no `name` and is called by its number; the first one is on line {line}"
                ),
            };
            report.error(name.problem(format!("two routes are called `{}`", name.value)).help(help));
        }
        lines.entry(name.value.clone()).or_insert(name.at.line);
        // A key that nobody knows may be what narrows the route.
        let mut match_is_valid = !raw.wrong.iter().any(|wrong| ["match", "?"].contains(wrong));
        let mut matches = raw.matches.as_ref().map_or_else(Match::default, |raw| {
            let before = report.errors.len();
            let matches = matches(&raw.value, known, report);
            match_is_valid &= raw.value.wrong.is_empty() && report.errors.len() == before;
            matches
        });
        let words = [("counted", false), ("exempt", true)];
        let preflight = raw.preflight.as_ref().and_then(|text| word(text, "preflight", &words, report));
        matches.preflight = preflight.unwrap_or(false);
        // An incomplete match would match too many requests.
        if match_is_valid {
            matched.push((name.clone(), matches.clone()));
        }
        let limits = limits(raw, known, match_is_valid.then_some(&matches), report);
        routes.extend(route(&name, raw, matches, limits, known, report));
    }
    (routes, matched)
}

fn route(
    name: &At<String>,
    raw: &RawRoute,
    matches: Match,
    limits: Vec<Reference>,
    known: &Known<'_>,
    report: &mut Report,
) -> Option<RouteConfig> {
    let max_body =
        raw.max_body.as_ref().and_then(|text| super::checks::max_body(text, report)).or(known.max_body);
    let timeout = raw.timeout.as_ref().and_then(|text| timeout(text, report)).or(known.timeout);
    let reject = raw.reject.as_ref().map(|reject| {
        if raw.limits.as_ref().is_none_or(|limits| limits.value.is_empty()) && raw.wrong.is_empty() {
            report.warning(
                reject
                    .problem("`reject` has no effect without `limits`")
                    .help("name the limits that may refuse, or remove it"),
            );
        }
        let reject = &reject.value;
        Reject {
            status: status(reject.status.as_ref(), StatusCode::TOO_MANY_REQUESTS, 400..=599, report),
            body: reject.body.as_ref().map_or_else(String::new, |body| body.value.clone()),
            content_type: content_type(reject.content_type.as_ref(), report),
        }
    });
    let headers = rate_limit_headers(raw.headers.as_ref(), known.headers, report);
    let access = of_route(raw, known.access, known.lists, report);
    let cors = cors::of_route(raw, known.cors, report);
    let names = Names { matches: Some(&matches), ..known.names };
    let shape = self::shape(raw, names, known, report);
    let check = is_checked(raw, known, report);
    let priority = overload::priority(raw.priority.as_ref(), report).unwrap_or_default();
    let action = action(name, raw, names, known, report)?;
    check_usage(name, &action, &matches, known.listeners, report);
    Some(RouteConfig {
        name: name.value.clone(),
        matches,
        access,
        check,
        cors,
        action,
        limits,
        headers,
        reject,
        max_body,
        timeout,
        priority,
        shape,
    })
}

/// Whether requests of a route are checked outside.
fn is_checked(raw: &RawRoute, known: &Known<'_>, report: &mut Report) -> bool {
    let Some(text) = &raw.check else { return known.checked };
    if !known.checked {
        report.error(
            text.problem("`check` means nothing without `auth.check`")
                .help("remove it, or add `auth: {check: {url: https://…}}`; servers are checked by `health` of an upstream"),
        );
        return false;
    }
    word(text, "check", &[("on", true), ("off", false)], report).unwrap_or(true)
}

fn shape(raw: &RawRoute, names: Names<'_>, known: &Known<'_>, report: &mut Report) -> ShapeConfig {
    let forwarded = [
        ("request_headers", raw.request_headers.as_ref().map(|raw| raw.at)),
        ("strip_prefix", raw.strip_prefix.as_ref().map(|raw| raw.at)),
        ("rewrite", raw.rewrite.as_ref().map(|raw| raw.at)),
    ];
    if raw.respond.is_some() || raw.redirect.is_some() {
        for (field, at) in forwarded.into_iter().filter_map(|(field, at)| Some((field, at?))) {
            let message = format!("`{field}` means nothing for a route that forwards nothing");
            report.error(Problem::new(at, message).help("it changes what an upstream gets"));
        }
    }
    let own = |raw, of, report: &mut Report| shape::headers(raw, of, known.claim_headers, names, report);
    let request = own(raw.request_headers.as_ref(), shape::Of::Requests, report);
    let answer = own(raw.response_headers.as_ref(), shape::Of::Answers, report);
    ShapeConfig {
        request: known.requests.iter().cloned().chain(request).collect(),
        answer: known.answers.iter().cloned().chain(answer).collect(),
        path: uri::path(raw, names, report),
    }
}

/// The limits of a route; `matches` if that is known.
fn limits(raw: &RawRoute, known: &Known<'_>, matches: Option<&Match>, report: &mut Report) -> Vec<Reference> {
    let mut limits = Vec::new();
    let mut in_store: Vec<(&At<String>, &LimitConfig)> = Vec::new();
    for name in raw.limits.as_ref().map_or(&[][..], |limits| &limits.value) {
        let Some((reference, limit)) = known.limits.find(name, report) else { continue };
        if limits.contains(&reference) {
            report.error(name.problem(format!("the limit `{}` is given twice", name.value)));
            continue;
        }
        for part in limit.key.parts() {
            let (Part::Param(param), Some(matches)) = (part, matches) else { continue };
            if !matches.paths.have_param(param) {
                report.error(
                    name.problem(format!(
                        "`{}` counts by path:{param}, which this path does not have",
                        name.value
                    ))
                    .help(format!("match a path with {{{param}}}, such as /items/{{{param}}}")),
                );
            }
        }
        if let Some(matches) = matches {
            check_limit(name, limit, matches, known.listeners, report);
        }
        limits.push(reference);
        if limit.shared && limit.mode != Mode::Off {
            in_store.push((name, limit));
        }
    }
    if known.in_cluster {
        warn_of_several_steps(&in_store, report);
    }
    if limits.len() > MAX_LIMITS {
        report.error(Problem::new(raw.at, format!("a route asks at most {MAX_LIMITS} limits")));
    }
    limits
}

/// Warns if the limits of a route have different keys: a cluster keeps only equal keys on one server.
fn warn_of_several_steps(limits: &[(&At<String>, &LimitConfig)], report: &mut Report) {
    let Some((_, first)) = limits.first() else { return };
    if let Some((name, other)) = limits.iter().find(|(_, limit)| limit.key != first.key) {
        report.warning(
            name.problem(format!(
                "a decision of `{}` and `{}` is not one atomic step in a cluster",
                first.name, other.name
            ))
            .help("limits with different keys are taken in order and given back when a later one refuses"),
        );
    }
}

fn action(
    name: &At<String>,
    raw: &RawRoute,
    names: Names<'_>,
    known: &Known<'_>,
    report: &mut Report,
) -> Option<Action> {
    let words = [("normalized", false), ("original", true)];
    let original_path = raw.forward_path.as_ref().and_then(|text| word(text, "forward_path", &words, report));
    let words = [
        ("refused", EncodedSlash::Refused),
        ("kept", EncodedSlash::Kept),
        ("decoded", EncodedSlash::Decoded),
    ];
    let slash = raw.encoded_slash.as_ref();
    let encoded_slash =
        slash.and_then(|text| word(text, "encoded_slash", &words, report)).unwrap_or_default();
    if let (EncodedSlash::Decoded, Some(true), Some(text)) = (encoded_slash, original_path, slash) {
        report.error(
            text.problem("a path that is forwarded as it was written keeps its %2F")
                .help("remove `forward_path: original`, or write `encoded_slash: kept`"),
        );
    }
    let words = [("removed", false), ("forwarded", true)];
    let overrides = raw.override_headers.as_ref();
    let overrides = overrides.and_then(|text| word(text, "override_headers", &words, report));
    let given = [
        ("upstream", raw.upstream.as_ref().map(|raw| raw.at)),
        ("respond", raw.respond.as_ref().map(|raw| raw.at)),
        ("redirect", raw.redirect.as_ref().map(|raw| raw.at)),
    ];
    let mut there = given.iter().filter_map(|(field, at)| Some((field, (*at)?)));
    if let (Some((first, _)), Some((second, at))) = (there.next(), there.next()) {
        let message = format!("the route `{}` has both `{first}` and `{second}`", name.value);
        let help = "keep one: a request is forwarded, or answered by the gateway";
        report.error(Problem::new(at, message).help(help));
        return None;
    }
    if raw.upstream.is_none() && (raw.respond.is_some() || raw.redirect.is_some()) {
        for (field, text) in [
            ("forward_path", &raw.forward_path),
            ("encoded_slash", &raw.encoded_slash),
            ("override_headers", &raw.override_headers),
        ] {
            if let Some(text) = text {
                let message = format!("`{field}` means nothing for a route that responds itself");
                report.error(text.problem(message));
            }
        }
    }
    if let Some(upstream) = &raw.upstream {
        let (upstream, _) = known.upstreams.find(upstream, report)?;
        return Some(Action::Forward {
            upstream,
            original_path: original_path.unwrap_or(false),
            encoded_slash,
            overrides: overrides.unwrap_or(false),
        });
    }
    if let Some(redirect) = &raw.redirect {
        return uri::redirect(&redirect.value.0, names, report);
    }
    if let Some(respond) = &raw.respond {
        return Some(answer(respond, report));
    }
    if !given.iter().any(|(field, _)| raw.wrong.contains(field)) {
        report.error(
            name.problem(format!("the route `{}` leads nowhere", name.value))
                .help("give it an `upstream`, or an answer of its own: `respond: {status: 200}`"),
        );
    }
    None
}

fn answer(At { value: raw, .. }: &At<RawAnswer>, report: &mut Report) -> Action {
    let RawAnswer::Fixed(raw) = raw else { return Action::Usage };
    let status = status(raw.status.as_ref(), StatusCode::OK, 200..=599, report);
    let body = raw.body.as_ref().map_or_else(String::new, |body| body.value.clone());
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if let Some(at) = raw.body.as_ref().filter(|body| bodiless && !body.value.is_empty()) {
        report.warning(at.problem(format!("an answer with status {} has no body", status.as_u16())));
    }
    Action::Respond { status, body, content_type: content_type(raw.content_type.as_ref(), report) }
}

fn status(
    raw: Option<&At<RawCount>>,
    usual: StatusCode,
    range: RangeInclusive<u64>,
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
