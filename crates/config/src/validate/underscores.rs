//! Header names with underscores: whether such headers are forwarded, and whether the file waits for one that is not.

use super::checks::word;
use crate::raw::RawConfig;
use crate::raw::RawCost;
use crate::read::at::At;
use crate::read::report::{Place, Problem, Report};

/// Whether request headers with underscores in their names are forwarded.
pub(super) fn forwarded(raw: &RawConfig, report: &mut Report) -> bool {
    let words = [("removed", false), ("forwarded", true)];
    let given = raw.underscores.as_ref();
    let forwarded = given.and_then(|text| word(text, "rule for underscores", &words, report));
    // One that is misspelled is reported; nothing else follows from it.
    if forwarded.unwrap_or(given.is_some()) {
        return forwarded.unwrap_or_default();
    }
    for (at, name) in read(raw).filter(|(_, name)| name.contains('_')) {
        report.error(
            Problem::new(at, format!("no request has a header `{name}`: those with underscores are removed"))
                .help("use a name with hyphens, or write `underscores: forwarded` on top of the file"),
        );
    }
    false
}

/// The names of request headers that the file reads, and where they stand.
fn read(raw: &RawConfig) -> impl Iterator<Item = (Place, &str)> {
    let auth = raw.auth.iter().map(|auth| &auth.value);
    let api_key = auth.clone().filter_map(|auth| auth.api_key.as_ref()?.value.header.as_ref());
    let jwt = auth.clone().filter_map(|auth| auth.jwt.as_ref()?.value.header.as_ref());
    let introspection = auth.clone().filter_map(|auth| auth.introspection.as_ref()?.value.header.as_ref());
    let checks = auth.filter_map(|auth| auth.check.as_ref());
    let sent = checks.clone().filter_map(|check| check.value.headers.as_ref());
    let keys_of_checks = checks.filter_map(|check| check.value.cache.as_ref()?.value.key.as_ref());
    let checked = sent.chain(keys_of_checks).flat_map(|names| &names.value.0);
    let limits = raw.limits.iter().flat_map(|limits| &limits.value.0).filter_map(|(_, limit)| limit.as_ref());
    let keys = limits.clone().filter_map(|limit| limit.key.as_ref()).flat_map(|key| &key.value.0);
    let keys = keys.flat_map(|key| key.value.split('|').filter_map(|part| of_key(key.at, part)));
    let costs = limits.clone().filter_map(|limit| match limit.cost.as_ref() {
        Some(At { at, value: RawCost::Text(text) }) => of_key(*at, text),
        Some(At { value: RawCost::Fields(fields), .. }) => {
            let request = fields.request.as_ref()?;
            of_key(request.at, &request.value)
        }
        None => None,
    });
    let when = limits.filter_map(|limit| limit.when.as_ref()?.value.headers.as_ref());
    let matches =
        raw.routes.iter().flat_map(|routes| &routes.value).filter_map(|route| route.matches.as_ref());
    let matches = matches.filter_map(|matches| matches.value.headers.as_ref());
    let named = when.chain(matches).flat_map(|headers| &headers.value.0).map(|(name, _)| name);
    let names = api_key
        .chain(jwt)
        .chain(introspection)
        .chain(checked)
        .chain(named)
        .map(|name| (name.at, name.value.as_str()));
    names.chain(keys).chain(costs)
}

/// The header that a part of a key, or a cost, is made of.
fn of_key(at: Place, part: &str) -> Option<(Place, &str)> {
    part.trim().strip_prefix("header:").map(|name| (at, name))
}
