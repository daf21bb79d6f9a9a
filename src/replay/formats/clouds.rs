//! Access logs of AWS: Application and Classic Load Balancers, CloudFront.

use std::net::IpAddr;

use sluicegate_limiter::Span;
use sluicegate_wire::Headers;

use super::durations::Unit;
use super::line_error::{LineError, bad};
use super::request::{Format, Request, TimeOf, add_header, head, request_line};
use super::texts::{Field, address, fields, unescaped};
use super::times::{is_date, of_text};

/// `TYPE TIME NAME CLIENT:PORT TARGET:PORT 0.000 0.001 0.000 STATUS STATUS RECEIVED SENT "METHOD URL VERSION" "AGENT" …`. The
/// time is that of the end; the time of the arrival stands further behind.
pub(super) fn application(line: &str) -> Result<Request, LineError> {
    let all: Vec<Field<'_>> = fields(line).collect();
    let [_, ended, rest @ ..] = all.as_slice() else { return bad("no log of an ALB") };
    // The type is in front of the fields of a Classic Load Balancer.
    let request = of_balancer(ended.text, rest, (Format::Alb, TimeOf::End))?;
    match all.get(21).map(|field| field.text).filter(|text| is_date(text)) {
        Some(arrived) => Ok(Request { time: of_text(arrived)?, time_of: TimeOf::Arrival, ..request }),
        None => Ok(request),
    }
}

/// The same of a Classic Load Balancer: without the type, and the time is that of the arrival.
pub(super) fn classic(line: &str) -> Result<Request, LineError> {
    let all: Vec<Field<'_>> = fields(line).collect();
    match all.as_slice() {
        [time, rest @ ..] if rest.len() >= 11 => of_balancer(time.text, rest, (Format::Elb, TimeOf::Arrival)),
        _ => {
            bad("no format that is known: it begins with a time, but is neither of sluicegate nor of an ELB")
        }
    }
}

fn of_balancer(
    time: &str,
    rest: &[Field<'_>],
    (format, time_of): (Format, TimeOf),
) -> Result<Request, LineError> {
    let [_name, client, _target, first, second, third, status, _, received, sent, request, behind @ ..] =
        rest
    else {
        return bad("it has fewer fields than a log of a load balancer");
    };
    let plain = unescaped(request.text);
    let (method, url) = request_line(&plain)?;
    let mut headers = Headers::new();
    if let Some(agent) = behind.first().filter(|field| field.quoted) {
        add_header(&mut headers, "user-agent", &unescaped(agent.text));
    }
    let (host, target) = of_url(url);
    let parts = head(method, target, host, headers)?;
    // -1 stands for a part that did not happen.
    let parts_of_time = [first, second, third].map(|field| field.text.parse::<f64>().unwrap_or(-1.0));
    let took: f64 = parts_of_time.into_iter().filter(|seconds| *seconds > 0.0).sum();
    let known = parts_of_time.into_iter().all(|seconds| seconds >= 0.0);
    let request = Request::new(format, (of_text(time)?, time_of), address(client.text)?, parts);
    let duration = Unit::Seconds.span(took).filter(|_| known);
    let received = received.text.parse().ok();
    Ok(Request { duration, received, ..request }.answered(status.text.parse().ok(), sent.text.parse().ok()))
}

/// Host and target of `https://api.test:443/a?b=c`.
fn of_url(url: &str) -> (Option<&str>, &str) {
    let Some((_, behind)) = url.split_once("://") else { return (None, url) };
    match behind.find('/') {
        Some(slash) => (Some(&behind[..slash]), &behind[slash..]),
        None => (Some(behind), "/"),
    }
}

/// The columns that a line `#Fields: date time …` of CloudFront names.
pub(super) fn columns(line: &str) -> Option<Vec<String>> {
    let names = line.strip_prefix("#Fields:")?;
    Some(names.split_whitespace().map(str::to_owned).collect())
}

/// The columns of a file without such a line.
const USUAL: &str = "date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) \
    cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes \
    time-taken x-forwarded-for";

/// A line of CloudFront, whose columns are divided by tabs; `None` if it does not look like one. The time is that of the end.
pub(super) fn cloud_front(line: &str, columns: Option<&[String]>) -> Option<Result<Request, LineError>> {
    let values: Vec<&str> = line.split('\t').collect();
    let named = |name: &str| {
        let at = match columns {
            Some(columns) => columns.iter().position(|column| column == name),
            None => USUAL.split_whitespace().position(|column| column == name),
        };
        at.and_then(|at| values.get(at).copied()).filter(|value| *value != "-")
    };
    if columns.is_none() && (values.len() < 12 || address(values[4]).is_err()) {
        return None;
    }
    Some(of_columns(&named))
}

fn of_columns<'a>(named: &dyn Fn(&str) -> Option<&'a str>) -> Result<Request, LineError> {
    let wanted = |name: &str| named(name).ok_or_else(|| LineError(format!("no `{name}`")));
    let time = of_text(&format!("{}T{}Z", wanted("date")?, wanted("time")?))?;
    let client: IpAddr = address(wanted("c-ip")?)?;
    let mut headers = Headers::new();
    // X-Forwarded-For is what the viewer sent: the viewer itself is `c-ip`.
    add_header(&mut headers, "referer", named("cs(Referer)").unwrap_or_default());
    // Blanks and the percent sign itself are encoded.
    let agent = named("cs(User-Agent)").unwrap_or_default().replace("%20", " ").replace("%2520", " ");
    add_header(&mut headers, "user-agent", &agent);
    let path = wanted("cs-uri-stem")?;
    let target = match named("cs-uri-query") {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let host = named("x-host-header").or_else(|| named("cs(Host)"));
    let parts = head(named("cs-method").unwrap_or("GET"), &target, host, headers)?;
    let number = |name: &str| named(name).and_then(|value| value.parse::<u64>().ok());
    let duration: Option<(Span, Unit)> = named("time-taken").and_then(|took| Unit::Seconds.parse(took));
    let request = Request::new(Format::CloudFront, (time, TimeOf::End), client, parts);
    Ok(Request { coarse: true, duration, received: number("cs-bytes"), ..request }
        .answered(number("sc-status"), number("sc-bytes")))
}
