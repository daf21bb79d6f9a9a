//! Which requests a route takes, and whether any are left for it.

use http::{HeaderName, HeaderValue, Method};

use super::super::at::At;
use super::super::raw_route::RawMatch;
use super::super::read::OneOrMany;
use super::super::report::{Mistake, Report, nearest};
use super::super::route::Match;
use super::super::{HostPattern, PathPattern};
use super::route::Known;
use super::{empty, header_name, path, value, word};
use crate::route::Coverage;

/// The methods of RFC 9110 and 5789; others exist, but one that is nearly one of these is a slip.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

pub(super) fn matches(raw: &RawMatch, known: &Known<'_>, report: &mut Report) -> Match {
    let listener = raw.listener.as_ref().and_then(|name| known.listeners.find(name, report));
    let mut headers = Vec::new();
    for (name, wanted) in raw.headers.as_ref().map_or(&[][..], |headers| &headers.value.0) {
        let Some(name) = value(name, report, header_name) else { continue };
        let Some(wanted) = wanted else { continue };
        let wanted_value = (wanted.value != "*").then(|| HeaderValue::from_str(&wanted.value));
        match wanted_value.transpose() {
            Ok(wanted) => headers.push((name, wanted)),
            Err(_) => report.error(wanted.problem(format!("`{}` is not a header value", wanted.value))),
        }
    }
    for text in raw.methods.as_ref().map_or(&[][..], |methods| &methods.value.0) {
        doubt_method(text, report);
    }
    for text in raw.path.as_ref().map_or(&[][..], |paths| &paths.value.0) {
        path::doubt(text, report);
    }
    let words = [("loose", false), ("exact", true)];
    let spelling = raw.spelling.as_ref().and_then(|text| word(text, "spelling", &words, report));
    Match {
        listener: listener.map(|(index, _)| index),
        hosts: each("host", raw.host.as_ref(), report, host),
        paths: each("path", raw.path.as_ref(), report, path::read),
        methods: each("methods", raw.methods.as_ref(), report, method),
        preflight: false, // the route says it
        headers,
        exact_spelling: spelling.unwrap_or(false),
    }
}

fn each<T>(
    field: &str,
    raw: Option<&At<OneOrMany<At<String>>>>,
    report: &mut Report,
    parse: impl Fn(&str) -> Result<T, Mistake>,
) -> Vec<T> {
    let Some(raw) = raw else { return Vec::new() };
    if raw.value.0.is_empty() {
        empty(raw.at, field, "leave it out to match all", report);
    }
    raw.value.0.iter().filter_map(|text| value(text, report, &parse)).collect()
}

pub(super) fn method(text: &str) -> Result<Method, Mistake> {
    let upper = text.to_ascii_uppercase();
    Method::from_bytes(upper.as_bytes()).map_err(|_| Mistake::new(format!("`{text}` is not a method")))
}

fn doubt_method(text: &At<String>, report: &mut Report) {
    let upper = text.value.to_ascii_uppercase();
    let meant = nearest(&upper, METHODS).filter(|_| !METHODS.contains(&upper.as_str()));
    if let Some(meant) = meant.filter(|_| method(&upper).is_ok()) {
        report.warning(
            text.problem(format!("`{}` is not a method that HTTP knows", text.value))
                .help(format!("did you mean `{meant}`?")),
        );
    }
}

fn host(text: &str) -> Result<HostPattern, Mistake> {
    HostPattern::parse(text).map_err(|error| {
        let mistake = Mistake::from(error);
        let bare = text.split_once("://").map_or(text, |(_, rest)| rest);
        let name = bare.split(['/', ':']).next().unwrap_or(bare);
        if text == "*" {
            mistake.help("leave `host` out to match every host")
        } else if name != text && !name.is_empty() && HostPattern::parse(name).is_ok() {
            mistake.help(format!("write the name alone: {name}"))
        } else {
            mistake
        }
    })
}

/// Warns of routes behind one that takes all their requests. `routes` have names and stand in order.
pub(super) fn unreachable(routes: &[(At<String>, Match)], report: &mut Report) {
    let wider = Coverage::new(routes.iter().map(|(_, matches)| matches));
    for (index, (name, narrow)) in routes.iter().enumerate() {
        if let Some(wide) = wider.first(index, narrow, |wide| covers(&routes[wide].1, narrow)) {
            let wide = &routes[wide].0;
            let (own, line, wide) = (&name.value, wide.at.line, &wide.value);
            report
                .warning(name.problem(format!("no request reaches the route `{own}`")).help(format!(
                    "`{wide}` on line {line} matches all of them first; put `{own}` above it"
                )));
        }
    }
}

/// Whether `wide` takes every request that `narrow` takes, as far as the patterns tell.
fn covers(wide: &Match, narrow: &Match) -> bool {
    let subset = |own: bool, others: bool, all: bool| own || (!others && all);
    let methods = |m: &Method| wide.methods.contains(m);
    let paths = |path: &PathPattern| wide.paths.iter().any(|own| own.covers(path));
    let hosts = |host: &HostPattern| wide.hosts.iter().any(|own| covers_host(own, host));
    let headers = |(name, value): &(HeaderName, Option<HeaderValue>)| {
        narrow.headers.iter().any(|(other, wanted)| name == other && (value.is_none() || value == wanted))
    };
    let everything = wide.paths.iter().any(PathPattern::is_everything);
    let takes_options = |route: &Match| {
        route.methods.is_empty() || route.methods.contains(&Method::OPTIONS) || route.preflight
    };
    (wide.listener.is_none() || wide.listener == narrow.listener)
        && subset(wide.methods.is_empty(), narrow.methods.is_empty(), narrow.methods.iter().all(methods))
        && (takes_options(wide) || !narrow.preflight)
        && subset(
            wide.paths.is_empty() || everything,
            narrow.paths.is_empty(),
            narrow.paths.iter().all(paths),
        )
        && subset(wide.hosts.is_empty(), narrow.hosts.is_empty(), narrow.hosts.iter().all(hosts))
        && wide.headers.iter().all(headers)
}

fn covers_host(wide: &HostPattern, narrow: &HostPattern) -> bool {
    match (wide, narrow) {
        (HostPattern::Below(wide), HostPattern::Below(narrow)) => narrow.ends_with(wide.as_str()),
        (_, HostPattern::Exact(name)) => wide.matches(name),
        (HostPattern::Exact(_), HostPattern::Below(_)) => false,
    }
}
