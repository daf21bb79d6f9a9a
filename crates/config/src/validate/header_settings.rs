//! Which headers of rate limits are written, and how names of headers are.

use crate::model::route::{HeaderFamilies, UpstreamHeaders};
use crate::raw::headers::RawHeaders;
use crate::read::OneOrMany;
use crate::read::at::At;
use crate::read::report::{Problem, Report};

use super::checks::{empty, header_name, value, word};

/// The most names of `header_case`.
const MAX_NAMES: usize = 64;

/// Names of headers in the case in which they are written.
pub(super) fn header_case(raw: Option<&At<OneOrMany<At<String>>>>, report: &mut Report) -> Vec<String> {
    let Some(raw) = raw else { return Vec::new() };
    if raw.value.0.is_empty() {
        empty(raw.at, "header_case", "leave it out for names in lower case", report);
    }
    let mut names: Vec<String> = Vec::new();
    for text in &raw.value.0 {
        if value(text, report, header_name).is_none() {
            continue;
        }
        match names.iter().any(|known| known.eq_ignore_ascii_case(&text.value)) {
            true => report.error(text.problem(format!("the header `{}` is given twice", text.value))),
            false => names.push(text.value.clone()),
        }
    }
    if names.len() > MAX_NAMES {
        report.error(Problem::new(raw.at, format!("`header_case` has at most {MAX_NAMES} names")));
    }
    names
}

/// The rate limit headers that are written, and those in force where nothing is written.
pub(super) fn rate_limit_headers(
    raw: Option<&At<RawHeaders>>,
    default: HeaderFamilies,
    report: &mut Report,
) -> HeaderFamilies {
    let Some(RawHeaders(raw)) = raw.map(|raw| &raw.value) else { return default };
    let mut headers = default;
    if let Some(families) = &raw.families {
        (headers.x_ratelimit, headers.ietf, headers.retry_after) = (false, false, false);
        for text in &families.value {
            match word(text, "header family", &[("x-ratelimit", 0), ("ietf", 1), ("retry-after", 2)], report)
            {
                Some(0) => headers.x_ratelimit = true,
                Some(1) => headers.ietf = true,
                Some(_) => headers.retry_after = true,
                None => {}
            }
        }
    }
    let words = [
        ("replace", UpstreamHeaders::Replace),
        ("keep", UpstreamHeaders::Keep),
        ("rename", UpstreamHeaders::Rename),
    ];
    if let Some(upstream) =
        raw.upstream.as_ref().and_then(|text| word(text, "headers.upstream", &words, report))
    {
        headers.upstream = upstream;
    }
    headers
}
