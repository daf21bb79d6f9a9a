//! The formats `json` and `combined`. A line is valid, and stays one line, for any bytes that a client sends.

use std::borrow::Cow;
use std::io::Write as _;

use http::Version;
use sluicegate_limiter::Span;

use super::record::{End, Record};
use sluicegate_config::form_decode;
use sluicegate_config::{AccessLogConfig, Field, Known};
use sluicegate_wire::RequestTarget;

/// The longest value that is written, in bytes; longer ones are truncated.
pub(super) const MAX_VALUE: usize = 8 << 10;
/// Written in place of a secret.
const REDACTED: &str = "REDACTED";

/// A JSON object that is being written.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

/// Appends a request as a JSON object. Members without a value are left out.
pub(super) fn json(out: &mut Vec<u8>, config: &AccessLogConfig, record: &Record, end: &End<'_>) {
    let mut object = Object::begin(out);
    let mut headers = false;
    for field in &config.fields {
        match field {
            Field::Known(known) => member(&mut object, *known, config, record, end),
            // All headers are in one object, at the position of the first.
            Field::Header(_) if std::mem::replace(&mut headers, true) => {}
            Field::Header(_) => {
                object.name("headers");
                let mut inside = Object::begin(object.out);
                let names = config.fields.iter().filter_map(|field| match field {
                    Field::Header(name) => Some(name),
                    Field::Known(_) => None,
                });
                for (name, value) in names.zip(record.head.iter().flat_map(|head| &head.headers)) {
                    if let Some(value) = value {
                        inside.text(name.as_str(), value);
                    }
                }
                inside.end();
            }
        }
    }
    object.end();
}

fn member(object: &mut Object<'_>, known: Known, config: &AccessLogConfig, record: &Record, end: &End<'_>) {
    let name = known.name();
    let limit_name = |index: &usize| end.names.limit(*index);
    let (trace, head) = (end.trace.as_ref(), record.head.as_ref());
    match known {
        Known::Time => object.seconds(name, end.begun.as_nanos() / 1_000),
        Known::ClientIp => object.shown(name, record.client),
        Known::Peer => object.shown(name, record.peer),
        Known::Method => object.optional(name, head.map(|head| head.method.as_str().as_bytes())),
        Known::Host => object.optional(name, head.and_then(|head| head.host.as_deref())),
        Known::Path => {
            let shown = head.map(|head| shown_target(&head.target, |name| is_among(&config.redact, name)));
            object.optional(name, shown.as_ref().map(|shown| shown.as_bytes()));
        }
        Known::Protocol => object.optional(name, head.map(|head| protocol(head.version).as_bytes())),
        Known::Scheme => object.text(name, record.scheme.as_bytes()),
        Known::Status => object.number(name, end.code.into()),
        Known::Duration => object.seconds(name, micros(end.took)),
        Known::Complete => object.boolean(name, end.code != 499 && end.cut.is_none()),
        Known::Cut => object.optional(name, end.cut.map(|cut| cut.name().as_bytes())),
        Known::BytesIn => object.number(name, end.received),
        Known::BytesOut => object.number(name, end.sent),
        Known::Route => object.optional(name, end.route.map(str::as_bytes)),
        Known::Listener => object.optional(name, end.listener.map(str::as_bytes)),
        Known::Outcome => object.optional(name, record.outcome.map(|outcome| outcome.name().as_bytes())),
        Known::Reason => object.optional(name, end.reason.map(|reason| reason.name().as_bytes())),
        Known::Detail => object.optional(name, record.detail.map(str::as_bytes)),
        Known::Limit => {
            object.optional(name, record.limit.as_ref().map(|(index, _)| limit_name(index).as_bytes()));
        }
        Known::Key => object.optional(name, record.key.as_ref().map(|key| key.as_bytes())),
        Known::Remaining => {
            if let Some((_, remaining)) = record.limit {
                object.number(name, remaining);
            }
        }
        Known::RetryAfter => {
            if let Some(wait) = record.retry_after {
                object.seconds(name, wait.ceil_micros());
            }
        }
        Known::Delay => {
            if !record.delay.is_zero() {
                object.seconds(name, record.delay.ceil_micros());
            }
        }
        Known::Shadow => object.list(name, record.shadow.iter().map(limit_name)),
        Known::Candidate => object.list(name, record.candidate.iter().map(limit_name)),
        Known::Consumer => {
            object.optional(name, record.consumer.as_ref().map(|consumer| consumer.as_bytes()))
        }
        Known::Plan => object.optional(name, record.plan.as_ref().map(|plan| plan.as_bytes())),
        Known::User => {
            let user = record.token.as_ref().and_then(|token| token.user());
            object.optional(name, user.map(str::as_bytes));
        }
        Known::Upstream => object.optional(name, end.upstream.map(str::as_bytes)),
        Known::Server => object.optional(name, record.server.as_ref().map(|server| server.as_bytes())),
        Known::UpstreamDuration => {
            if let Some(took) = record.upstream_took {
                object.seconds(name, micros(took));
            }
        }
        Known::UpstreamError => object.optional(name, record.upstream_error.as_ref().map(String::as_bytes)),
        Known::RequestId => object.text(name, end.id.as_bytes()),
        Known::TraceId => {
            if let Some(trace) = trace {
                object.quoted(name, format_args!("{:032x}", trace.id));
            }
        }
        Known::SpanId => {
            if let Some(trace) = trace {
                object.quoted(name, format_args!("{:016x}", trace.span));
            }
        }
        Known::ParentId => {
            if let Some(parent) = trace.and_then(|trace| trace.parent) {
                object.quoted(name, format_args!("{parent:016x}"));
            }
        }
        Known::UserAgent => object.optional(name, head.and_then(|head| head.agent.as_deref())),
        Known::Referer => {
            if let Some(referer) = head.and_then(|head| head.referer.as_ref()) {
                object.text(name, &without_secrets(referer, &config.redact));
            }
        }
    }
}

