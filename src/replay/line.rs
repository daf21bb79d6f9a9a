//! Lines of logs: JSON, and the `combined` format of nginx and Apache.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::message::RequestHead;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use sluicegate_limiter::{Span, Time};
use std::collections::HashMap;

/// A request as a log tells it.
#[derive(Debug)]
pub struct Request {
    /// When it came.
    pub time: Time,
    /// Who sent it.
    pub client: IpAddr,
    /// What it asked.
    pub parts: RequestHead,
    /// How long it took, if the log says.
    pub duration: Option<Span>,
    /// How it was answered, if the log says.
    pub status: Option<StatusCode>,
    /// The bytes of the answer's body, if the log says.
    pub bytes: Option<u64>,
    /// The bytes of the request's body, if the log says.
    pub received: Option<u64>,
}

/// Why a line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LineError(String);

fn bad<T>(what: impl Into<String>) -> Result<T, LineError> {
    Err(LineError(what.into()))
}

/// Reads a line of either format; which one shows by itself.
///
/// # Errors
/// When it is of neither, or a field of it cannot be read.
pub fn parse(line: &[u8]) -> Result<Request, LineError> {
    let line = std::str::from_utf8(line).map_err(|_| LineError("not UTF-8".into()))?.trim();
    if line.starts_with('{') { json(line) } else { combined(line) }
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
    duration: Option<f64>,
    status: Option<u16>,
    #[serde(alias = "bytes_out")]
    bytes: Option<u64>,
    bytes_in: Option<u64>,
}

fn get() -> String {
    "GET".into()
}

fn json(line: &str) -> Result<Request, LineError> {
    let fields: JsonLine<'_> = serde_json::from_str(line).map_err(|error| LineError(error.to_string()))?;
    let mut headers = Vec::new();
    for (name, value) in &fields.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) else {
            return bad("a header has a name or value that HTTP does not allow");
        };
        headers.push((name, value));
    }
    let duration = match fields.duration {
        Some(seconds) if !(0.0..1e9).contains(&seconds) => {
            return bad("`duration` is not a number of seconds");
        }
        Some(seconds) => Some(Span::from_nanos((seconds * 1e9) as u64)),
        None => None,
    };
    let parts = parts(&fields.method, &fields.path, fields.host.as_deref(), headers)?;
    let status = fields.status.map(StatusCode::from_u16).transpose();
    let status = status.map_err(|_| LineError("`status` is not a status".into()))?;
    let (time, client) = (raw_time(fields.time.get())?, address(&fields.client_ip)?);
    Ok(Request { time, client, parts, duration, status, bytes: fields.bytes, received: fields.bytes_in })
}

/// `ADDRESS IDENT USER [TIME] "METHOD TARGET VERSION" STATUS BYTES "REFERER" "AGENT"`, and the shorter `common`.
fn combined(line: &str) -> Result<Request, LineError> {
    let Some((client, rest)) = line.split_once(' ') else {
        return bad("neither JSON nor the combined format");
    };
    let client = address(client)?;
    let Some((time, rest)) = rest.split_once('[').and_then(|(_, rest)| rest.split_once(']')) else {
        return bad("no [time]");
    };
    let Ok(time) =
        jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", time).and_then(|time| time.to_timestamp())
    else {
        return bad(format!("`{time}` is not a time such as 10/Oct/2000:13:55:36 -0700"));
    };
    let mut quoted = quoted(rest);
    let request = quoted.next().unwrap_or_default();
    let plain = unescaped(request);
    let mut words = plain.split(' ');
    let (Some(method), Some(target)) = (words.next().filter(|m| !m.is_empty()), words.next()) else {
        return bad("no \"request\"");
    };
    let behind = request.as_ptr() as usize - rest.as_ptr() as usize + request.len() + 1;
    let mut numbers = rest.get(behind..).unwrap_or_default().split_ascii_whitespace();
    let status = numbers.next().and_then(|status| status.parse().ok());
    let bytes = numbers.next().and_then(|bytes| bytes.parse().ok());
    let mut headers = Vec::new();
    for (name, value) in [(header::REFERER, quoted.next()), (header::USER_AGENT, quoted.next())] {
        let value = value.filter(|v| *v != "-").map(unescaped);
        if let Some(Ok(value)) = value.map(|value| HeaderValue::from_bytes(value.as_bytes())) {
            headers.push((name, value));
        }
    }
    let nanos = u64::try_from(time.as_nanosecond()).map_err(|_| LineError("a time before 1970".into()))?;
    Ok(Request {
        time: Time::from_nanos(nanos),
        client,
        parts: parts(method, target, None, headers)?,
        duration: None,
        status,
        bytes,
        received: None,
    })
}

/// A text without the escapes that logs write for what cannot stand in quotes: `\"`, `\\` and `\x22`. One that hides
/// no UTF-8 stays as it is.
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

/// The texts in double quotes; `\"` does not end one.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let from = rest.find('"')? + 1;
        let inner = &rest[from..];
        let mut escaped = false;
        let end = inner.bytes().position(|b| {
            let ends = b == b'"' && !escaped;
            escaped = b == b'\\' && !escaped;
            ends
        })?;
        rest = &inner[end + 1..];
        Some(&inner[..end])
    })
}

fn parts(
    method: &str,
    target: &str,
    host: Option<&str>,
    headers: Vec<(HeaderName, HeaderValue)>,
) -> Result<RequestHead, LineError> {
    let Ok(method) = Method::from_bytes(method.as_bytes()) else {
        return bad(format!("`{method}` is not a method"));
    };
    let Ok(uri) = target.parse::<Uri>() else { return bad(format!("`{target}` is not a request target")) };
    let headers = headers.into_iter().collect();
    let mut parts = RequestHead { method, target: uri.into(), version: Version::HTTP_11, headers };
    match host.map(HeaderValue::from_str) {
        Some(Ok(host)) => parts.headers.insert(header::HOST, host),
        Some(Err(_)) => return bad("`host` is not a host"),
        None => parts.version = Version::HTTP_10, // in which a request need not name one
    }
    Ok(parts)
}

fn address(text: &str) -> Result<IpAddr, LineError> {
    text.parse().map_err(|_| LineError(format!("`{text}` is not an address")))
}

/// Seconds since the epoch, as a number or a decimal text, or RFC 3339. Read from the text itself: a float would
/// lose the last digits.
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
    fn times_keep_their_digits() {
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
    fn the_combined_format() {
        let line = br#"203.0.113.9 - ann [03/Jul/2024:12:00:00 +0200] "GET /a?b=c HTTP/1.1" 200 512 "-" "Mozilla \"5\"""#;
        let request = parse(line).unwrap();
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
    fn what_cannot_be_read_is_told() {
        for line in
            [&b"hello"[..], b"1.2.3.4 - - [x] \"GET / HTTP/1.1\" 200 1", b"{\"time\": 1}", b"\xff\xff", b""]
        {
            assert!(parse(line).is_err());
        }
        let quoted =
            br#"203.0.113.9 - - [03/Jul/2024:12:00:00 +0200] "GET /a\x22b HTTP/1.1" 200 5 "-" "x\x5C""#;
        let request = parse(quoted).unwrap();
        assert_eq!(
            (request.parts.target.path(), request.parts.headers.get("user-agent")),
            ("/a\"b", Some(&b"x\\"[..]))
        );
        let no_request = b"1.2.3.4 - - [03/Jul/2024:12:00:00 +0200] \"\\x16\\x03\" 400 0";
        assert!(parse(no_request).is_err());
    }
}
