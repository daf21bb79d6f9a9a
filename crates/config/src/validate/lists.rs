//! Validates address lists and references to them.

use std::collections::HashSet;

use super::checks::{empty, value};
use super::section::Section;
use crate::model::limit::LimitConfig;
use crate::model::listener::TrustedList;
use crate::model::lists::{Access, ListConfig, ListSource};
use crate::model::reference::Reference;
use crate::model::route::RouteConfig;
use crate::parse_network;
use crate::raw::RawConfig;
use crate::raw::lists::RawList;
use crate::raw::route::RawRoute;
use crate::read::OneOrMany;
use crate::read::at::{At, FileRef, Folder};
use crate::read::is_wrong;
use crate::read::report::Report;

/// The lists of the file.
pub(super) fn lists(raw: &RawConfig, folder: Folder<'_>, report: &mut Report) -> Section<ListConfig> {
    let section = Section::new("list", is_wrong!(raw, lists));
    section.read(raw.lists.as_ref(), report, |name, raw, report| {
        let source = match raw {
            RawList::Networks(texts) => {
                let networks: Vec<_> = texts.iter().map(|text| value(text, report, parse_network)).collect();
                ListSource::Networks(networks.into_iter().collect::<Option<Vec<_>>>()?)
            }
            RawList::File(written) => ListSource::File(file(written, folder, report)?),
        };
        Some(ListConfig { name: name.value.clone(), at: name.at, source })
    })
}

/// The file of a list.
pub(super) fn file(written: &At<String>, folder: Folder<'_>, report: &mut Report) -> Option<FileRef> {
    if written.value.is_empty() {
        report.error(written.problem("the file of a list needs a name").help("such as internal.txt"));
        return None;
    }
    Some(folder.file(written))
}

/// The access rules of the file, which routes can override.
pub(super) fn file_access(raw: &RawConfig, lists: &Section<ListConfig>, report: &mut Report) -> Access {
    Access {
        deny: named("deny", raw.deny.as_ref(), lists, report),
        allow: named("allow", raw.allow.as_ref(), lists, report),
    }
}

/// The access rules of a route: its `deny` is added to that of the file, its `allow` replaces that of the file.
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
) -> Vec<Reference> {
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
        } else if let Some((list, _)) = lists.find(name, report) {
            found.push(list);
        }
    }
    found
}

/// Warns of lists that nothing uses.
pub(super) fn warnings(
    lists: &Section<ListConfig>,
    top: &Access,
    routes: &[RouteConfig],
    limits: &Section<LimitConfig>,
    proxies: &[TrustedList],
    report: &mut Report,
) {
    let accesses = routes.iter().map(|route| &route.access).chain([top]);
    let of_routes = accesses.flat_map(|access| access.deny.iter().chain(&access.allow));
    let of_limits = limits.valid().flat_map(|(_, limit)| &limit.exempt.lists);
    let proxies = proxies.iter().map(|trusted| &trusted.list);
    let used: HashSet<usize> = of_routes.chain(of_limits).chain(proxies).map(|list| list.index).collect();
    for (index, (name, _)) in lists.valid().enumerate() {
        if !used.contains(&index) && report.errors.is_empty() {
            report.warning(name.problem(format!("nothing uses the list `{}`", name.value)).help(format!(
                "name it in a `deny` or `allow`, or as `list:{}` in the `exempt` of a limit or in `trusted_proxies`",
                name.value
            )));
        }
    }
}
