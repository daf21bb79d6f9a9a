//! Lines of JSON: ours, and those of others.

use std::borrow::Cow;
use std::collections::HashMap;
use std::str::FromStr;

use http::{HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use sluicegate_wire::Headers;

use super::durations::Unit;
use super::line_error::{LineError, bad};
use super::members::{Members, recognized, unknown};
use super::request::{Format, Request, TimeOf, head};
use super::texts::address;
use super::times::of_text;
use sluicegate_auth::LogIdentity;

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
    consumer: Option<String>,
    plan: Option<String>,
    user: Option<String>,
    limit: Option<String>,
    key: Option<String>,
    user_agent: Option<String>,
    referer: Option<String>,
}

fn get() -> String {
    "GET".into()
}

/// Parses a line; `None` if it is about a change of a rule or a pardon. `last` is the format of the line before.
pub(super) fn parse(
    line: &str,
    members: Option<&Members>,
    last: &mut Option<Format>,
) -> Result<Option<Request>, LineError> {
    #[derive(Deserialize)]
    struct Kind<'a> {
        #[serde(borrow)]
        kind: Cow<'a, str>,
    }
    let whole = || serde_json::from_str(line).map_err(|error| LineError(error.to_string()));
    if let Some(members) = members {
        return members.request(&whole()?).map(Some);
    }
    if last.is_none_or(|last| last == Format::Json) {
        match serde_json::from_str(line) {
            Ok(fields) => {
                *last = Some(Format::Json);
                return own(&fields).map(Some);
            }
            Err(_)
                if line.contains("\"kind\"")
                    && serde_json::from_str(line).is_ok_and(|Kind { kind }| is_event(&kind)) =>
            {
                return Ok(None);
            }
            Err(_) => {}
        }
    }
    let value = whole()?;
    match recognized(&value, *last) {
        Some(members) => {
            *last = Some(members.format());
            members.request(&value).map(Some)
        }
        None if last.is_some_and(|last| last != Format::Json) => {
            *last = None;
            parse(line, None, last)
        }
        None => match serde_json::from_str::<JsonLine<'_>>(line) {
            Ok(_) => bad("no request"),
            // The place in the line says nothing to people.
            Err(error) => unknown(&value, error.to_string().split(" at line ").next().unwrap_or_default()),
        },
    }
}

/// Whether lines of this kind in our access log are about something else than requests.
fn is_event(kind: &str) -> bool {
    matches!(kind, "rule" | "pardon")
}

