//! Validates `cors`.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use super::checks::{at_most, empty, header_name, missing, value};
use super::matching::method;
use crate::language::host_name::host_name;
use crate::model::cors::{Below, CorsConfig, EXPOSED, Origins};
use crate::raw::cors::{RawCors, RawCorsFields};
use crate::raw::route::RawRoute;
use crate::raw::scalars::RawText;
use crate::read::OneOrMany;
use crate::read::at::At;
use crate::read::report::{Mistake, Report};

/// No browser remembers a preflight request for longer.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The policy of a route, by default that of the file.
pub(super) fn of_route(
    raw: &RawRoute,
    file_cors: Option<&Arc<CorsConfig>>,
    report: &mut Report,
) -> Option<Arc<CorsConfig>> {
    let cors = match &raw.cors {
        Some(own) => cors(Some(own), report),
        None => file_cors.cloned(),
    };
    if let Some(preflight) = raw.preflight.as_ref().filter(|text| cors.is_some() && text.value == "exempt") {
        report.warning(
            preflight
                .problem(
                    "`preflight` has no effect with `cors`: the gateway answers preflight requests itself",
                )
                .help("remove it, or write `cors: off` on this route and leave them to the upstream"),
        );
    }
    cors
}

pub(super) fn cors(raw: Option<&At<RawCors>>, report: &mut Report) -> Option<Arc<CorsConfig>> {
    let raw = raw?.value.0.as_ref()?;
    let credentials = raw.credentials.as_ref().is_some_and(|credentials| credentials.value);
    let mut names = |names: Option<&At<OneOrMany<At<RawText>>>>, field, is_method: bool| {
        let mut known: Vec<String> = Vec::new();
        for text in names.map_or(&[][..], |names| &names.value.0) {
            let name = value(text, report, |text| match is_method {
                true => method(text).map(|method| method.to_string()),
                false => header_name(text).map(|_| text.to_owned()),
            });
            let Some(name) = name else { continue };
            if name == "*" && credentials {
                let message =
                    format!("`*` in `{field}` is a name like any other where credentials may be sent");
                report.error(text.problem(message).help("write out the names"));
            } else if !known.iter().any(|other| other.eq_ignore_ascii_case(&name)) {
                known.push(name);
            }
        }
        names.map(|_| known)
    };
    let methods = names(raw.methods.as_ref(), "methods", true);
    let headers = names(raw.headers.as_ref(), "headers", false);
    let mut expose = names(raw.expose.as_ref(), "expose", false).unwrap_or_default();
    for name in EXPOSED {
        if !expose.iter().any(|other| other.eq_ignore_ascii_case(name)) {
            expose.push(name.to_owned());
        }
    }
    let max_age = raw.max_age.as_ref().and_then(|text| at_most(text, "max_age", (LONGEST, "24h"), report));
    Some(Arc::new(CorsConfig {
        origins: origins(raw, credentials, report)?,
        credentials,
        expose: expose.join(", "),
        methods: methods.map(|names| names.join(", ")),
        headers: headers.map(|names| names.join(", ")),
        max_age: max_age.map(|age| age.as_secs()),
    }))
}

fn origins(raw: &RawCorsFields, credentials: bool, report: &mut Report) -> Option<Origins> {
    const EXAMPLE: &str = "[https://app.example.com]";
    let Some(given) = &raw.origins else {
        missing(raw.at, "cors", ("origins", EXAMPLE), &raw.wrong, report);
        return None;
    };
    let given_origins = &given.value.0;
    if given_origins.is_empty() {
        empty(given.at, "origins", "name those whose pages may read answers, or write `cors: off`", report);
    }
    if let Some(any) = given_origins.iter().find(|text| text.value == "*") {
        if credentials {
            report.error(
                any.problem(
                    "`*` cannot go with `credentials: true`: any page could act for a user who is logged in",
                )
                .help(format!("name the origins: {EXAMPLE}")),
            );
        } else if given_origins.len() > 1 {
            report.error(any.problem("`*` is all origins").help("leave out the others, or leave out `*`"));
        }
        return Some(Origins::Any);
    }
    let (mut exact, mut below) = (Vec::new(), Vec::new());
    for text in given_origins {
        match value(text, report, origin) {
            Some(Origin::Exact(origin)) => exact.push(origin),
            Some(Origin::Below(hosts)) => below.push(hosts),
            None => {}
        }
    }
    exact.sort();
    exact.dedup();
    Some(Origins::Listed { exact, below })
}

enum Origin {
    Exact(String),
    Below(Below),
}

/// An origin as browsers write it (RFC 6454 §6.2): scheme, host, and a port that is not the usual one.
fn origin(text: &str) -> Result<Origin, Mistake> {
    let bad = || Mistake::new(format!("`{text}` is not an origin"));
    let example = "a scheme, a host and maybe a port: https://app.example.com";
    if text == "null" {
        return Err(bad().help("every sandboxed page has it, so it names nobody"));
    }
    let lower = text.to_ascii_lowercase();
    let (scheme, rest) = lower.split_once("://").ok_or_else(|| match host_name(lower.as_bytes()) {
        Some(_) => bad().help(format!("write https://{lower}")),
        None => bad().help(example),
    })?;
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.');
    if scheme.is_empty() || !scheme.bytes().all(good) {
        return Err(bad().help(example));
    }
    if let Some((authority, _)) = rest.split_once(['/', '?', '#']) {
        return Err(bad().help(format!("write {scheme}://{authority}: an origin has no path")));
    }
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (rest, None),
    };
    if matches!((scheme, port), ("https", Some("443")) | ("http", Some("80"))) {
        return Err(bad().help(format!("write {scheme}://{host}: browsers leave out the usual port")));
    }
    if port.is_some_and(|port| port.parse::<u16>().is_err() || port.starts_with(['0', '+'])) {
        return Err(bad().help("a port is 1 to 65535"));
    }
    let is_name = |name: &str| {
        let label = |label: &str| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        name.split('.').all(label)
    };
    let is_six = |host: &str| {
        let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        inside.is_some_and(|inside| inside.parse::<Ipv6Addr>().is_ok())
    };
    match host.strip_prefix("*.") {
        Some(parent) if is_name(parent) => {
            Ok(Origin::Below(Below { scheme: format!("{scheme}://"), rest: rest[1..].to_owned() }))
        }
        None if is_name(host) || is_six(host) => Ok(Origin::Exact(lower)),
        _ if host.contains('*') => {
            Err(bad().help("a star stands for the first labels: https://*.example.com"))
        }
        _ => Err(bad().help(example)),
    }
}
