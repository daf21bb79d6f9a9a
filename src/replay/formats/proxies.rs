//! The default formats of Envoy, of HAProxy and of this gateway.

use sluicegate_wire::Headers;

use super::durations::Unit;
use super::line_error::{LineError, bad};
use super::request::{Format, Request, TimeOf, add_header, head, request_line};
use super::texts::{Field, address, fields, quoted, unescaped};
use super::times::{of_haproxy, of_text};

fn number(field: Option<&Field<'_>>) -> Option<u64> {
    field?.text.parse().ok()
}

/// What Envoy writes in quotes, which it does not escape.
struct Quoted<'a> {
    forwarded: &'a str,
    agent: &'a str,
    host: &'a str,
    /// What follows the quotes.
    behind: &'a str,
}

/// The texts of `"X-FORWARDED-FOR" "AGENT" "ID" "HOST" "SERVER" …`: the agent is what stands between the first and the last three.
fn quoted_by_envoy(line: &str) -> Option<Quoted<'_>> {
    let (inner, behind) = line.trim_start().strip_prefix('"')?.rsplit_once('"')?;
    let (forwarded, rest) = inner.split_once("\" \"")?;
    let mut from_right = rest.rsplitn(4, "\" \"");
    let (_server, host, _id) = (from_right.next()?, from_right.next()?, from_right.next()?);
    Some(Quoted { forwarded, agent: from_right.next()?, host, behind })
}

/// `[TIME] "METHOD TARGET VERSION" STATUS FLAGS RECEIVED SENT MILLISECONDS UPSTREAM-MILLISECONDS "X-FORWARDED-FOR" "AGENT" "ID"
/// "HOST" "SERVER"`; Istio has three more fields behind the flags, and addresses at the end. The time is that of the arrival.
pub(super) fn envoy(line: &str) -> Result<Request, LineError> {
    let few = || LineError("it has fewer fields than the default format of Envoy".into());
    let (time, rest) = line[1..].split_once(']').ok_or_else(few)?;
    let (request, rest) = quoted(rest).ok_or_else(few)?;
    let plain = unescaped(request);
    let (method, target) = request_line(&plain)?;
    let mut words = rest.split_whitespace();
    let (status, _flags) = words.next().zip(words.next()).ok_or_else(few)?;
    // Istio has the details of the answer and of the connection, and in quotes the reason of a failure, in front of the numbers.
    let is_istio = words.next().is_some_and(|word| word.parse::<u64>().is_err());
    let rest = if is_istio { quoted(rest).ok_or_else(few)?.1 } else { rest };
    let (numbers, texts) = rest.split_at(rest.find('"').ok_or_else(few)?);
    let numbers: Vec<&str> = numbers.split_whitespace().skip(if is_istio { 0 } else { 2 }).collect();
    let [received, sent, took, ..] = numbers.as_slice() else { return Err(few()) };
    let Quoted { forwarded, agent, host, behind } = quoted_by_envoy(texts).ok_or_else(few)?;
    let mut headers = Headers::new();
    add_header(&mut headers, "user-agent", agent);
    // Istio names the client; otherwise it is the last that X-Forwarded-For names.
    let client = match behind.split_whitespace().nth(3).and_then(|word| address(word).ok()) {
        Some(client) => {
            add_header(&mut headers, "x-forwarded-for", forwarded);
            client
        }
        None => {
            let (before, last) = forwarded.rsplit_once(',').unwrap_or(("", forwarded));
            add_header(&mut headers, "x-forwarded-for", before);
            match address(last.trim()) {
                Ok(client) => client,
                Err(_) => {
                    return bad(
                        "it names no client: X-Forwarded-For is empty; let Envoy `use_remote_address`",
                    );
                }
            }
        }
    };
    let parts = head(method, target, Some(host), headers)?;
    let request = Request::new(Format::Envoy, (of_text(time)?, TimeOf::Arrival), client, parts);
    Ok(Request { duration: Unit::Millis.parse(took), received: received.parse().ok(), ..request }
        .answered(status.parse().ok(), sent.parse().ok()))
}

/// `ADDRESS:PORT [TIME] FRONTEND BACKEND/SERVER TR/Tw/Tc/Tr/Ta STATUS BYTES - - ---- … {…} "METHOD TARGET VERSION"`. The time is
/// that of the arrival, without a zone.
pub(super) fn haproxy(line: &str) -> Result<Request, LineError> {
    let all: Vec<Field<'_>> = fields(line).collect();
    let [client, time, _frontend, _backend, times, status, bytes, behind @ ..] = all.as_slice() else {
        return bad("it has fewer fields than `option httplog` of HAProxy writes");
    };
    let time = of_haproxy(time.text.trim_matches(['[', ']']))?;
    let Some(request) = behind.iter().rfind(|field| field.quoted) else { return bad("no \"request\"") };
    let plain = unescaped(request.text);
    let (method, target) = request_line(&plain)?;
    if method.starts_with('<') {
        return bad("HAProxy could not read the request"); // <BADREQ>
    }
    let took = times.text.rsplit('/').next().unwrap_or_default().trim_start_matches('+');
    let parts = head(method, target, None, Headers::new())?;
    let request = Request::new(Format::HaProxy, (time, TimeOf::Arrival), address(client.text)?, parts);
    let bytes = bytes.text.trim_start_matches('+').parse().ok();
    Ok(Request { duration: Unit::Millis.parse(took), ..request }.answered(number(Some(status)), bytes))
}

