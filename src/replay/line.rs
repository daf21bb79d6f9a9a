//! Lines of logs: JSON, and the `combined` format of nginx and Apache.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use sluicegate_limiter::{Span, Time};
use sluicegate_wire::headers::is_value;
use sluicegate_wire::{Headers, RequestHead, RequestTarget};
use std::collections::HashMap;

/// A request in a log.
#[derive(Debug)]
pub struct Request {
    /// When it arrived, or ended.
    pub time: Time,
    /// Which kind of line the time is from.
    pub origin: TimeOrigin,
    /// The client's address.
    pub client: IpAddr,
    /// Its head.
    pub parts: RequestHead,
    /// How long it took, if the log has it.
    pub duration: Option<Span>,
    /// The status of its answer, if the log has it.
    pub status: Option<StatusCode>,
    /// The bytes of the answer's body, if the log has them.
    pub bytes: Option<u64>,
    /// The bytes of the request's body, if the log has them.
    pub received: Option<u64>,
}

/// Which kind of line a time is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOrigin {
    /// A line of JSON: the time of arrival, with fractions of a second.
    Json,
    /// A line in the combined format: whole seconds, and the end of the request.
    Combined,
}

/// Why a line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LineError(String);

fn bad<T>(what: impl Into<String>) -> Result<T, LineError> {
    Err(LineError(what.into()))
}

/// Whether a line of an access log is about a change of a rule, not about a request.
pub fn is_of_rule(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Kind<'a> {
        kind: &'a str,
    }
    serde_json::from_slice(line).is_ok_and(|Kind { kind }| kind == "rule")
}

/// Parses lines of either format, which is detected for each.
#[derive(Clone, Debug, Default)]
pub struct LineParser {
    /// The host of requests without one.
    host: Option<HeaderValue>,
    /// The last time of a line in the combined format, as it was written: most lines repeat it.
    stamp: Option<(Box<str>, Time)>,
}

impl LineParser {
    /// A parser that gives requests without a host this one.
    pub fn new(host: Option<HeaderValue>) -> Self {
        Self { host, stamp: None }
    }

    /// Parses a line. Bytes that are not UTF-8 are replaced; in headers this affects only decisions by that header.
    ///
    /// # Errors
    /// If the line has neither format, or one of its fields is not valid.
    pub fn parse(&mut self, line: &[u8]) -> Result<Request, LineError> {
        // `from_utf8_lossy` is slower, and few lines need it.
        let text = std::str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed);
        let line = text.trim();
        let mut request = if line.starts_with('{') { json(line)? } else { self.combined(line)? };
        let replaced = matches!(text, Cow::Owned(_));
        if replaced && request.parts.target.path_and_query().contains(char::REPLACEMENT_CHARACTER) {
            return bad("the request target is not UTF-8");
        }
        let head = &mut request.parts;
        if !head.headers.contains_key(header::HOST) {
            match self.host.as_ref().filter(|_| head.target.authority().is_none()) {
                Some(host) => head.headers.insert(header::HOST, host.clone()),
                None => head.version = Version::HTTP_10, // a request of HTTP/1.0 needs no host
            }
        }
        Ok(request)
    }

    /// The time of a line in the combined format, such as `10/Oct/2000:13:55:36 -0700`.
    fn stamp(&mut self, text: &str) -> Result<Time, LineError> {
        if let Some((last, time)) = &self.stamp
            && **last == *text
        {
            return Ok(*time);
        }
        let parsed = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", text);
        let Ok(time) = parsed.and_then(|time| time.to_timestamp()) else {
            return bad(format!("`{text}` is not a time such as 10/Oct/2000:13:55:36 -0700"));
        };
        let nanos =
            u64::try_from(time.as_nanosecond()).map_err(|_| LineError("a time before 1970".into()))?;
        let time = Time::from_nanos(nanos);
        self.stamp = Some((text.into(), time));
        Ok(time)
    }

    /// `ADDRESS IDENT USER [TIME] "METHOD TARGET VERSION" STATUS BYTES "REFERER" "AGENT"`, and the shorter `common`. A number
    /// behind that is taken for the seconds that the request took.
    fn combined(&mut self, line: &str) -> Result<Request, LineError> {
        let Some((client, rest)) = line.split_once(' ') else {
            return bad("neither JSON nor the combined format");
        };
        let client = address(client)?;
        let Some((time, rest)) = rest.split_once('[').and_then(|(_, rest)| rest.split_once(']')) else {
            return bad("no [time]");
        };
        let time = self.stamp(time)?;
        let (request, mut rest) = quoted(rest).unwrap_or_default();
        let plain = unescaped(request);
        let mut words = plain.split(' ');
        let (Some(method), Some(target)) = (words.next().filter(|m| !m.is_empty()), words.next()) else {
            return bad("no \"request\"");
        };
        let status = leading_number(&mut rest).and_then(|status| status.parse().ok());
        let bytes = leading_number(&mut rest).and_then(|bytes| bytes.parse().ok());
        let mut headers = Headers::new();
        for name in ["referer", "user-agent"] {
            let Some((value, behind)) = quoted(rest) else { break };
            rest = behind;
            let value = unescaped(value);
            if is_value(value.as_bytes()) && value != "-" {
                headers.append(name, value.as_bytes());
            }
        }
        let took = rest.trim().split(' ').next().and_then(|word| word.trim_matches('"').parse::<f64>().ok());
        let duration = took.filter(|seconds| (0.0..1e6).contains(seconds));
        Ok(Request {
            time,
            origin: TimeOrigin::Combined,
            client,
            parts: head(method, target, None, headers)?,
            duration: duration.map(|seconds| Span::from_nanos((seconds * 1e9) as u64)),
            status,
            bytes,
            received: None,
        })
    }
}

