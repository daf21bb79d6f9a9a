//! Validates `telemetry`.

use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::checks::{between, header_name, in_range, missing, secret, value};
use super::http_url::{Words, ca_needs_tls, http_url};
use crate::language::secret::Secret;
use crate::model::telemetry::OtlpConfig;
use crate::raw::telemetry::{RawOtlp, RawTelemetry};
use crate::read::at::{At, Folder};
use crate::read::report::{Mistake, Report};

const INTERVAL: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(10);
const QUEUE: u64 = 2_048;
const NAME: &str = "sluicegate";
const MAX_NAME: usize = 256;
const WORDS: Words = Words { example: "http://127.0.0.1:4318", of: "a collector", risk: None };
/// Headers that the gateway writes itself, or that make the message another.
const OWN: [&str; 8] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// The collector; `None` if there is none, or if it is wrong, which is reported.
pub(super) fn otlp(
    raw: Option<&At<RawTelemetry>>,
    folder: Folder<'_>,
    report: &mut Report,
) -> Option<OtlpConfig> {
    let raw = raw?;
    let Some(At { at, value: raw }) = &raw.value.otlp else {
        missing(raw.at, "`telemetry`", ("otlp", "{url: http://127.0.0.1:4318}"), &raw.value.wrong, report);
        return None;
    };
    let (second, hour) = ((Duration::from_secs(1), "1s"), (Duration::from_secs(3_600), "1h"));
    let time = |text: Option<&At<String>>, field, usual, bounds: [_; 2], report: &mut Report| {
        text.map_or(Some(usual), |text| between(text, field, bounds[0], bounds[1], report))
    };
    let interval = time(raw.interval.as_ref(), "interval", INTERVAL, [second, hour], report);
    let bounds = [(Duration::from_millis(10), "10ms"), (Duration::from_secs(60), "1min")];
    let timeout = time(raw.timeout.as_ref(), "timeout", TIMEOUT, bounds, report);
    let queue =
        raw.queue.as_ref().map_or(Some(QUEUE), |count| in_range(count, 64..=1_000_000, "queue", report));
    let service_name =
        raw.service_name.as_ref().map_or(Some(NAME.to_owned()), |text| service_name(text, report));
    let ca = raw.ca.as_ref().map(|path| folder.content(path, report));
    let headers = headers(raw, folder, report);
    let Some(text) = &raw.url else {
        missing(*at, "`telemetry.otlp`", ("url", WORDS.example), &raw.wrong, report);
        return None;
    };
    let url = value(text, report, |text| match text.contains('?') {
        true => Err(Mistake::new("the URL of a collector has no query")),
        false => http_url(text, &WORDS),
    })?;
    ca_needs_tls(raw.ca.as_ref(), &url, report);
    if !url.tls && !url.is_here() && !headers.is_empty() {
        let problem = text.problem("the headers go to the collector in the clear");
        report.warning(problem.help("use https://, or leave out `headers`"));
    }
    Some(OtlpConfig {
        url,
        ca: ca.flatten(),
        headers,
        traces: raw.traces.as_ref().is_none_or(|flag| flag.value),
        metrics: raw.metrics.as_ref().is_none_or(|flag| flag.value),
        interval: interval?,
        timeout: timeout?,
        service_name: service_name?,
        queue: queue? as usize,
    })
}

fn service_name(text: &At<String>, report: &mut Report) -> Option<String> {
    value(text, report, |text| match text.len() {
        1..=MAX_NAME if !text.contains(char::is_control) => Ok(text.to_owned()),
        _ => Err(Mistake::new(format!(
            "`service_name` has between 1 and {MAX_NAME} characters, none of them a control character"
        ))),
    })
}

fn headers(raw: &RawOtlp, folder: Folder<'_>, report: &mut Report) -> Vec<(HeaderName, Secret)> {
    let mut headers: Vec<(HeaderName, Secret)> = Vec::new();
    for (name, text) in raw.headers.iter().flat_map(|headers| &headers.value.0) {
        let Some(header) = value(name, report, header_name) else { continue };
        if OWN.contains(&header.as_str()) {
            report.error(name.problem(format!("the gateway writes `{}` itself", name.value)));
        } else if headers.iter().any(|(other, _)| *other == header) {
            report.error(name.problem(format!("`{}` is given twice", name.value)));
        } else if let Some(text) = secret(text.as_ref(), folder, report) {
            if HeaderValue::try_from(text.reveal()).is_err() {
                report
                    .error(name.problem(format!("`{}` has characters that no header may have", name.value)));
            }
            headers.push((header, text));
        }
    }
    headers
}
