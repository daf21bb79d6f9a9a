//! Validates `auth.introspection` and `auth.check`.

use std::time::Duration;

use http::{HeaderName, header};

use super::checks::{between, empty, header_name, in_range, missing, secret, value, word};
use super::http_url::{Words, ca_needs_tls, http_url};
use super::jwt::forward;
use crate::model::outside::{CheckCacheConfig, CheckConfig, IntrospectionConfig, OnFailure, ServiceConfig};
use crate::raw::outside::{RawCheck, RawCheckCache, RawIntrospection};
use crate::raw::scalars::RawCount;
use crate::read::OneOrMany;
use crate::read::at::{At, Folder};
use crate::read::is_wrong;
use crate::read::report::{Problem, Report};

const TIMEOUT: Duration = Duration::from_millis(250);
const SHORTEST: (Duration, &str) = (Duration::from_millis(10), "10ms");
const LONGEST: (Duration, &str) = (Duration::from_secs(10), "10s");
const TTL: Duration = Duration::from_secs(60);
const NEGATIVE_TTL: Duration = Duration::from_secs(5);
const STALE: Duration = Duration::from_secs(300);
const NONE: (Duration, &str) = (Duration::ZERO, "0s");
const HOUR: (Duration, &str) = (Duration::from_secs(3600), "1h");
const DAY: (Duration, &str) = (Duration::from_secs(86_400), "1d");
const MAX_IN_FLIGHT: u64 = 64;
const MAX_CACHED: u64 = 100_000;
const ON_FAILURE: [(&str, OnFailure); 3] =
    [("refuse", OnFailure::Refuse), ("anonymous", OnFailure::Anonymous), ("stale", OnFailure::Stale)];
const INTROSPECTION: Words = Words {
    example: "https://id.example.com/introspect",
    of: "an introspection",
    risk: Some("tokens that go over http:// can be read by anybody"),
};
const CHECK: Words = Words {
    example: "https://auth.example.com/check",
    of: "a check",
    risk: Some("credentials that go over http:// can be read by anybody"),
};
/// Request headers that the gateway writes itself when it asks, or that make the message another.
const NOT_SENT: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The fields that describe a service.
struct Service<'a> {
    url: Option<&'a At<String>>,
    ca: Option<&'a At<String>>,
    timeout: Option<&'a At<String>>,
    stale: Option<&'a At<String>>,
    on_failure: Option<&'a At<String>>,
    max_in_flight: Option<&'a At<RawCount>>,
    max_cached: Option<&'a At<RawCount>>,
    /// The policy if none is given.
    usual: OnFailure,
}

fn service(
    raw: &Service<'_>,
    words: &Words,
    folder: Folder<'_>,
    report: &mut Report,
) -> Option<ServiceConfig> {
    let url = raw.url.and_then(|text| value(text, report, |text| http_url(text, words)));
    let roots = raw.ca.map(|path| folder.content(path, report));
    if let Some(url) = &url {
        ca_needs_tls(raw.ca, url, report);
    }
    let on_failure = raw.on_failure.and_then(|text| word(text, "on_failure", &ON_FAILURE, report));
    let on_failure = on_failure.unwrap_or(raw.usual);
    let usual = if on_failure == OnFailure::Stale { STALE } else { Duration::ZERO };
    Some(ServiceConfig {
        timeout: time(raw.timeout, "timeout", TIMEOUT, (SHORTEST, LONGEST), report),
        stale: time(raw.stale, "stale", usual, (NONE, DAY), report),
        max_in_flight: raw
            .max_in_flight
            .and_then(|count| in_range(count, 1..=10_000, "max_in_flight", report))
            .unwrap_or(MAX_IN_FLIGHT) as usize,
        max_cached: raw
            .max_cached
            .and_then(|count| in_range(count, 16..=10_000_000, "max_cached", report))
            .unwrap_or(MAX_CACHED) as usize,
        ca: roots.flatten(),
        on_failure,
        url: url?,
    })
}