#[derive(Deserialize)]
struct JsonLine<'a> {
    #[serde(borrow)]
    time: &'a RawValue,
    client_ip: String,
    #[serde(default = "get")]
    method: String,
    host: Option<String>,
    path: String,
    #[serde(default)]
    headers: HashMap<String, String>,
    #[serde(borrow)]
    duration: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow, alias = "bytes_out")]
    bytes: Option<&'a RawValue>,
    #[serde(borrow)]
    bytes_in: Option<&'a RawValue>,
}

fn get() -> String {
    "GET".into()
}

fn json(line: &str) -> Result<Request, LineError> {
    let fields: JsonLine<'_> = serde_json::from_str(line).map_err(|error| LineError(error.to_string()))?;
    let mut headers = Vec::new();
    for (name, value) in &fields.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) else {
            return bad("a header has a name or value that HTTP does not allow");
        };
        headers.push((name, value));
    }
    let duration = match number::<f64>("duration", fields.duration)? {
        Some(seconds) if !(0.0..1e9).contains(&seconds) => {
            return bad("`duration` is not a number of seconds");
        }
        Some(seconds) => Some(Span::from_nanos((seconds * 1e9) as u64)),
        None => None,
    };
    // Servers write an empty text or `-` for a missing value.
    let host = fields.host.as_deref().filter(|host| !matches!(*host, "" | "-"));
    let underscored = headers.iter().any(|(name, _)| name.as_str().contains('_'));
    let mut headers: Headers = headers.into_iter().collect();
    if underscored {
        headers.note_underscore();
    }
    let parts = head(&fields.method, &fields.path, host, headers)?;
    let status = number("status", fields.status)?.map(StatusCode::from_u16).transpose();
    let status = status.map_err(|_| LineError("`status` is not a status".into()))?;
    let (time, client) = (raw_time(fields.time.get())?, address(&fields.client_ip)?);
    let (bytes, received) = (number("bytes", fields.bytes)?, number("bytes_in", fields.bytes_in)?);
    Ok(Request { time, origin: TimeOrigin::Json, client, parts, duration, status, bytes, received })
}

/// A number, in quotes or not. `""` and `"-"` count as missing.
fn number<T: FromStr>(name: &str, raw: Option<&RawValue>) -> Result<Option<T>, LineError> {
    let Some(raw) = raw.map(RawValue::get) else { return Ok(None) };
    let quoted = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
    match quoted.unwrap_or(raw).parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) if matches!(quoted, Some("" | "-")) => Ok(None),
        Err(_) => bad(format!("`{name}` is not such a number: {raw}")),
    }
}

/// A text without the escapes of quoted values: `\"`, `\\` and `\x22`. If the result is not UTF-8, the text is
/// returned unchanged.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        let hex = |at: usize| behind.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match (byte, behind.first(), hex(1).zip(hex(2))) {
            (b'\\', Some(b'x'), Some((high, low))) => {
                out.push((high * 16 + low) as u8);
                rest = &behind[3..];
            }
            (b'\\', Some(quoted @ (b'"' | b'\\')), _) => {
                out.push(*quoted);
                rest = &behind[1..];
            }
            _ => out.push(*byte),
        }
    }
    String::from_utf8(out).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// The first text in double quotes, and the rest after it; `\"` does not end a text.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let inner = &text[text.find('"')? + 1..];
    let mut from = 0;
    loop {
        let end = from + inner[from..].find('"')?;
        let escapes = inner[..end].bytes().rev().take_while(|byte| *byte == b'\\').count();
        if escapes.is_multiple_of(2) {
            return Some((&inner[..end], &inner[end + 1..]));
        }
        from = end + 1;
    }
}

