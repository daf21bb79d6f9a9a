//! Which requests a route takes.

use http::{HeaderName, HeaderValue, Method};

use super::checks::{empty, header_name, value, word};
use super::context::Known;
use super::path;
use crate::model::route::Match;
use crate::raw::route::{RawMatch, RawPattern};
use crate::read::at::At;
use crate::read::nearest::nearest;
use crate::read::report::{Mistake, Report};
use crate::read::{Named, OneOrMany};
use crate::{HostPattern, MatchRegex, PathRegex, Paths, QueryMatch, QueryValue};

/// The methods of RFC 9110 and 5789; others exist, but one that is nearly one of these is a slip.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

pub(super) fn matches(raw: &RawMatch, known: &Known<'_>, report: &mut Report) -> Match {
    let listener = raw.listener.as_ref().and_then(|name| known.listeners.find(name, report));
    for text in raw.methods.as_ref().map_or(&[][..], |methods| &methods.value.0) {
        warn_of_unknown_method(text, report);
    }
    let words = [("loose", false), ("exact", true)];
    let spelling = raw.spelling.as_ref().and_then(|text| word(text, "spelling", &words, report));
    Match {
        listener: listener.map(|(listener, _)| listener),
        hosts: hosts(raw, report),
        paths: paths(raw, report),
        methods: raw.methods.as_ref().map_or_else(Vec::new, |methods| {
            let given = items("methods", methods, report);
            given.iter().filter_map(|text| value(text, report, method)).collect()
        }),
        preflight: false, // the route says it
        headers: header_values(raw.headers.as_ref(), report),
        query: query(raw.query.as_ref(), report),
        exact_spelling: spelling.unwrap_or(false),
    }
}

/// Headers and the values that they must have; `None` stands for any value.
pub(super) fn header_values(
    raw: Option<&At<Named<At<String>>>>,
    report: &mut Report,
) -> Vec<(HeaderName, Option<HeaderValue>)> {
    let mut headers = Vec::new();
    for (name, wanted) in raw.map_or(&[][..], |headers| &headers.value.0) {
        let Some(name) = value(name, report, header_name) else { continue };
        let Some(wanted) = wanted else { continue };
        match (wanted.value != "*").then(|| HeaderValue::from_str(&wanted.value)).transpose() {
            Ok(wanted) => headers.push((name, wanted)),
            Err(_) => report.error(wanted.problem(format!("`{}` is not a header value", wanted.value))),
        }
    }
    headers
}

/// The items of a list, which must have some.
fn items<'r, T>(field: &str, raw: &'r At<OneOrMany<T>>, report: &mut Report) -> &'r [T] {
    if raw.value.0.is_empty() {
        empty(raw.at, field, "leave it out to match all", report);
    }
    &raw.value.0
}

fn hosts(raw: &RawMatch, report: &mut Report) -> Vec<HostPattern> {
    let Some(given) = &raw.host else { return Vec::new() };
    let given = items("host", given, report);
    let read = |pattern: &At<RawPattern>| match &pattern.value {
        RawPattern::Text(text) => value(&At { at: pattern.at, value: text.clone() }, report, host),
        RawPattern::Regex(raw) => value(raw.regex.as_ref()?, report, host_regex),
    };
    given.iter().filter_map(read).collect()
}

fn paths(raw: &RawMatch, report: &mut Report) -> Paths {
    let mut paths = Paths::default();
    let Some(given) = &raw.path else { return paths };
    for pattern in items("path", given, report) {
        match &pattern.value {
            RawPattern::Text(text) => {
                let text = At { at: pattern.at, value: text.clone() };
                path::warn(&text, report);
                paths.patterns.extend(value(&text, report, path::read));
            }
            RawPattern::Regex(raw) => {
                let regex = raw.regex.as_ref();
                paths.regexes.extend(regex.and_then(|text| value(text, report, PathRegex::new)));
            }
        }
    }
    paths
}

/// Query parameters and the values that they must have.
fn query(raw: Option<&At<Named<At<RawPattern>>>>, report: &mut Report) -> Vec<QueryMatch> {
    let mut query = Vec::new();
    for (name, wanted) in raw.map_or(&[][..], |raw| &raw.value.0) {
        let Some(wanted) = wanted else { continue };
        if name.value.is_empty() {
            report.error(name.problem("a query parameter has a name"));
        }
        let wanted = match &wanted.value {
            RawPattern::Text(text) if text == "*" => Some(QueryValue::Any),
            RawPattern::Text(text) => Some(QueryValue::Exact(text.clone())),
            RawPattern::Regex(raw) => raw.regex.as_ref().and_then(|text| {
                value(text, report, |text| MatchRegex::new(text, false).map(QueryValue::Regex))
            }),
        };
        query.extend(wanted.map(|value| QueryMatch { name: name.value.clone(), value }));
    }
    query
}

fn host_regex(text: &str) -> Result<HostPattern, Mistake> {
    match text.is_ascii() {
        true => MatchRegex::new(text, true).map(HostPattern::Regex),
        false => Err(Mistake::new(format!("`{text}` matches no host: names have only ASCII characters"))
            .help("write international names in their ASCII form, such as xn--bcher-kva.example")),
    }
}

pub(super) fn method(text: &str) -> Result<Method, Mistake> {
    let upper = text.to_ascii_uppercase();
    Method::from_bytes(upper.as_bytes()).map_err(|_| Mistake::new(format!("`{text}` is not a method")))
}

fn warn_of_unknown_method(text: &At<String>, report: &mut Report) {
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