/// `TIME ADDRESS METHOD HOST PATH STATUS 254B 0.4ms …`, which has no query.
pub(super) fn short(line: &str) -> Result<Request, LineError> {
    let all: Vec<Field<'_>> = fields(line).collect();
    let [time, client, method, host, path, status, bytes, took, ..] = all.as_slice() else {
        return bad("it has fewer fields than the short format of sluicegate");
    };
    let parts = head(method.text, &unescaped(path.text), Some(&unescaped(host.text)), Headers::new())?;
    let time = (of_text(time.text)?, TimeOf::Arrival);
    let duration = took.text.strip_suffix("ms").and_then(|took| Unit::Millis.parse(took));
    let bytes = bytes.text.strip_suffix('B').and_then(|bytes| bytes.parse().ok());
    let request = Request::new(Format::Short, time, address(client.text)?, parts);
    Ok(Request { duration, ..request }.answered(number(Some(status)), bytes))
}

#[cfg(test)]
mod tests {
    use super::super::LineParser;

    fn read_line(line: &str) -> String {
        let request = LineParser::default().parse(line.as_bytes()).unwrap().unwrap();
        let text =
            |name| request.parts.headers.get(name).map(|value| String::from_utf8_lossy(value).into_owned());
        format!(
            "{} {} {} {} {} {:?} {:?} {:?} {:?} {:?}",
            request.format.name(),
            request.time.as_nanos() / 1_000_000,
            request.client,
            request.parts.method,
            request.parts.target,
            text("host").unwrap_or_default(),
            text("x-forwarded-for").unwrap_or_default(),
            request.duration.map(|(span, _)| span.as_nanos() / 1_000),
            request.status.map(|status| status.as_u16()),
            request.bytes,
        )
    }

    #[test]
    fn lines_of_proxies_are_read() {
        for (line, expected) in [
            (
                "[2024-07-03T10:00:00.310Z] \"POST /v1/a?b=c HTTP/2\" 204 - 154 7 226 100 \"203.0.113.7,10.0.35.28\" \
                 \"agent\" \"cc21\" \"api.test\" \"10.0.2.1:80\"",
                "Envoy 1720000800310 10.0.35.28 POST /v1/a?b=c \"api.test\" \"203.0.113.7\" Some(226000) Some(204) Some(7)",
            ),
            (
                "[2024-07-03T10:00:00.310Z] \"GET / HTTP/1.1\" 200 - via_upstream - \"-\" 0 7 2 1 \"-\" \"curl\" \"id\" \
                 \"api.test\" \"10.0.2.1:80\" inbound|80|| 127.0.0.6:1 10.0.2.1:80 10.0.0.9:5 - default",
                "Envoy 1720000800310 10.0.0.9 GET / \"api.test\" \"\" Some(2000) Some(200) Some(7)",
            ),
            (
                "10.0.1.2:33317 [03/Jul/2024:10:00:00.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 \
                 0/0 {1wt.eu} {} \"GET /index.html HTTP/1.1\"",
                "HAProxy HTTP 1720000800655 10.0.1.2 GET /index.html \"\" \"\" Some(109000) Some(200) Some(2750)",
            ),
            (
                "<134>Jul  3 10:00:00 lb haproxy[14389]: 10.0.1.2:33317 [03/Jul/2024:10:00:00.655] http-in static/srv1 \
                 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 \"GET /index.html HTTP/1.1\"",
                "HAProxy HTTP 1720000800655 10.0.1.2 GET /index.html \"\" \"\" Some(109000) Some(200) Some(2750)",
            ),
            (
                "2024-07-03T10:00:00.123Z 203.0.113.9 GET api.test /v1/a 429 254B 0.4ms route=api reason=limit",
                "short format of sluicegate 1720000800123 203.0.113.9 GET /v1/a \"api.test\" \"\" Some(400) Some(429) \
                 Some(254)",
            ),
        ] {
            assert_eq!(read_line(line), expected);
        }
        let nobody = "[2024-07-03T10:00:00.310Z] \"GET / HTTP/1.1\" 200 - 0 7 2 1 \"-\" \"curl\" \"id\" \"a.test\" \"-\"";
        let error = LineParser::default().parse(nobody.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("use_remote_address"));
    }
}
