//! Converts the raw configuration into the model: checks values, resolves names, reports all mistakes.

mod advice;
mod api_key;
mod balance;
mod ban;
mod client;
mod client_ip;
mod cors;
mod cost;
mod edge;
mod fair;
mod http_url;
mod identity_rate;
mod jwt;
mod key;
mod limit;
mod lists;
mod log;
mod matching;
mod outside;
mod overload;
mod path;
mod penalty;
mod plan;
mod quota;
mod redis_url;
mod regions;
mod route;
mod rules;
mod section;
mod shape;
mod store;
mod sync;
mod telemetry;
mod template;
mod tls;
mod underscores;
mod upstream;
mod upstream_tls;
mod uri;

use std::ops::RangeInclusive;
use std::time::Duration;

use http::HeaderName;

use crate::Parsed;
use crate::at::{At, Folder, utf8_text};
use crate::foreign;
use crate::listener::ListenerConfig;
use crate::model::{Config, MetricsConfig};
use crate::raw::RawConfig;
use crate::raw_headers::RawHeaders;
use crate::raw_metrics::RawMetrics;
use crate::read::OneOrMany;
use crate::report::{Mistake, Place, Problem, Report};
use crate::route::{HeaderFamilies, UpstreamHeaders};
use crate::secret::Secret;
use crate::shorthand::{RawCount, RawSecret};
use crate::store::{RedisConfig, RedisServers};
use crate::values;
pub use client_ip::believes_everybody;
pub(super) use plan::known as plans;
use section::Section;

/// The most names of `header_case`.
const MAX_NAMES: usize = 64;
/// The longest request head when nothing else is said.
const MAX_HEAD: u64 = 32 << 10;
/// Names go into metrics, headers and files.
const MAX_NAME: usize = 64;