/// Appends a request in the combined format. Bytes that are not allowed there are written as `\xHH`.
pub(super) fn combined(
    out: &mut Vec<u8>,
    config: &AccessLogConfig,
    record: &Record,
    end: &End<'_>,
    date: &str,
) {
    let _ = write!(out, "{} - - [{date}] \"", record.client); // memory grows; nothing fails
    match &record.head {
        Some(head) => {
            escaped(out, head.method.as_str().as_bytes());
            out.push(b' ');
            escaped(out, shown_target(&head.target, |name| is_among(&config.redact, name)).as_bytes());
            let _ = write!(out, " {}", protocol(head.version));
        }
        None => out.push(b'-'),
    }
    let _ = write!(out, "\" {} {} \"", end.code, end.sent);
    let referer = record.head.as_ref().and_then(|head| head.referer.as_ref());
    let referer = referer.map(|referer| without_secrets(referer, &config.redact));
    escaped(out, referer.as_deref().unwrap_or(b"-"));
    out.extend_from_slice(b"\" \"");
    let agent = record.head.as_ref().and_then(|head| head.agent.as_deref());
    escaped(out, agent.unwrap_or(b"-"));
    out.push(b'"');
}

fn escaped(out: &mut Vec<u8>, value: &[u8]) {
    for byte in bounded(value) {
        match byte {
            b' '..=b'~' if !matches!(byte, b'"' | b'\\') => out.push(*byte),
            _ => _ = write!(out, "\\x{byte:02X}"),
        }
    }
}

/// The received path and query, without the values of parameters with secret names.
pub fn shown_target(target: &RequestTarget, is_secret: impl Fn(&[u8]) -> bool) -> Cow<'_, str> {
    let path = match target.path() {
        // CONNECT. A user and a password before the host are not shown.
        "" => target.authority().map_or("", |host| host.rsplit('@').next().unwrap_or_default()),
        path => path,
    };
    let Some(query) = target.query() else { return Cow::Borrowed(path) };
    match redacted(query, is_secret) {
        Cow::Borrowed(_) => target.path_and_query().into(),
        Cow::Owned(query) => Cow::Owned(format!("{path}?{query}")),
    }
}

/// Whether the decoded name of a parameter is one of these.
pub fn is_among(names: &[String], name: &[u8]) -> bool {
    names.iter().any(|secret| name.eq_ignore_ascii_case(secret.as_bytes()))
}

/// A URL without the values of secret parameters.
fn without_secrets<'a>(url: &'a [u8], names: &[String]) -> Cow<'a, [u8]> {
    let Some(at) = url.iter().position(|byte| *byte == b'?') else { return Cow::Borrowed(url) };
    let (front, query) = (&url[..=at], String::from_utf8_lossy(&url[at + 1..]));
    match redacted(&query, |name| is_among(names, name)) {
        Cow::Borrowed(_) => Cow::Borrowed(url),
        Cow::Owned(query) => Cow::Owned([front, query.as_bytes()].concat()),
    }
}

