//! The span of a request, as a member of an OTLP/JSON message. Attributes have the names of OpenTelemetry's semantic conventions
//! for HTTP servers where there is one, and begin with `sluicegate.` otherwise.

use http::Version;
use serde_json::{Value, json};
use sluicegate_limiter::{Span, Time};

use super::encode::nanos;
use crate::access_log::{End, Record};
use crate::metrics::attribute;
use crate::trace::Trace;
use sluicegate_base::cut_reason::CutReason;
use sluicegate_config::{Params, PathPattern, normalize};

/// SPAN_KIND_SERVER.
const SERVER: u8 = 2;
/// STATUS_CODE_ERROR.
const ERROR: u8 = 2;
/// The flags of a span: the lowest is "sampled"; these say that it is known whether the parent is in another process, and that
/// it is.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
/// The methods that OpenTelemetry's conventions know, and what the name of a span has for all others.
const METHODS: [&str; 10] =
    ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"];
const OTHER_NAME: &str = "HTTP";
/// The longest path that is told, in bytes.
const LONGEST: usize = 1_024;

/// The span of a request that has ended.
pub fn span(record: &Record, end: &End<'_>, trace: &Trace) -> String {
    let seconds = |span: Span| span.as_nanos() as f64 / 1e9;
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]).into_owned();
    let name_of = |index: &usize| end.names.limit(*index);
    let mut attributes = Vec::new();
    let mut add = |name: &str, value: Value| {
        if !value.is_null() {
            attributes.push(attribute(name, &value));
        }
    };
    let (mut method, mut http_route) = (OTHER_NAME, None);
    if let Some(head) = &record.head {
        // Clients can invent methods: collectors shall not have a series for each.
        let known = METHODS.contains(&head.method.as_str());
        method = if known { head.method.as_str() } else { OTHER_NAME };
        add("http.request.method", if known { method } else { "_OTHER" }.into());
        add("url.path", text(head.target.path().as_bytes()).into());
        let (host, port) = head.host.as_deref().map(split_port).unzip();
        let version = match head.version {
            Version::HTTP_10 => "1.0",
            Version::HTTP_2 => "2",
            _ => "1.1",
        };
        add("network.protocol.name", "http".into());
        add("network.protocol.version", version.into());
        add("user_agent.original", head.agent.as_deref().map(text).into());
        http_route = pattern(head.target.path(), end.paths);
        add("http.route", http_route.as_deref().into());
        add("server.address", host.map(text).into());
        add("server.port", port.flatten().into());
    }
    add("url.scheme", record.scheme.into());
    add("client.address", record.client.to_string().into());
    add("network.peer.address", record.peer.to_string().into());
    add("http.response.status_code", end.code.into());
    add("http.request.body.size", end.received.into());
    add("http.response.body.size", end.sent.into());
    let cut = end.cut.map(CutReason::name);
    let error = if end.code >= 500 { Some(end.code.to_string()) } else { cut.map(str::to_owned) };
    add("error.type", error.into());
    add("sluicegate.request_id", end.id.as_str().into());
    add("sluicegate.route", end.route.into());
    add("sluicegate.listener", end.listener.into());
    add("sluicegate.outcome", record.outcome.map(|outcome| outcome.name()).into());
    add("sluicegate.reason", end.reason.map(|reason| reason.name()).into());
    if let Some((limit, remaining)) = &record.limit {
        add("sluicegate.limit.name", name_of(limit).into());
        add("sluicegate.limit.remaining", (*remaining).into());
    }
    add("sluicegate.retry_after", record.retry_after.map(seconds).into());
    add("sluicegate.delay", if record.delay.is_zero() { Value::Null } else { seconds(record.delay).into() });
    for (name, limits) in [("sluicegate.shadow", &record.shadow), ("sluicegate.candidate", &record.candidate)]
    {
        let names: Vec<&str> = limits.iter().map(name_of).collect();
        add(name, if names.is_empty() { Value::Null } else { names.into() });
    }
    add("sluicegate.upstream.name", end.upstream.into());
    add("sluicegate.upstream.server", record.server.as_deref().into());
    add("sluicegate.upstream.duration", record.upstream_took.map(seconds).into());
    let remote = if trace.parent.is_some() { IS_REMOTE } else { 0 };
    // A route without one path that could be told is named by its name, of which there are as few.
    let target = http_route.as_deref().or(end.route);
    let mut span = json!({
        "traceId": format!("{:032x}", trace.id),
        "spanId": format!("{:016x}", trace.span),
        "flags": 1 | HAS_IS_REMOTE | remote,
        "name": target.map_or_else(|| method.to_owned(), |target| format!("{method} {target}")),
        "kind": SERVER,
        "startTimeUnixNano": nanos(end.begun),
        "endTimeUnixNano": nanos(Time::plus(end.begun, end.took)),
        "attributes": attributes,
        "status": if end.code >= 500 || cut.is_some() { json!({ "code": ERROR }) } else { json!({}) },
    });
    if let Some(parent) = trace.parent {
        span["parentSpanId"] = format!("{parent:016x}").into();
    }
    span.to_string()
}

/// The pattern of a route that the path of a request matched, as the file writes it. `None` for a route without patterns.
fn pattern(path: &str, patterns: &[PathPattern]) -> Option<String> {
    if let [one] = patterns {
        return Some(one.to_string());
    }
    let path = normalize(path).ok()?;
    let mut params = Params::new();
    patterns.iter().find(|pattern| pattern.matches(&path, &mut params)).map(ToString::to_string)
}

/// The name or address of a host, and its port if it has one.
fn split_port(host: &[u8]) -> (&[u8], Option<u16>) {
    let colon = host.iter().rposition(|byte| *byte == b':').filter(|at| !host[*at..].contains(&b']'));
    let port = colon.and_then(|at| std::str::from_utf8(&host[at + 1..]).ok()?.parse().ok());
    let name = &host[..colon.unwrap_or(host.len())];
    (name.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]")).unwrap_or(name), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pattern that matched, not the path: a collector has a series for each.
    #[test]
    fn routes_are_told_by_their_patterns() {
        let patterns = |texts: &[&str]| -> Vec<PathPattern> {
            texts.iter().map(|text| PathPattern::parse(text).unwrap()).collect()
        };
        let several = patterns(&["/login", "/users/{id}", "/v1/*"]);
        for (path, expected) in [
            ("/users/7", Some("/users/{id}")),
            ("/v1/a/b", Some("/v1/*")),
            ("//login", Some("/login")),
            ("/else", None),
        ] {
            assert_eq!(pattern(path, &several).as_deref(), expected, "{path}");
        }
        assert_eq!(pattern("/v2/x", &patterns(&["/*"])).as_deref(), Some("/*"));
        assert_eq!(pattern("/v2/x", &[]), None);
    }

    #[test]
    fn hosts_are_told_without_their_port() {
        for (host, name, port) in [
            ("a.test", "a.test", None),
            ("a.test:8080", "a.test", Some(8080)),
            ("[2001:db8::1]:80", "2001:db8::1", Some(80)),
            ("[2001:db8::1]", "2001:db8::1", None),
            ("a.test:99999", "a.test", None),
        ] {
            assert_eq!(split_port(host.as_bytes()), (name.as_bytes(), port), "{host}");
        }
    }
}
