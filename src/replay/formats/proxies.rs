//! The default formats of Envoy, of HAProxy and of this gateway.

use sluicegate_wire::Headers;

use super::durations::Unit;
use super::request::{Format, Request, TimeOf, add_header, head, request_line};
use super::texts::{Field, address, fields, unescaped};
use super::times::{is_date, of_haproxy, of_text};
use super::{LineError, bad};

fn number(field: Option<&Field<'_>>) -> Option<u64> {
    field?.text.parse().ok()
}

/// `[TIME] "METHOD TARGET VERSION" STATUS FLAGS RECEIVED SENT MILLISECONDS UPSTREAM-MILLISECONDS "X-FORWARDED-FOR" "AGENT" "ID"
/// "HOST" "SERVER"`; Istio has three more fields behind the flags, and addresses at the end. The time is that of the arrival.
pub(super) fn envoy(line: &str) -> Result<Request, LineError> {
    let all: Vec<Field<'_>> = fields(line).collect();
    let [time, request, status, _flags, behind @ ..] = all.as_slice() else { return bad("no log of Envoy") };
    let time = time.text.trim_matches(['[', ']']);
    if !is_date(time) {
        return bad(format!("`{time}` is not a time such as 2026-11-27T06:00:00.000Z"));
    }
    let plain = unescaped(request.text);
    let (method, target) = request_line(&plain)?;
    let behind = if number(behind.first()).is_some() { behind } else { behind.get(3..).unwrap_or_default() };
    let [received, sent, took, _of_upstream, forwarded, agent, _id, host, _server, rest @ ..] = behind else {
        return bad("it has fewer fields than the default format of Envoy");
    };
    let mut headers = Headers::new();
    add_header(&mut headers, "user-agent", &unescaped(agent.text));
    // Istio names the client; otherwise it is the last that X-Forwarded-For names.
    let client = match rest.get(3).and_then(|field| address(field.text).ok()) {
        Some(client) => {
            add_header(&mut headers, "x-forwarded-for", forwarded.text);
            client
        }
        None => {
            let (before, last) = forwarded.text.rsplit_once(',').unwrap_or(("", forwarded.text));
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
    let host = Some(unescaped(host.text));
    let parts = head(method, target, host.as_deref(), headers)?;
    let request = Request::new(Format::Envoy, (of_text(time)?, TimeOf::Arrival), client, parts);
    let duration = Unit::Millis.parse(took.text);
    Ok(Request { duration, received: number(Some(received)), ..request }
        .answered(number(Some(status)), number(Some(sent))))
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

    fn told(line: &str) -> String {
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
            assert_eq!(told(line), expected);
        }
        let nobody = "[2024-07-03T10:00:00.310Z] \"GET / HTTP/1.1\" 200 - 0 7 2 1 \"-\" \"curl\" \"id\" \"a.test\" \"-\"";
        let error = LineParser::default().parse(nobody.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("use_remote_address"));
    }
}
