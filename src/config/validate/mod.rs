//! Raw -> valid: every value checked, every name resolved, everything wrong reported.

mod limit;
mod route;
mod upstream;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use http::HeaderName;

use super::model::{
    AdminConfig, ApiKeySource, ClientIpConfig, Config, ForwardedHeader, HeaderFamilies, ListenerConfig,
};
use super::raw::{RawAdmin, RawApiKey, RawClientIp, RawConfig, RawCount, RawListener, RawSecret};
use super::read::At;
use super::report::{Place, Problem, Report, nearest};
use super::{relative, values};
use crate::client_ip::parse_network;

/// The longest request head when nothing else is said.
const MAX_HEAD: u64 = 32 << 10;
/// How long a drain may take when nothing else is said.
const DRAIN: Duration = Duration::from_secs(30);
/// Names go into metrics, headers and files.
const MAX_NAME: usize = 64;

pub(super) fn config(raw: &RawConfig, folder: &Path, report: &mut Report) -> Option<Config> {
    let listeners = listeners(raw, report);
    let admin = raw.admin.as_ref().and_then(|admin| self::admin(&admin.value, folder, report));
    if let Some(admin) = &admin {
        if let Some(at) = listeners.iter().position(|l| l.address == admin.address && l.address.port() != 0) {
            let place = raw.admin.as_ref().map_or(Place::START, |admin| admin.at);
            let name = &listeners[at].name;
            report.error(Problem::new(place, format!("admin has the same address as the listener `{name}`")));
        }
    }
    let api_key = api_key(raw.auth.as_ref().and_then(|auth| auth.value.api_key.as_ref()), report);
    let limits = limit::all(raw.limits.as_ref(), report);
    let upstreams = upstream::all(raw.upstreams.as_ref(), report);
    let families = families(raw.headers.as_ref(), report).unwrap_or(HeaderFamilies::ALL);
    let max_body = raw.max_body.as_ref().and_then(|text| value(text, report, values::bytes));
    let known = route::Known {
        listeners: &listeners,
        limits: &limits,
        upstreams: &upstreams,
        headers: families,
        max_body,
    };
    let routes = route::all(raw, &known, report);
    limit::doubts(raw.limits.as_ref(), &limits, &routes, report);
    upstream::doubts(raw.upstreams.as_ref(), &upstreams, &routes, report);

    let workers = raw.workers.as_ref().and_then(|n| in_range(n, 1..=256, "workers", report));
    let max_head =
        raw.max_head.as_ref().and_then(|text| value(text, report, values::bytes)).unwrap_or(MAX_HEAD);
    if !((8 << 10)..=(1 << 20)).contains(&max_head) {
        let place = raw.max_head.as_ref().map_or(Place::START, |text| text.at);
        report.error(Problem::new(place, "max_head is between 8KiB and 1MiB"));
    }
    Some(Config {
        client_ip: client_ip(raw.client_ip.as_ref(), report),
        listeners,
        admin,
        api_key,
        limits: limits.into_iter().filter_map(|(_, limit)| limit).collect(),
        upstreams: upstreams.into_iter().filter_map(|(_, upstream)| upstream).collect(),
        routes,
        workers: workers.map(|n| n as usize),
        max_head: max_head as usize,
        drain: raw.drain.as_ref().and_then(|text| value(text, report, values::duration)).unwrap_or(DRAIN),
    })
}

/// `text` read by `parse`, whose error is reported at its place.
fn value<T>(
    text: &At<String>,
    report: &mut Report,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    parse(&text.value).map_err(|message| report.error(text.problem(message))).ok()
}

fn in_range(
    count: &At<RawCount>,
    range: std::ops::RangeInclusive<u64>,
    what: &str,
    report: &mut Report,
) -> Option<u64> {
    let n = count.value.0;
    if range.contains(&n) {
        return Some(n);
    }
    report.error(count.problem(format!("{what} is between {} and {}, not {n}", range.start(), range.end())));
    None
}

/// One of a few words.
fn word<T: Copy>(text: &At<String>, what: &str, words: &[(&str, T)], report: &mut Report) -> Option<T> {
    if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text.value) {
        return Some(*meaning);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let problem = text.problem(format!("unknown {what} `{}`", text.value));
    report.error(match nearest(&text.value, known.iter().copied()) {
        Some(near) => problem.help(format!("did you mean `{near}`?")),
        None => problem.help(format!("known: {}", known.join(", "))),
    });
    None
}

/// The index of the thing called `name` among those that the file names.
fn reference<'a>(
    name: &At<String>,
    what: &str,
    names: impl Iterator<Item = &'a str> + Clone,
    report: &mut Report,
) -> Option<usize> {
    if let Some(index) = names.clone().position(|known| known == name.value) {
        return Some(index);
    }
    let problem = name.problem(format!("there is no {what} called `{}`", name.value));
    let mut all = names.clone().peekable();
    report.error(match nearest(&name.value, names) {
        Some(near) => problem.help(format!("did you mean `{near}`?")),
        None if all.peek().is_none() => problem.help(format!("the file has no {what}s")),
        None => problem.help(format!("there are: {}", all.collect::<Vec<_>>().join(", "))),
    });
    None
}

fn missing(at: Place, what: &str, field: &str, example: &str, report: &mut Report) {
    report.error(
        Problem::new(at, format!("{what} needs `{field}`")).help(format!("such as `{field}: {example}`")),
    );
}

/// Names go into label values and structured headers as they are.
fn check_name(name: &At<String>, what: &str, report: &mut Report) {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.value.is_empty() || name.value.len() > MAX_NAME || !name.value.bytes().all(good) {
        report.error(
            name.problem(format!("`{}` cannot be the name of {what}", name.value))
                .help(format!("use up to {MAX_NAME} letters, digits, dots, hyphens and underscores")),
        );
    }
}

