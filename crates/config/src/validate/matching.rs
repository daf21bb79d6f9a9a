//! Which requests a route takes.

use http::{HeaderName, HeaderValue, Method};

use super::route::Known;
use super::{empty, header_name, path, value, word};
use crate::HostPattern;
use crate::at::At;
use crate::raw_route::RawMatch;
use crate::read::{Named, OneOrMany};
use crate::report::{Mistake, Report, nearest};
use crate::route::Match;

/// The methods of RFC 9110 and 5789; others exist, but one that is nearly one of these is a slip.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

pub(super) fn matches(raw: &RawMatch, known: &Known<'_>, report: &mut Report) -> Match {
    let listener = raw.listener.as_ref().and_then(|name| known.listeners.find(name, report));
    for text in raw.methods.as_ref().map_or(&[][..], |methods| &methods.value.0) {
        warn_of_unknown_method(text, report);
    }
    for text in raw.path.as_ref().map_or(&[][..], |paths| &paths.value.0) {
        path::warn(text, report);
    }
    let words = [("loose", false), ("exact", true)];
    let spelling = raw.spelling.as_ref().and_then(|text| word(text, "spelling", &words, report));
    Match {
        listener: listener.map(|(listener, _)| listener),
        hosts: each("host", raw.host.as_ref(), report, host),
        paths: each("path", raw.path.as_ref(), report, path::read),
        methods: each("methods", raw.methods.as_ref(), report, method),
        preflight: false, // the route says it
        headers: header_values(raw.headers.as_ref(), report),
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
