//! The combined format of nginx and Apache, and what others have made of it.

use sluicegate_limiter::Span;
use sluicegate_wire::Headers;

use super::LineParser;
use super::durations::{DurationField, Unit, in_field, is_unknown_number};
use super::line_error::{LineError, bad};
use super::request::{Format, Request, TimeOf, add_header, head, request_line};
use super::texts::{Field, address, fields, leading_number, quoted, unescaped};

/// What follows the user agent.
struct Behind {
    format: Format,
    duration: Option<(Span, Unit)>,
    unknown_number: bool,
}

impl LineParser {
    /// `ADDRESS IDENT USER [TIME] "METHOD TARGET VERSION" STATUS BYTES "REFERER" "AGENT" …`, and the shorter `common`. A host
    /// may stand in front.
    pub(super) fn combined(&mut self, line: &str) -> Result<Request, LineError> {
        let Some((first, rest)) = line.split_once(' ') else { return bad(unknown(line)) };
        let (host, client, rest) = match address(first) {
            Ok(client) => (None, client, rest),
            Err(error) => match rest.split_once(' ').map(|(second, rest)| (address(second), rest)) {
                Some((Ok(client), rest)) => (Some(first), client, rest),
                _ if !line.contains('[') || is_error_log(line) => return bad(unknown(line)),
                _ => return Err(error),
            },
        };
        let Some((time, rest)) = rest.split_once('[').and_then(|(_, rest)| rest.split_once(']')) else {
            return bad("no [time]");
        };
        let time = self.stamp(time)?;
        let (request, mut rest) = quoted(rest).unwrap_or_default();
        let plain = unescaped(request);
        let (method, target) = request_line(&plain)?;
        let status = leading_number(&mut rest).and_then(|status| status.parse().ok());
        let bytes = leading_number(&mut rest).and_then(|bytes| bytes.parse().ok());
        let mut headers = Headers::new();
        for name in ["referer", "user-agent"] {
            let Some((value, behind)) = quoted(rest) else { break };
            rest = behind;
            add_header(&mut headers, name, &unescaped(value));
        }
        let Behind { format, duration, unknown_number } = match rest.trim().is_empty() {
            true => Behind { format: Format::Combined, duration: None, unknown_number: false },
            false => behind(rest, self.known.duration, &mut headers),
        };
        let format = if host.is_some() { Format::VhostCombined } else { format };
        // Traefik and Apache write when a request arrived, nginx when it ended. Apache is known by what only it writes: several hosts,
        // and durations in microseconds.
        let is_micros = matches!(duration, Some((_, Unit::Micros)));
        let time_of = match format {
            Format::TraefikText | Format::VhostCombined => TimeOf::Arrival,
            _ if is_micros => TimeOf::Arrival,
            _ => TimeOf::End,
        };
        let request = Request::new(format, (time, time_of), client, head(method, target, host, headers)?);
        Ok(Request { coarse: true, duration, unknown_number, ..request }.answered(status, bytes))
    }
}

/// Reads what follows the user agent.
fn behind(rest: &str, asked: Option<DurationField>, headers: &mut Headers) -> Behind {
    let all: Vec<Field<'_>> = fields(rest).collect();
    // ingress-nginx: the length of the request, its duration, and the upstream in brackets.
    if let [length, duration, upstream, ..] = all.as_slice()
        && is_unknown_number(length)
        && upstream.text.starts_with('[')
        && let Some(duration) = in_field(duration)
    {
        return Behind { format: Format::IngressNginx, duration: Some(duration), unknown_number: false };
    }
    // Traefik: the number of the request, its router and server, and its duration.
    if let [number, Field { quoted: true, .. }, Field { quoted: true, .. }, duration] = all.as_slice()
        && is_unknown_number(number)
        && let Some(duration) = in_field(duration).filter(|(_, unit)| *unit == Unit::Millis)
    {
        return Behind { format: Format::TraefikText, duration: Some(duration), unknown_number: false };
    }
    let is_list = |field: &&Field<'_>| {
        field.quoted && !field.text.is_empty() && field.text.split(',').all(|one| address(one.trim()).is_ok())
    };
    if let Some(list) = all.iter().find(is_list) {
        add_header(headers, "x-forwarded-for", list.text);
    }
    let duration = match asked {
        Some(DurationField { number, unit }) => all.get(number - 1).and_then(|field| unit.parse(field.text)),
        None => all.iter().find_map(in_field),
    };
    let unknown_number =
        duration.is_none() && all.iter().any(|field| !field.quoted && is_unknown_number(field));
    Behind { format: Format::Combined, duration, unknown_number }
}

/// Whether a line is of the error log of nginx or Apache.
fn is_error_log(line: &str) -> bool {
    let levels = ["[error]", "[warn]", "[notice]", "[crit]", "[alert]", "[emerg]", "[info]"];
    levels.iter().any(|level| line.contains(level)) || line.contains(":error]")
}