/// Takes a number from the start of the text, in quotes or not, or the `-` of a missing number. A `-` in quotes is not
/// taken, because it is a header.
fn leading_number<'a>(text: &mut &'a str) -> Option<&'a str> {
    let start = text.trim_start();
    let (word, behind) = start.split_at(start.find(char::is_whitespace).unwrap_or(start.len()));
    let digits = word.strip_prefix('"').and_then(|word| word.strip_suffix('"')).unwrap_or(word);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    (is_number || word == "-").then(|| {
        *text = behind;
        digits
    })
}

fn head(method: &str, target: &str, host: Option<&str>, headers: Headers) -> Result<RequestHead, LineError> {
    let Ok(method) = Method::from_bytes(method.as_bytes()) else {
        return bad(format!("`{method}` is not a method"));
    };
    let target = match RequestTarget::origin(target.as_bytes()) {
        Some(target) => target,
        None => match target.parse::<Uri>() {
            Ok(uri) => uri.into(),
            Err(_) => return bad(format!("`{target}` is not a request target")),
        },
    };
    let mut parts = RequestHead { method, target, version: Version::HTTP_11, headers };
    if let Some(host) = host {
        let Ok(host) = HeaderValue::from_str(host) else { return bad("`host` is not a host") };
        parts.headers.insert(header::HOST, host);
    }
    Ok(parts)
}

/// `ADDRESS`, `IPV4:PORT`, `[IPV6]` or `[IPV6]:PORT`.
fn address(text: &str) -> Result<IpAddr, LineError> {
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    let in_brackets =
        || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(|v6: Ipv6Addr| v6.into());
    let address = text.parse().ok().or_else(with_port).or_else(in_brackets);
    address.ok_or_else(|| LineError(format!("`{text}` is not an address")))
}

/// Seconds since the epoch, as a number or a decimal text, or RFC 3339. The text is parsed, because a float would lose the
/// last digits.
fn raw_time(raw: &str) -> Result<Time, LineError> {
    let text = raw.trim_matches('"');
    if let Some(time) = decimal(text) {
        return Ok(time);
    }
    let nanos = match text.parse::<jiff::Timestamp>() {
        Ok(time) => u64::try_from(time.as_nanosecond()).ok(),
        Err(_) => text.parse::<f64>().ok().filter(|s| (0.0..1.8e10).contains(s)).map(|s| (s * 1e9) as u64),
    };
    nanos.map(Time::from_nanos).ok_or_else(|| LineError(format!("`{text}` is not a time")))
}