/// A query without the values of parameters whose decoded names are secret.
fn redacted(query: &str, is_secret: impl Fn(&[u8]) -> bool) -> Cow<'_, str> {
    let is_secret = |pair: &str| {
        let Some((name, value)) = pair.split_once('=') else { return false };
        !value.is_empty() && is_secret(&form_decode(name))
    };
    if !query.split('&').any(is_secret) {
        return Cow::Borrowed(query);
    }
    let mut out = String::with_capacity(query.len());
    for (at, pair) in query.split('&').enumerate() {
        if at > 0 {
            out.push('&');
        }
        match pair.split_once('=').filter(|_| is_secret(pair)) {
            Some((name, _)) => {
                out += name;
                out.push('=');
                out += REDACTED;
            }
            None => out += pair,
        }
    }
    Cow::Owned(out)
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

fn micros(span: Span) -> u64 {
    span.as_nanos() / 1_000
}

fn bounded(value: &[u8]) -> &[u8] {
    &value[..value.len().min(MAX_VALUE)]
}

impl<'a> Object<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    fn end(self) {
        self.out.push(b'}');
    }

    fn name(&mut self, name: &str) {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        string(self.out, name.as_bytes()); // escaped, although names are ASCII tokens
        self.out.push(b':');
    }

    fn text(&mut self, name: &str, value: &[u8]) {
        self.name(name);
        string(self.out, value);
    }

    fn optional(&mut self, name: &str, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    /// A value that needs no escaping.
    fn quoted(&mut self, name: &str, value: std::fmt::Arguments<'_>) {
        self.name(name);
        let _ = write!(self.out, "\"{value}\""); // memory grows; nothing fails
    }

    fn shown(&mut self, name: &str, value: impl std::fmt::Display) {
        self.quoted(name, format_args!("{value}"));
    }

    fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        let _ = write!(self.out, "{value}");
    }

    fn boolean(&mut self, name: &str, value: bool) {
        self.name(name);
        let _ = write!(self.out, "{value}");
    }

    /// Microseconds, written as seconds.
    fn seconds(&mut self, name: &str, micros: u64) {
        self.name(name);
        let _ = write!(self.out, "{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    }

    fn list<'n>(&mut self, name: &str, values: impl ExactSizeIterator<Item = &'n str>) {
        if values.len() == 0 {
            return;
        }
        self.name(name);
        for (at, value) in values.enumerate() {
            self.out.push(if at == 0 { b'[' } else { b',' });
            string(self.out, value.as_bytes());
        }
        self.out.push(b']');
    }
}

/// A JSON string. Bytes that are not UTF-8 become U+FFFD; control characters of terminals are escaped.
fn string(out: &mut Vec<u8>, value: &[u8]) {
    out.push(b'"');
    for chunk in bounded(value).utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
                ' '..='~' => out.push(c as u8),
                // Control characters of ASCII and Latin-1, and the line separators of JavaScript.
                '\0'..='\u{9f}' | '\u{2028}' | '\u{2029}' => _ = write!(out, "\\u{:04x}", c as u32),
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_become_a_valid_json_string() {
        for value in [
            &b"plain"[..],
            b"a\"b\\c/",
            b"\r\n\t\x1b[31m\x00\x7f",
            b"\xff\xfe\xc3",
            "ü \u{9b}1m \u{2028} 🦀".as_bytes(),
            &[b'x'; MAX_VALUE + 100],
        ] {
            let mut out = Vec::new();
            string(&mut out, value);
            assert!(out.iter().all(|byte| *byte >= b' ' && *byte != 0x7f), "{out:?}");
            let read: String = serde_json::from_slice(&out).unwrap();
            assert_eq!(read, String::from_utf8_lossy(bounded(value)));
        }
    }

    #[test]
    fn secrets_in_queries_are_redacted() {
        let names = ["key".to_owned(), "access_token".to_owned()];
        for (query, written) in [
            ("a=1&key=s3cret&b=2", "a=1&key=REDACTED&b=2"),
            ("%6bey=s3cret", "%6bey=REDACTED"),
            ("KEY=s3cret&key=s3cret", "KEY=REDACTED&key=REDACTED"),
            ("access%5Ftoken=s3cret", "access%5Ftoken=REDACTED"),
            ("key=s3c=ret", "key=REDACTED"),
            ("monkey=1&key=&key", "monkey=1&key=&key"),
            ("", ""),
        ] {
            assert_eq!(redacted(query, |name| is_among(&names, name)), written);
        }
        let url = without_secrets(b"https://a.test/x?key=s3cret#top", &names);
        assert_eq!(url.as_ref(), b"https://a.test/x?key=REDACTED");
    }

    #[test]
    fn the_combined_format_escapes_quotes_and_control_characters() {
        let mut out = Vec::new();
        escaped(&mut out, b"a \"b\" \\ \r\n\x1b \xff ~");
        assert_eq!(String::from_utf8(out).unwrap(), r"a \x22b\x22 \x5C \x0D\x0A\x1B \xFF ~");
    }
}