fn own(fields: &JsonLine<'_>) -> Result<Request, LineError> {
    let mut headers = Vec::new();
    for (name, value) in &fields.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) else {
            return bad("a header has a name or value that HTTP does not allow");
        };
        headers.push((name, value));
    }
    let duration = match number::<f64>("duration", fields.duration)? {
        Some(seconds) => match Unit::Seconds.span(seconds) {
            None => return bad("`duration` is not a number of seconds"),
            some => some,
        },
        None => None,
    };
    let underscored = headers.iter().any(|(name, _)| name.as_str().contains('_'));
    let mut headers: Headers = headers.into_iter().collect();
    if underscored {
        headers.note_underscore();
    }
    for (name, value) in [("user-agent", &fields.user_agent), ("referer", &fields.referer)] {
        if let Some(value) = value.as_deref().filter(|_| !headers.contains_key(name)) {
            super::request::add_header(&mut headers, name, value);
        }
    }
    let parts = head(&fields.method, &fields.path, fields.host.as_deref(), headers)?;
    let status = number("status", fields.status)?.map(StatusCode::from_u16).transpose();
    let status = status.map_err(|_| LineError("`status` is not a status".into()))?;
    let time = of_text(fields.time.get().trim_matches('"'))?;
    let identity = LogIdentity {
        consumer: fields.consumer.clone(),
        plan: fields.plan.clone(),
        user: fields.user.clone(),
        key: fields.limit.clone().zip(fields.key.clone()),
    };
    let request = Request::new(Format::Json, (time, TimeOf::Arrival), address(&fields.client_ip)?, parts);
    Ok(Request {
        duration,
        status,
        bytes: number("bytes", fields.bytes)?,
        received: number("bytes_in", fields.bytes_in)?,
        identity: (identity != LogIdentity::default()).then(|| Box::new(identity)),
        ..request
    })
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

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::super::{Known, LineParser};
    use super::*;

    fn parse(line: &str) -> Result<Request, LineError> {
        LineParser::default().parse(line.as_bytes()).map(|request| request.unwrap())
    }

    #[test]
    fn numbers_may_be_in_quotes() {
        let line = r#"{"time": "5", "client_ip": "::1", "path": "/", "status": "404", "bytes": "7", "bytes_in": "-",
            "duration": "0.5"}"#;
        let request = parse(line).unwrap();
        assert_eq!((request.status.unwrap().as_u16(), request.bytes, request.received), (404, Some(7), None));
        assert_eq!(request.duration.map(|(span, _)| span.as_nanos()), Some(500_000_000));
        for wrong in [r#""4o4""#, "true", "-1", r#""1000""#] {
            let line = format!(r#"{{"time": 5, "client_ip": "::1", "path": "/", "status": {wrong}}}"#);
            assert!(parse(&line).is_err(), "{wrong}");
        }
        let json = b"{\"time\": 5, \"client_ip\": \"::1\", \"path\": \"/\", \"headers\": {\"user-agent\": \"\xff\"}}";
        let request = LineParser::default().parse(json).unwrap().unwrap();
        assert!(request.parts.headers.contains_key("user-agent"));
    }

    #[test]
    fn an_unknown_form_names_its_members() {
        let error = parse(r#"{"ts": 5, "ip": "::1", "url": "/"}"#).unwrap_err().to_string();
        assert!(error.contains("its members are ip, ts, url") && error.contains("--map"), "{error}");
    }

    #[test]
    fn lines_about_rules_and_pardons_are_no_requests() {
        for line in [
            r#"{"kind": "rule", "id": "a", "time": "2026-11-23T07:31:50Z"}"#,
            r#"{"kind": "pardon", "key": "k"}"#,
        ] {
            assert!(LineParser::default().parse(line.as_bytes()).unwrap().is_none());
        }
    }

    #[test]
    fn the_sender_is_who_the_log_names() {
        let line = r#"{"time": 5, "client_ip": "::1", "path": "/", "consumer": "acme", "plan": "pro", "limit": "per-key",
            "key": "api_key:sha256:00"}"#;
        let identity = parse(line).unwrap().identity.unwrap();
        assert_eq!((identity.consumer.as_deref(), identity.plan.as_deref()), (Some("acme"), Some("pro")));
        assert_eq!(identity.key, Some(("per-key".into(), "api_key:sha256:00".into())));
        assert_eq!(parse(r#"{"time": 5, "client_ip": "::1", "path": "/"}"#).unwrap().identity, None);
    }

    #[test]
    fn the_default_host_applies_only_to_requests_without_host() {
        let assumed = HeaderValue::from_static("assumed.test");
        let host = |line: &str| {
            let known = Known { host: Some(assumed.clone()), ..Known::default() };
            let request = LineParser::new(known).parse(line.as_bytes()).unwrap().unwrap();
            sluicegate_route::host(&request.parts).unwrap().into_owned()
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

    #[test]
    fn json_of_others_is_recognized() {
        for (line, format, micros) in [
            (
                r#"{"ClientHost":"203.0.113.9","DownstreamStatus":200,"DownstreamContentSize":5,"Duration":12000000,
                   "RequestHost":"api.test","RequestMethod":"GET","RequestPath":"/a?b=c",
                   "StartUTC":"2024-07-03T10:00:00.25Z","request_User-Agent":"agent"}"#,
                Format::Traefik,
                12_000,
            ),
            (
                r#"{"level":"info","ts":1720000800.25,"logger":"http.log.access","request":{"remote_ip":"203.0.113.9",
                   "client_ip":"203.0.113.9","method":"GET","host":"api.test","uri":"/a?b=c",
                   "headers":{"User-Agent":["agent"]}},"bytes_read":0,"duration":0.012,"size":5,"status":200}"#,
                Format::Caddy,
                12_000,
            ),
            (
                r#"{"client_ip":"203.0.113.9","started_at":1720000800250,"latencies":{"request":12},
                   "request":{"method":"GET","uri":"/a?b=c","headers":{"host":"api.test","user-agent":"agent"}},
                   "response":{"status":200,"size":5}}"#,
                Format::Kong,
                12_000,
            ),
            (
                r#"{"msec":"1720000800.250","remote_addr":"203.0.113.9","request":"GET /a?b=c HTTP/1.1","status":"200",
                   "http_host":"api.test","body_bytes_sent":"5","request_time":"0.012","http_user_agent":"agent"}"#,
                Format::Nginx,
                12_000,
            ),
        ] {
            let request = parse(line).unwrap();
            assert_eq!(request.format, format);
            assert_eq!(request.time.as_nanos(), 1_720_000_800_250_000_000, "{format:?}");
            assert_eq!(request.client.to_string(), "203.0.113.9");
            assert_eq!(request.parts.target.to_string(), "/a?b=c");
            let header = |name| request.parts.headers.get(name).map(String::from_utf8_lossy);
            assert_eq!(
                (header("host").as_deref(), header("user-agent").as_deref()),
                (Some("api.test"), Some("agent"))
            );
            assert_eq!((request.status.map(|status| status.as_u16()), request.bytes), (Some(200), Some(5)));
            assert_eq!(request.duration.map(|(span, _)| span.as_nanos() / 1_000), Some(micros), "{format:?}");
        }
    }
}