/// `1719850000.25`, to the nanosecond; more digits are dropped.
fn decimal(text: &str) -> Option<Time> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(seconds) || !all_digits(fraction) {
        return None;
    }
    let digits = &fraction[..fraction.len().min(9)];
    let nanos = digits.parse::<u64>().ok()? * 10_u64.pow(9 - digits.len() as u32);
    let nanos = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    Some(Time::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_all_digits() {
        for (raw, nanos) in [
            ("1719850000.25", 1_719_850_000_250_000_000),
            ("\"1720000800.000001\"", 1_720_000_800_000_001_000),
            ("1720000800", 1_720_000_800_000_000_000),
            ("\"2024-07-03T10:00:00.123456Z\"", 1_720_000_800_123_456_000),
            ("\"2024-07-03T12:00:00+02:00\"", 1_720_000_800_000_000_000),
        ] {
            assert_eq!(raw_time(raw).unwrap().as_nanos(), nanos, "{raw}");
        }
        for raw in ["\"yesterday\"", "null", "-5", "\"\""] {
            assert!(raw_time(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn the_combined_format_is_parsed() {
        let line = br#"203.0.113.9 - ann [03/Jul/2024:12:00:00 +0200] "GET /a?b=c HTTP/1.1" 200 512 "-" "Mozilla \"5\"""#;
        let request = LineParser::default().parse(line).unwrap();
        assert_eq!(request.time.as_nanos(), 1_720_000_800_000_000_000);
        assert_eq!(request.client.to_string(), "203.0.113.9");
        assert_eq!(
            (request.parts.method.as_str(), request.parts.target.to_string().as_str()),
            ("GET", "/a?b=c")
        );
        assert_eq!((request.status.unwrap().as_u16(), request.bytes), (200, Some(512)));
        assert!(
            request.parts.headers.contains_key("user-agent")
                && !request.parts.headers.contains_key("referer")
        );
    }

    #[test]
    fn invalid_lines_are_errors() {
        for line in
            [&b"hello"[..], b"1.2.3.4 - - [x] \"GET / HTTP/1.1\" 200 1", b"{\"time\": 1}", b"\xff\xff", b""]
        {
            assert!(LineParser::default().parse(line).is_err());
        }
        let quoted =
            br#"203.0.113.9 - - [03/Jul/2024:12:00:00 +0200] "GET /a\x22b HTTP/1.1" 200 5 "-" "x\x5C""#;
        let request = LineParser::default().parse(quoted).unwrap();
        assert_eq!(
            (request.parts.target.path(), request.parts.headers.get("user-agent")),
            ("/a\"b", Some(&b"x\\"[..]))
        );
        let no_request = b"1.2.3.4 - - [03/Jul/2024:12:00:00 +0200] \"\\x16\\x03\" 400 0";
        assert!(LineParser::default().parse(no_request).is_err());
    }

    #[test]
    fn numbers_may_be_in_quotes() {
        let line = br#"{"time": "5", "client_ip": "::1", "path": "/", "status": "404", "bytes": "7", "bytes_in": "-",
            "duration": "0.5"}"#;
        let request = LineParser::default().parse(line).unwrap();
        assert_eq!((request.status.unwrap().as_u16(), request.bytes, request.received), (404, Some(7), None));
        assert_eq!(request.duration, Some(Span::from_nanos(500_000_000)));
        for wrong in [r#""4o4""#, "true", "-1", r#""1000""#] {
            let line = format!(r#"{{"time": 5, "client_ip": "::1", "path": "/", "status": {wrong}}}"#);
            assert!(LineParser::default().parse(line.as_bytes()).is_err(), "{wrong}");
        }
        let line = br#"::1 - - [03/Jul/2024:12:00:00 +0200] "GET / HTTP/1.1" "404" "7" "http://a" "agent""#;
        let request = LineParser::default().parse(line).unwrap();
        assert_eq!((request.status.unwrap().as_u16(), request.bytes), (404, Some(7)));
        assert_eq!(request.parts.headers.get("referer"), Some(&b"http://a"[..]));
        let none = br#"::1 - - [03/Jul/2024:12:00:00 +0200] "GET / HTTP/1.1" - - "-" "agent""#;
        let request = LineParser::default().parse(none).unwrap();
        assert_eq!((request.status, request.bytes), (None, None));
        assert_eq!(request.parts.headers.get("user-agent"), Some(&b"agent"[..]));
    }

    #[test]
    fn addresses_may_have_ports_and_brackets() {
        for (text, read) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("192.0.2.1:443", Some("192.0.2.1")),
            ("[2001:db8::1]:443", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("192.0.2.1:99999", None),
            ("[192.0.2.1]", None),
            ("[::1", None),
            ("localhost", None),
        ] {
            assert_eq!(address(text).ok().map(|address| address.to_string()).as_deref(), read, "{text}");
        }
    }

    #[test]
    fn an_invalid_byte_affects_only_its_field() {
        let agent = b"::1 - - [03/Jul/2024:12:00:00 +0200] \"GET /a HTTP/1.1\" 200 5 \"-\" \"a\xffb\"";
        assert_eq!(LineParser::default().parse(agent).unwrap().parts.target.path(), "/a");
        let json = b"{\"time\": 5, \"client_ip\": \"::1\", \"path\": \"/\", \"headers\": {\"user-agent\": \"\xff\"}}";
        assert!(LineParser::default().parse(json).unwrap().parts.headers.contains_key("user-agent"));
        let target = b"::1 - - [03/Jul/2024:12:00:00 +0200] \"GET /a\xff HTTP/1.1\" 200 5";
        assert!(LineParser::default().parse(target).unwrap_err().to_string().contains("not UTF-8"));
    }

    #[test]
    fn the_default_host_applies_only_to_requests_without_host() {
        let assumed = HeaderValue::from_static("assumed.test");
        let host = |line: &str| {
            let request = LineParser::new(Some(assumed.clone())).parse(line.as_bytes()).unwrap();
            crate::route::host(&request.parts).unwrap().into_owned()
        };
        let combined =
            |target| format!(r#"::1 - - [03/Jul/2024:12:00:00 +0200] "GET {target} HTTP/1.1" 200 5"#);
        let json = |more| format!(r#"{{"time": 5, "client_ip": "::1", "path": "/"{more}}}"#);
        assert_eq!(host(&combined("/")), "assumed.test");
        assert_eq!(host(&combined("http://own.test/")), "own.test");
        assert_eq!(host(&json("")), "assumed.test");
        assert_eq!(host(&json(r#", "host": "-""#)), "assumed.test");
        assert_eq!(host(&json(r#", "host": "own.test""#)), "own.test");
        assert_eq!(host(&json(r#", "headers": {"Host": "own.test"}"#)), "own.test");
    }
}