fn address(text: &At<String>, report: &mut Report) -> Option<SocketAddr> {
    value(text, report, |text| {
        text.parse()
            .map_err(|_| format!("expected an address such as 0.0.0.0:8080 or [::]:8080, found `{text}`"))
    })
}

fn listeners(raw: &RawConfig, report: &mut Report) -> Vec<ListenerConfig> {
    let Some(listen) = raw.listen.as_ref().filter(|listen| !listen.value.is_empty()) else {
        missing(raw.at, "the file", "listen", "[0.0.0.0:8080]", report);
        return Vec::new();
    };
    let mut names = HashSet::new();
    let mut addresses = HashSet::new();
    let mut all = Vec::new();
    for RawListener(listener) in &listen.value {
        let Some(text) = &listener.address else {
            missing(listener.at, "a listener", "address", "0.0.0.0:8080", report);
            continue;
        };
        let Some(address) = address(text, report) else { continue };
        let name = listener.name.clone().unwrap_or(At { at: text.at, value: text.value.clone() });
        if listener.name.is_some() {
            check_name(&name, "a listener", report);
        }
        if address.port() != 0 && !addresses.insert(address) {
            report.error(text.problem(format!("two listeners have the address {address}")));
        } else if !names.insert(name.value.clone()) {
            report.error(name.problem(format!("two listeners are called `{}`", name.value)));
        }
        all.push(ListenerConfig { name: name.value, address });
    }
    all
}

fn admin(raw: &RawAdmin, folder: &Path, report: &mut Report) -> Option<AdminConfig> {
    let Some(text) = &raw.address else {
        missing(raw.at, "admin", "address", "127.0.0.1:9090", report);
        return None;
    };
    let address = address(text, report)?;
    let token = match raw.token.as_ref().map(|token| (&token.value, token.at)) {
        None => String::new(),
        Some((RawSecret::Value(value), _)) => value.clone(),
        Some((RawSecret::File(path), _)) => {
            let path_seen = relative(folder, &path.value);
            match std::fs::read_to_string(&path_seen) {
                Ok(text) => text.trim().to_owned(),
                Err(error) => {
                    report.error(path.problem(format!("cannot read {}: {error}", path_seen.display())));
                    return None;
                }
            }
        }
    };
    if token.is_empty() && !address.ip().is_loopback() {
        report.warning(
            text.problem("admin is reachable from other machines, without a token")
                .help("anyone there can read the state; use 127.0.0.1, or guard the port"),
        );
    }
    Some(AdminConfig { address, token })
}

fn client_ip(raw: Option<&At<RawClientIp>>, report: &mut Report) -> ClientIpConfig {
    let mut config = ClientIpConfig {
        trusted_proxies: Vec::new(),
        header: ForwardedHeader::XForwardedFor,
        ipv6_prefix: 64,
    };
    let Some(raw) = raw.map(|raw| &raw.value) else { return config };
    if let Some(networks) = &raw.trusted_proxies {
        config.trusted_proxies =
            networks.value.iter().filter_map(|network| value(network, report, parse_network)).collect();
    }
    if let Some(text) = &raw.header {
        let words = [
            ("x-forwarded-for", ForwardedHeader::XForwardedFor),
            ("forwarded", ForwardedHeader::Forwarded),
            ("x-real-ip", ForwardedHeader::XRealIp),
        ];
        let lower = At { at: text.at, value: text.value.to_ascii_lowercase() };
        config.header = word(&lower, "header", &words, report).unwrap_or(config.header);
        if config.trusted_proxies.is_empty() {
            report.warning(
                text.problem("`header` has no effect without `trusted_proxies`")
                    .help("name the proxies in front of the gateway; nobody else is believed"),
            );
        }
    }
    if let Some(prefix) = &raw.ipv6_prefix {
        config.ipv6_prefix = in_range(prefix, 1..=128, "ipv6_prefix", report).map_or(64, |n| n as u8);
    }
    config
}

fn api_key(raw: Option<&At<RawApiKey>>, report: &mut Report) -> ApiKeySource {
    let usual = ApiKeySource::Header(HeaderName::from_static("x-api-key"));
    let Some(raw) = raw else { return usual };
    match (&raw.value.header, &raw.value.query) {
        (Some(_), Some(query)) => {
            report.error(query.problem("an API key is in a `header` or in a `query`, not in both"));
            usual
        }
        (Some(name), None) => header_name(name, report).map_or(usual, ApiKeySource::Header),
        (None, Some(name)) => ApiKeySource::Query(name.value.clone()),
        (None, None) => usual,
    }
}

fn header_name(text: &At<String>, report: &mut Report) -> Option<HeaderName> {
    value(text, report, |text| {
        HeaderName::from_bytes(text.as_bytes()).map_err(|_| format!("`{text}` is not a header name"))
    })
}

fn families(raw: Option<&At<Vec<At<String>>>>, report: &mut Report) -> Option<HeaderFamilies> {
    let mut families = HeaderFamilies { x_ratelimit: false, ietf: false, retry_after: false };
    for text in &raw?.value {
        match word(text, "header family", &[("x-ratelimit", 0), ("ietf", 1), ("retry-after", 2)], report) {
            Some(0) => families.x_ratelimit = true,
            Some(1) => families.ietf = true,
            Some(_) => families.retry_after = true,
            None => {}
        }
    }
    Some(families)
}

impl HeaderFamilies {
    const ALL: Self = Self { x_ratelimit: true, ietf: true, retry_after: true };
}