/// The configuration as far as it is valid; mistakes are in the report.
pub(super) fn config(raw: &RawConfig, folder: Folder<'_>, report: &mut Report) -> Parsed {
    let listeners = edge::listeners(raw, folder, report);
    let certified =
        |(_, listener): (_, &ListenerConfig)| listener.tls.as_ref().is_some_and(|tls| tls.client.is_some());
    let admin = raw.admin.as_ref().and_then(|admin| edge::admin(&admin.value, &listeners, folder, report));
    let raw_auth = raw.auth.as_ref().map(|auth| &auth.value);
    let auth_wrong = raw.wrong.contains(&"auth");
    let plans = plans(raw);
    let raw_api_key = raw_auth.and_then(|auth| auth.api_key.as_ref());
    let api_key = api_key::api_key(raw_api_key, folder, report);
    let jwt = raw_auth.and_then(|auth| auth.jwt.as_ref()).and_then(|raw| jwt::jwt(raw, folder, report));
    let raw_introspection = raw_auth.and_then(|auth| auth.introspection.as_ref());
    let introspection = raw_introspection.and_then(|raw| outside::introspection(raw, folder, report));
    let raw_check = raw_auth.and_then(|auth| auth.check.as_ref());
    let check = raw_check.and_then(|raw| outside::check(raw, folder, report));
    // Whether the file wants a section, rightly written or not.
    let wants =
        |name: &str, given: bool| raw_auth.map_or(auth_wrong, |auth| given || auth.wrong.contains(&name));
    let checked = wants("check", raw_check.is_some());
    let tokens = wants("introspection", raw_introspection.is_some());
    let store = raw.store.as_ref().and_then(|store| store::store(store, folder, report));
    let has_store = raw.store.is_some() || raw.wrong.contains(&"store");
    let rules =
        raw.rules.as_ref().and_then(|raw| rules::rules(raw, folder, (store.as_ref(), has_store), report));
    let lists = lists::lists(raw, folder, report);
    let (client_ip, proxy_files) = client_ip::client_ip(raw.client_ip.as_ref(), folder, &lists, report);
    let access = lists::file_access(raw, &lists, report);
    let limits = Section::new("limit", raw.wrong.contains(&"limits"));
    let context = limit::Context {
        lists: &lists,
        store: has_store,
        gateways: store.as_ref().map_or(1, |store| store.gateways),
        consumers: raw_auth.map_or(auth_wrong, |auth| {
            api_key::has_consumers(auth.api_key.as_ref()) || auth.wrong.contains(&"api_key")
        }),
        checked,
        tokens: tokens || wants("jwt", raw_auth.is_some_and(|auth| auth.jwt.is_some())),
        certified: !listeners.is_complete() || listeners.valid().any(certified),
    };
    let limits = limits
        .read(raw.limits.as_ref(), report, |name, raw, report| limit::limit(name, raw, context, report));
    let request_head = raw.max_head.as_ref().and_then(|text| max_head(text, report)).unwrap_or(MAX_HEAD);
    let upstreams = Section::new("upstream", raw.wrong.contains(&"upstreams"));
    let upstreams = upstreams.read(raw.upstreams.as_ref(), report, |name, raw, report| {
        upstream::upstream(name, raw, (folder, context), request_head, report)
    });
    let client = client::client(raw, report);
    let families = rate_limit_headers(raw.headers.as_ref(), HeaderFamilies::ALL, report);
    let max_body = raw.max_body.as_ref().and_then(|text| max_body(text, report));
    let names = template::Names {
        matches: None,
        consumers: context.consumers,
        checked: context.checked,
        tokens: context.tokens,
        certified: context.certified,
    };
    let of_jwt = jwt.iter().flat_map(|jwt| &jwt.forward);
    let of_answers = introspection.iter().flat_map(|introspection| &introspection.forward);
    let claim_headers: Vec<_> = of_jwt.chain(of_answers).map(|(name, _)| name.clone()).collect();
    let claim_headers = &claim_headers[..];
    let requests =
        shape::headers(raw.request_headers.as_ref(), shape::Of::Requests, claim_headers, names, report);
    let answers =
        shape::headers(raw.response_headers.as_ref(), shape::Of::Answers, claim_headers, names, report);
    let cors = cors::cors(raw.cors.as_ref(), report);
    let known = route::Known {
        cors: cors.as_ref(),
        names,
        claim_headers,
        checked,
        requests: &requests,
        answers: &answers,
        listeners: &listeners,
        lists: &lists,
        access: &access,
        limits: &limits,
        upstreams: &upstreams,
        headers: families,
        max_body,
        timeout: client.request,
        in_cluster: matches!(&store, Some(RedisConfig { servers: RedisServers::Cluster(_), .. })),
    };
    let (routes, matches) = route::all(raw, &known, report);
    cost::routes(raw, &routes, report);
    limit::warnings(&limits, &routes, &client_ip, &api_key, report);
    lists::warnings(&lists, &access, &routes, &limits, &client_ip.trusted_lists, report);
    upstream::warnings(&upstreams, &routes, report);

    let token_required = jwt.as_ref().is_some_and(|jwt| jwt.required)
        || introspection.as_ref().is_some_and(|introspection| introspection.required);
    let of_file = advice::Known {
        raw,
        client_ip: &client_ip,
        routes: &routes,
        names: &matches,
        api_key: &api_key,
        token_required,
    };
    advice::warnings(&limits, of_file, report);

    let workers = raw.workers.as_ref().and_then(|n| in_range(n, 1..=256, "workers", report));
    let of_jwt = jwt.iter().map(|jwt| &jwt.header);
    let token_headers: Vec<_> =
        of_jwt.chain(introspection.iter().map(|introspection| &introspection.header)).collect();
    let access_log = log::access_log(raw.access_log.as_ref(), folder, (&api_key, &token_headers), report);
    let trace = log::trace(raw.trace.as_ref(), report);
    let regions = raw.regions.as_ref().and_then(|raw| regions::regions(raw, has_store, folder, report));
    let mut limits = limits.into_valid();
    if let Some((regions, raw)) = regions.as_ref().zip(raw.regions.as_ref()) {
        regions::divide(regions, raw.at, &mut limits, report);
    }
    let priorities = overload::priorities(
        raw.priorities.as_ref(),
        &plans,
        context.consumers || context.checked || context.tokens,
        report,
    );
    let config = Config {
        overload: raw.overload.as_ref().and_then(|raw| overload::own(&raw.value, report)),
        priorities,
        cors,
        answer_headers: answers,
        access_log,
        trace,
        client_ip,
        listeners: listeners.into_valid(),
        admin,
        api_key,
        jwt,
        introspection,
        check,
        store,
        regions,
        rules,
        metrics: metrics(raw.metrics.as_ref(), report),
        otlp: telemetry::otlp(raw.telemetry.as_ref(), folder, report),
        lists: lists.into_valid().into_iter().chain(proxy_files).collect(),
        plans,
        limits,
        upstreams: upstreams.into_valid(),
        routes,
        workers: workers.map(|n| n as usize),
        client,
        max_head: request_head as usize,
        header_case: header_case(raw.header_case.as_ref(), report),
        h2: client::h2(raw, report),
        drain: client::drain(raw, report),
    };
    Parsed { config, matches }
}