/// Why a line has no format that is known, as far as one can tell.
fn unknown(line: &str) -> String {
    if is_error_log(line) {
        return "looks like an error log; replay reads access logs".into();
    }
    "no format that is known; `sluicegate replay --help` names them, and JSON lines of any kind can be mapped with --map".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Request, LineError> {
        LineParser::default().parse(line.as_bytes()).map(|request| request.unwrap())
    }

    #[test]
    fn the_combined_format_is_parsed() {
        let line = r#"203.0.113.9 - ann [03/Jul/2024:12:00:00 +0200] "GET /a?b=c HTTP/1.1" 200 512 "-" "Mozilla \"5\"""#;
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
        assert_eq!((request.format, request.time_of, request.coarse), (Format::Combined, TimeOf::End, true));
    }

    #[test]
    fn invalid_lines_are_errors() {
        for line in [
            &b"hello"[..],
            b"hello world",
            b"1.2.3.4 - - [x] \"GET / HTTP/1.1\" 200 1",
            b"{\"time\": 1}",
            b"\xff\xff",
            b"",
        ] {
            assert!(LineParser::default().parse(line).is_err(), "{line:?}");
        }
        for error in [
            "2024/07/03 12:00:00 [error] 7#7: *1 open() failed",
            "[Wed Jul 03 12:00:00.1 2024] [core:error] [pid 7] [client 1.2.3.4:5] no such file",
        ] {
            assert!(parse(error).unwrap_err().to_string().contains("error log"), "{error}");
        }
        let quoted =
            br#"203.0.113.9 - - [03/Jul/2024:12:00:00 +0200] "GET /a\x22b HTTP/1.1" 200 5 "-" "x\x5C""#;
        let request = LineParser::default().parse(quoted).unwrap().unwrap();
        assert_eq!(
            (request.parts.target.path(), request.parts.headers.get("user-agent")),
            ("/a\"b", Some(&b"x\\"[..]))
        );
        assert!(parse("1.2.3.4 - - [03/Jul/2024:12:00:00 +0200] \"\\x16\\x03\" 400 0").is_err());
    }

    #[test]
    fn what_follows_the_user_agent_is_told_apart() {
        let line = |behind: &str| {
            let text = format!(
                "192.0.2.1 - - [03/Jul/2024:12:00:00 +0200] \"GET / HTTP/1.1\" 200 5 \"-\" \"agent\" {behind}"
            );
            parse(&text).unwrap()
        };
        let micros = |request: &Request| request.duration.map(|(span, _)| span.as_nanos() / 1_000);
        for (behind, format, duration, unknown) in [
            ("", Format::Combined, None, false),
            ("0.120", Format::Combined, Some(120_000), false),
            ("\"0.120\"", Format::Combined, Some(120_000), false),
            ("\"2.31\"", Format::Combined, None, false),
            ("rt=0.120 uct=\"0.000\"", Format::Combined, Some(120_000), false),
            // %D of Apache, or anything else.
            ("5123", Format::Combined, None, true),
            ("\"203.0.113.7, 10.0.0.1\" 0.120", Format::Combined, Some(120_000), false),
            (
                "812 0.120 [default-api-80] [] 10.0.0.5:8080 5 0.119 200 0a1b",
                Format::IngressNginx,
                Some(120_000),
                false,
            ),
            ("17 \"api@docker\" \"http://10.0.0.5:80\" 12ms", Format::TraefikText, Some(12_000), false),
        ] {
            let request = line(behind);
            let found = (request.format, micros(&request), request.unknown_number);
            assert_eq!(found, (format, duration, unknown), "{behind}");
        }
        let forwarded = line("\"203.0.113.7, 10.0.0.1\"");
        assert_eq!(forwarded.parts.headers.get("x-forwarded-for"), Some(&b"203.0.113.7, 10.0.0.1"[..]));
        let text =
            "192.0.2.1 - - [03/Jul/2024:12:00:00 +0200] \"GET / HTTP/1.1\" 200 5 \"-\" \"agent\" x 5123";
        let duration = Some(DurationField { number: 2, unit: Unit::Micros });
        let known = super::super::Known { duration, ..Default::default() };
        let request = LineParser::new(known).parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(micros(&request), Some(5_123));
        let vhost = format!("api.test:443 {text}");
        let request = parse(&vhost).unwrap();
        assert_eq!(
            (request.format, request.parts.headers.get("host")),
            (Format::VhostCombined, Some(&b"api.test:443"[..]))
        );
    }

    #[test]
    fn numbers_may_be_in_quotes_or_missing() {
        let line = r#"::1 - - [03/Jul/2024:12:00:00 +0200] "GET / HTTP/1.1" "404" "7" "http://a" "agent""#;
        let request = parse(line).unwrap();
        assert_eq!((request.status.unwrap().as_u16(), request.bytes), (404, Some(7)));
        assert_eq!(request.parts.headers.get("referer"), Some(&b"http://a"[..]));
        let none = r#"::1 - - [03/Jul/2024:12:00:00 +0200] "GET / HTTP/1.1" - - "-" "agent""#;
        let request = parse(none).unwrap();
        assert_eq!((request.status, request.bytes), (None, None));
        assert_eq!(request.parts.headers.get("user-agent"), Some(&b"agent"[..]));
    }

    #[test]
    fn an_invalid_byte_affects_only_its_field() {
        let mut parser = LineParser::default();
        let agent = b"::1 - - [03/Jul/2024:12:00:00 +0200] \"GET /a HTTP/1.1\" 200 5 \"-\" \"a\xffb\"";
        assert_eq!(parser.parse(agent).unwrap().unwrap().parts.target.path(), "/a");
        let target = b"::1 - - [03/Jul/2024:12:00:00 +0200] \"GET /a\xff HTTP/1.1\" 200 5";
        assert!(parser.parse(target).unwrap_err().to_string().contains("not UTF-8"));
    }
}