type Bound = (Duration, &'static str);

fn time(
    text: Option<&At<String>>,
    field: &str,
    usual: Duration,
    (least, most): (Bound, Bound),
    report: &mut Report,
) -> Duration {
    text.and_then(|text| between(text, field, least, most, report)).unwrap_or(usual)
}

pub(super) fn introspection(
    At { at, value: raw }: &At<RawIntrospection>,
    folder: Folder<'_>,
    report: &mut Report,
) -> Option<IntrospectionConfig> {
    for (given, field, example) in [
        (raw.url.is_some(), "url", INTROSPECTION.example),
        (raw.client_id.is_some(), "client_id", "gateway"),
        (raw.client_secret.is_some(), "client_secret", "{file: introspection.secret}"),
    ] {
        if !given {
            missing(*at, "auth.introspection", (field, example), &raw.wrong, report);
        }
    }
    for (name, text) in
        [("client_id", &raw.client_id), ("user_claim", &raw.user_claim), ("plan_claim", &raw.plan_claim)]
    {
        if let Some(text) = text.as_ref().filter(|text| text.value.is_empty()) {
            empty(text.at, name, "say what it is", report);
        }
    }
    let client_secret = secret(raw.client_secret.as_ref(), folder, report);
    if let (Some(raw), Some(secret)) = (&raw.client_secret, &client_secret)
        && secret.is_empty()
    {
        empty(raw.at, "client_secret", "the issuer says what it is", report);
    }
    let header =
        raw.header.as_ref().map_or(Some(header::AUTHORIZATION), |text| value(text, report, header_name));
    let forward = forward(raw.forward.as_ref(), header.as_ref(), report);
    let required = raw.required.as_ref().is_some_and(|required| required.value);
    if let Some(text) = raw.on_failure.as_ref().filter(|text| required && text.value == "anonymous") {
        report.error(
            text.problem("`on_failure: anonymous` and `required: true` do not go together")
                .help("remove one of them: without a token nobody is admitted"),
        );
    }
    let described = Service {
        url: raw.url.as_ref(),
        ca: raw.ca.as_ref(),
        timeout: raw.timeout.as_ref(),
        stale: raw.stale.as_ref(),
        on_failure: raw.on_failure.as_ref(),
        max_in_flight: raw.max_in_flight.as_ref(),
        max_cached: raw.max_cached.as_ref(),
        usual: OnFailure::Stale,
    };
    let service = service(&described, &INTROSPECTION, folder, report);
    Some(IntrospectionConfig {
        ttl: time(raw.ttl.as_ref(), "ttl", TTL, (NONE, DAY), report),
        negative_ttl: time(raw.negative_ttl.as_ref(), "negative_ttl", NEGATIVE_TTL, (NONE, HOUR), report),
        client_id: raw.client_id.as_ref().map_or_else(String::new, |text| text.value.clone()),
        client_secret: client_secret?,
        header: header.unwrap_or(header::AUTHORIZATION),
        user_claim: raw.user_claim.as_ref().map_or("sub", |text| &text.value).to_owned(),
        plan_claim: raw.plan_claim.as_ref().map(|text| text.value.clone()),
        required,
        forward,
        service: service?,
    })
}

pub(super) fn check(
    At { at, value: raw }: &At<RawCheck>,
    folder: Folder<'_>,
    report: &mut Report,
) -> Option<CheckConfig> {
    if raw.url.is_none() {
        missing(*at, "auth.check", ("url", CHECK.example), &raw.wrong, report);
    }
    let headers = match &raw.headers {
        Some(headers) => names(headers, report),
        None => vec![header::AUTHORIZATION, header::COOKIE],
    };
    let cache = raw.cache.as_ref().map(|cache| self::cache(cache, &headers, report));
    if raw.cache.is_none() && !is_wrong!(raw, cache) {
        let stale = raw.on_failure.as_ref().filter(|text| text.value == "stale");
        for text in stale.into_iter().chain(&raw.stale) {
            report.error(
                text.problem("there is no old answer that could be used: no answer is remembered")
                    .help("add `cache: {ttl: 60s}`"),
            );
        }
        if let Some(count) = &raw.max_cached {
            report.error(Problem::new(count.at, "`max_cached` means nothing without `cache`"));
        }
    }
    let described = Service {
        url: raw.url.as_ref(),
        ca: raw.ca.as_ref(),
        timeout: raw.timeout.as_ref(),
        stale: raw.stale.as_ref(),
        on_failure: raw.on_failure.as_ref(),
        max_in_flight: raw.max_in_flight.as_ref(),
        max_cached: raw.max_cached.as_ref(),
        usual: OnFailure::Refuse,
    };
    let service = service(&described, &CHECK, folder, report);
    Some(CheckConfig {
        headers,
        cache,
        forward: raw.forward.as_ref().is_none_or(|forward| forward.value),
        service: service?,
    })
}

/// The names of a list of headers that are sent on.
fn names(raw: &At<OneOrMany<At<String>>>, report: &mut Report) -> Vec<HeaderName> {
    let mut names = Vec::new();
    for text in &raw.value.0 {
        let Some(name) = value(text, report, header_name) else { continue };
        let plain = name.as_str().replace('_', "-");
        let own = NOT_SENT.contains(&plain.as_str())
            || plain.starts_with("proxy-")
            || plain.starts_with("x-forwarded-")
            || plain.starts_with("x-sluicegate-");
        if own {
            report.error(
                text.problem(format!("`{}` cannot be sent on", text.value))
                    .help("the gateway writes that header itself when it asks, or leaves it out"),
            );
        } else if names.contains(&name) {
            report.error(text.problem(format!("`{}` is given twice", text.value)));
        } else {
            names.push(name);
        }
    }
    names
}

fn cache(
    At { at, value: raw }: &At<RawCheckCache>,
    sent: &[HeaderName],
    report: &mut Report,
) -> CheckCacheConfig {
    let ttl = time(raw.ttl.as_ref(), "ttl", TTL, (NONE, DAY), report);
    let Some(given) = &raw.key else { return CheckCacheConfig { key: sent.to_vec(), ttl } };
    if given.value.0.is_empty() {
        empty(given.at, "key", "name the headers on which an answer depends", report);
    }
    let key: Vec<HeaderName> =
        given.value.0.iter().filter_map(|text| value(text, report, header_name)).collect();
    if let Some(left_out) = sent.iter().find(|name| !key.is_empty() && !key.contains(name)) {
        report.warning(
            Problem::new(*at, format!("`{left_out}` is sent on and is not part of the key of the cache"))
                .help(
                    "requests that differ in it alone share one answer; add it to `key`, or do not send it",
                ),
        );
    }
    CheckCacheConfig { key, ttl }
}