fn max_head(text: &At<String>, report: &mut Report) -> Option<u64> {
    value(text, report, |text| match values::bytes(text)? {
        bytes @ 0x2000..=0x10_0000 => Ok(bytes),
        _ => Err(Mistake::new(format!("`max_head` is between 8KiB and 1MiB, not {text}"))),
    })
}

/// Names of headers in the case in which they are written.
fn header_case(raw: Option<&At<OneOrMany<At<String>>>>, report: &mut Report) -> Vec<String> {
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

fn max_body(text: &At<String>, report: &mut Report) -> Option<u64> {
    value(text, report, |text| {
        values::bytes(text).map_err(|mistake| match text.contains(|c: char| c.is_ascii_digit()) {
            true => mistake,
            false => mistake.help("leave `max_body` out for no bound"),
        })
    })
}

/// `text` read by `parse`, whose mistake is reported at its place.
fn value<T, E: Into<Mistake>>(
    text: &At<String>,
    report: &mut Report,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    parse(&text.value).map_err(|mistake| report.error(mistake.into().at(text.at))).ok()
}

/// A duration between two bounds, which are given as values and as messages show them.
fn between(
    text: &At<String>,
    field: &str,
    (least, least_text): (Duration, &str),
    (most, most_text): (Duration, &str),
    report: &mut Report,
) -> Option<Duration> {
    value(text, report, |text| match text {
        "0" | "0s" if least.is_zero() => Ok(least),
        _ => match values::duration(text)? {
            fits if (least..=most).contains(&fits) => Ok(fits),
            _ => Err(Mistake::new(format!("`{field}` is between {least_text} and {most_text}, not {text}"))),
        },
    })
}

/// A duration of at most `most`, which is given as a value and as messages show it.
fn at_most(
    text: &At<String>,
    field: &str,
    (most, most_text): (Duration, &str),
    report: &mut Report,
) -> Option<Duration> {
    value(text, report, |text| match values::duration(text)? {
        fits if fits <= most => Ok(fits),
        _ => Err(Mistake::new(format!("`{field}` is at most {most_text}, not {text}"))),
    })
}

fn in_range(
    count: &At<RawCount>,
    range: RangeInclusive<u64>,
    field: &str,
    report: &mut Report,
) -> Option<u64> {
    let n = count.value.0;
    if range.contains(&n) {
        return Some(n);
    }
    let message = values::outside(&format!("`{field}`"), *range.start(), *range.end(), n);
    report.error(count.problem(message));
    None
}

/// A secret, empty if there is none; `None` if its file cannot be read, and that is reported.
fn secret(raw: Option<&At<RawSecret>>, folder: Folder<'_>, report: &mut Report) -> Option<Secret> {
    match raw.map(|raw| &raw.value) {
        None => Some(Secret::default()),
        Some(RawSecret::Value(value)) => Some(Secret::new(value)),
        Some(RawSecret::File(path)) => {
            let bytes = folder.content(path, report)?.bytes;
            let text = utf8_text(bytes)
                .map_err(|error| report.error(path.problem(format!("cannot read {}: {error}", path.value))));
            text.ok().map(|text| Secret::new(text.trim()))
        }
    }
}

fn metrics(raw: Option<&At<RawMetrics>>, report: &mut Report) -> MetricsConfig {
    let by_consumer = raw.and_then(|raw| raw.value.by_consumer.as_ref());
    let by_consumer = by_consumer.and_then(|count| in_range(count, 0..=1_000, "by_consumer", report));
    MetricsConfig { by_consumer: by_consumer.unwrap_or(0) as usize }
}

/// One of a few words.
fn word<T: Copy>(text: &At<String>, what: &str, words: &[(&str, T)], report: &mut Report) -> Option<T> {
    if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text.value) {
        return Some(*meaning);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let problem = text.problem(format!("unknown {what} `{}`", text.value));
    if let Some(help) = foreign::word(what, &text.value) {
        report.error(problem.help(help));
        return None;
    }
    let otherwise = || format!("known: {}", known.join(", "));
    report.error(problem.did_you_mean(&text.value, known.iter().copied(), otherwise));
    None
}

/// Reports a field that `what` needs and does not have. One that is among the `wrong` ones is there, and reported.
fn missing(at: Place, what: &str, (field, example): (&str, &str), wrong: &[&str], report: &mut Report) {
    if !wrong.contains(&field) {
        report.error(
            Problem::new(at, format!("{what} needs `{field}`")).help(format!("such as `{field}: {example}`")),
        );
    }
}

/// Reports if not exactly one of three fields is given. The two helps are for none and for several. Fields in `wrong`
/// are already reported.
fn exactly_one(
    at: Place,
    what: &str,
    fields: [(&str, Option<Place>); 3],
    [none, several]: [&str; 2],
    wrong: &[&str],
    report: &mut Report,
) {
    let mut given = fields.iter().filter_map(|(name, at)| Some((name, (*at)?)));
    let Some((first, _)) = given.next() else {
        if !fields.iter().any(|(name, _)| wrong.contains(name)) {
            let [(a, _), (b, _), (c, _)] = fields;
            report.error(Problem::new(at, format!("{what} needs one of `{a}`, `{b}` and `{c}`")).help(none));
        }
        return;
    };
    for (name, at) in given {
        report.error(Problem::new(at, format!("{what} has `{first}` and `{name}`")).help(several));
    }
}

/// Reports a list without items.
fn empty(at: Place, field: &str, help: &str, report: &mut Report) {
    report.error(Problem::new(at, format!("`{field}` is empty")).help(help));
}

/// Names go into label values and structured headers as they are.
fn check_name(name: &At<String>, what: &str, report: &mut Report) {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.value.is_empty() || name.value.len() > MAX_NAME || !name.value.bytes().all(good) {
        let article = if what.starts_with('u') { "an" } else { "a" };
        report.error(
            name.problem(format!("`{}` cannot be the name of {article} {what}", name.value))
                .help(format!("use up to {MAX_NAME} letters, digits, dots, hyphens and underscores")),
        );
    }
}

fn header_name(text: &str) -> Result<HeaderName, Mistake> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| match text {
        "" => Mistake::new("a header needs a name"),
        _ => Mistake::new(format!("`{text}` is not a header name")),
    })
}

/// The rate limit headers that are written, and those in force where nothing is written.
fn rate_limit_headers(
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

impl HeaderFamilies {
    const ALL: Self =
        Self { x_ratelimit: true, ietf: true, retry_after: true, upstream: UpstreamHeaders::Replace };
}
