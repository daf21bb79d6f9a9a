//! Validates header changes.

use http::{HeaderName, header};

use super::checks::{header_name, value};
use super::template::{Names, pieces};
use crate::raw::shape::RawHeaderChanges;
use crate::read::at::At;
use crate::read::report::{Problem, Report};
use crate::{Change, HeaderChange, Piece, Template, Variable};

/// The messages whose headers are changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Requests,
    Answers,
}

/// Headers that frame a message or belong to one connection.
pub const FRAMING: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Headers that the gateway sets itself.
const OWN: [&str; 5] = ["traceparent", "tracestate", "x-consumer-name", "x-consumer-plan", "x-request-id"];
/// Headers that must occur at most once, because servers disagree on which of two lines counts.
const ONCE: [&str; 6] =
    ["forwarded", "host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

/// The changes of a section, in the order in which they are made. `claim_headers` are the headers that carry
/// claims of the user to the upstream.
pub(super) fn headers(
    raw: Option<&At<RawHeaderChanges>>,
    of: Of,
    claim_headers: &[HeaderName],
    names: Names<'_>,
    report: &mut Report,
) -> Vec<HeaderChange> {
    let Some(At { at, value: raw }) = raw else { return Vec::new() };
    let mut changes = Vec::new();
    for text in raw.remove.as_ref().map_or(&[][..], |names| &names.value.0) {
        let Some(name) = name(text, of, claim_headers, report) else { continue };
        if of == Of::Requests && name == header::HOST {
            report.error(
                text.problem("a request has to name its host")
                    .help("give it another one: `set: {Host: api.internal}`"),
            );
        }
        changes.push(HeaderChange { name, change: Change::Remove });
    }
    for (section, adds) in [(&raw.set, false), (&raw.add, true)] {
        for (text, template) in section.as_ref().map_or(&[][..], |section| &section.value.0) {
            let Some(name) = name(text, of, claim_headers, report) else { continue };
            if adds && of == Of::Requests && ONCE.contains(&plain(&name).as_str()) {
                report.error(
                    text.problem(format!("`{}` is given once or not at all", text.value))
                        .help("put it under `set`, which replaces what is there"),
                );
                continue;
            }
            let Some(written) = template.as_ref() else { continue };
            let Some(template) = self::template(written, names, report) else { continue };
            if name == header::HOST && of == Of::Requests && !is_host(written, &template) {
                report.error(
                    written
                        .problem(format!("`{}` is not a host", written.value))
                        .help("such as api.internal:8080"),
                );
            }
            let change = if adds { Change::Add(template) } else { Change::Set(template) };
            changes.push(HeaderChange { name, change });
        }
    }
    if changes.is_empty() && raw.wrong.is_empty() && report.errors.is_empty() {
        report.warning(
            Problem::new(*at, "nothing is changed here").help("name headers under `set`, `add` or `remove`"),
        );
    }
    changes
}

/// A header that may be changed.
fn name(text: &At<String>, of: Of, claim_headers: &[HeaderName], report: &mut Report) -> Option<HeaderName> {
    let name = value(text, report, header_name)?;
    let plain = plain(&name);
    let why = if FRAMING.contains(&plain.as_str()) || plain.starts_with("proxy-auth") {
        "it belongs to the connection, and whoever sends the message writes it"
    } else if of == Of::Requests && OWN.contains(&plain.as_str()) {
        "in it the upstream is told what the gateway knows"
    } else if of == Of::Requests && claim_headers.contains(&name) {
        "in it the upstream is told what a token says: `forward` of auth.jwt or auth.introspection"
    } else {
        return Some(name);
    };
    report.error(text.problem(format!("`{}` cannot be changed", text.value)).help(why));
    None
}

/// The name as servers read it that make no difference between `-` and `_`.
fn plain(name: &HeaderName) -> String {
    name.as_str().replace('_', "-")
}

/// The value of a header.
fn template(text: &At<String>, names: Names<'_>, report: &mut Report) -> Option<Template> {
    if text.value.is_empty() {
        report.error(text.problem("the header has no value").help("to take it out, name it under `remove`"));
        return None;
    }
    let pieces = pieces(text, names, report)?;
    if let Some(wrong) = pieces.iter().find_map(line_break) {
        report.error(text.problem(format!("a header's value has no {wrong}")).help("it is one line"));
        return None;
    }
    let template = Template::new(pieces);
    if template.is_none() {
        report.error(text.problem("this cannot be the value of a header"));
    }
    template
}

fn line_break(piece: &Piece) -> Option<&'static str> {
    let Piece::Text(text) = piece else { return None };
    match text.contains(['\r', '\n']) {
        true => Some("line break"),
        false => text.chars().any(|c| c.is_control() && c != '\t').then_some("control character"),
    }
}

/// Whether the upstream can take it for a host. What varies in it is the host that was asked for.
fn is_host(text: &At<String>, template: &Template) -> bool {
    let host = text.value.replace("{host}", "host");
    template.variables().all(|variable| *variable == Variable::Host)
        && host
            .parse::<http::uri::Authority>()
            .is_ok_and(|authority| authority == host && !host.contains('@'))
}
