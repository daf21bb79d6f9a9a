//! Lists of addresses: what they hold, and who refers to them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::forms::RawList;
use super::super::lists::{Access, ListConfig};
use super::super::model::LimitConfig;
use super::super::raw::RawConfig;
use super::super::raw_route::RawRoute;
use super::super::read::{At, OneOrMany};
use super::super::relative;
use super::super::report::Report;
use super::super::route::RouteConfig;
use super::section::Section;
use super::{empty, value};
use crate::config::parse_network;
use crate::file_watch::Watched;
use crate::lists::AddressList;

/// The lists of the file. `before` are those of the configuration in force: a large file that is the same is not read
/// twice.
pub(super) fn lists(
    raw: &RawConfig,
    folder: &Path,
    before: &[ListConfig],
    report: &mut Report,
) -> Section<ListConfig> {
    let section = Section::new("list", raw.wrong.contains(&"lists"));
    section.read(raw.lists.as_ref(), report, |name, raw, report| {
        let (file, known) = match raw {
            RawList::Networks(texts) => {
                let networks: Vec<_> = texts.iter().map(|text| value(text, report, parse_network)).collect();
                let networks = networks.into_iter().collect::<Option<Vec<_>>>()?;
                (None, Arc::new(AddressList::new(networks)))
            }
            RawList::File(file) => {
                let path = relative(folder, &file.value);
                let known = load(file, &path, before, report)?;
                (Some(path), known)
            }
        };
        Some(ListConfig { name: name.value.clone(), file, known })
    })
}

pub(super) fn load(
    file: &At<String>,
    path: &PathBuf,
    before: &[ListConfig],
    report: &mut Report,
) -> Option<Arc<AddressList>> {
    if file.value.is_empty() {
        report.error(file.problem("the file of a list needs a name").help("such as internal.txt"));
        return None;
    }
    let known = before.iter().find(|list| list.file.as_ref() == Some(path)).map(|list| &list.known);
    AddressList::load(path, known)
        .map_err(|unusable| {
            let mut problem = file.problem(unusable.message);
            problem.details = unusable.details;
            report.error(problem);
        })
        .ok()
}

/// Whom the file lets in unless a route says something else.
pub(super) fn on_top(raw: &RawConfig, lists: &Section<ListConfig>, report: &mut Report) -> Access {
    Access {
        deny: named("deny", raw.deny.as_ref(), lists, report),
        allow: named("allow", raw.allow.as_ref(), lists, report),
    }
}

/// Whom a route lets in: those turned away on top stay away, while its own `allow` takes the place of that on top.
pub(super) fn of_route(
    raw: &RawRoute,
    top: &Access,
    lists: &Section<ListConfig>,
    report: &mut Report,
) -> Access {
    let own = named("deny", raw.deny.as_ref(), lists, report);
    let mut deny = top.deny.clone();
    deny.extend(own.into_iter().filter(|list| !top.deny.contains(list)));
    let allow = match &raw.allow {
        Some(_) => named("allow", raw.allow.as_ref(), lists, report),
        None => top.allow.clone(),
    };
    Access { deny, allow }
}

fn named(
    field: &str,
    raw: Option<&At<OneOrMany<At<String>>>>,
    lists: &Section<ListConfig>,
    report: &mut Report,
) -> Vec<usize> {
    let Some(raw) = raw else { return Vec::new() };
    if raw.value.0.is_empty() {
        empty(raw.at, field, "name a list, or leave it out", report);
    }
    let mut found = Vec::new();
    for name in &raw.value.0 {
        if parse_network(&name.value).is_ok() {
            report.error(
                name.problem(format!("`{field}` names lists, and `{}` is an address", name.value))
                    .help(format!("give it a name: `lists: {{office: [\"{}\"]}}`", name.value)),
            );
        } else if let Some(bare) = name.value.strip_prefix("list:") {
            report.error(
                name.problem(format!("`{field}` names lists and nothing else")).help(format!("write {bare}")),
            );
        } else if let Some((index, _)) = lists.find(name, report) {
            found.push(index);
        }
    }
    found
}

/// What works, but perhaps not as meant.
pub(super) fn doubts(
    lists: &Section<ListConfig>,
    top: &Access,
    routes: &[RouteConfig],
    limits: &Section<LimitConfig>,
    proxies: &[usize],
    report: &mut Report,
) {
    let accesses = routes.iter().map(|route| &route.access).chain([top]);
    let of_routes = accesses.flat_map(|access| access.deny.iter().chain(&access.allow));
    let of_limits = limits.valid().flat_map(|(_, limit)| &limit.exempt.lists);
    let used: HashSet<usize> = of_routes.chain(of_limits).chain(proxies).copied().collect();
    let alone = routes.iter().filter_map(|route| match route.access.allow[..] {
        [only] => Some(only),
        _ => None,
    });
    let alone: HashSet<usize> = alone.collect();
    for (index, (name, list)) in lists.valid().enumerate() {
        if !used.contains(&index) && report.errors.is_empty() {
            report.warning(name.problem(format!("nothing uses the list `{}`", name.value)).help(format!(
                "name it in a `deny` or `allow`, or as `list:{}` in the `exempt` of a limit or in `trusted_proxies`",
                name.value
            )));
        }
        if list.known.is_empty() && alone.contains(&index) {
            report.warning(
                name.problem(format!("nobody is on the list `{}`, which alone is let in", name.value))
                    .help("every request there is answered 403"),
            );
        }
    }
}
