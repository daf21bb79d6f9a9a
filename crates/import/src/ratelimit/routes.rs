//! The routes that the paths and hosts of descriptors need, each with its limits.

use sluicegate_rls::descriptors::matches;

use super::rules::Rule;
use crate::marks::Marks;
use crate::names::escaped;
use crate::sections::{Route, Sections};
use crate::yaml::{Node, map, text};

/// The most routes of an import.
const MAX_ROUTES: usize = 200;

/// Adds a route for each path and host of the rules, and one for all other requests.
pub(super) fn add(rules: &[Rule], upstream: &str, sections: &mut Sections, marks: &mut Marks) {
    let mut paths = distinct(rules.iter().filter_map(|rule| rule.path.as_deref()));
    paths.sort_by_key(|path| path.contains('*')); // stable: wildcards stay in the order of the file
    let hosts = distinct(rules.iter().filter_map(|rule| rule.host.as_deref()));
    let paths: Vec<_> = paths.into_iter().map(Some).chain([None]).collect();
    let hosts: Vec<_> = hosts.into_iter().map(Some).chain([None]).collect();
    let all: Vec<_> = hosts.iter().flat_map(|host| paths.iter().map(|path| (*host, *path))).collect();
    if all.len() > MAX_ROUTES {
        let text = format!(
            "the descriptors have {} combinations of hosts and paths; the first {MAX_ROUTES} have routes, and requests of the others \
             have the limits that apply to all requests",
            all.len()
        );
        marks.report.note(text);
    }
    let last = all.last().copied();
    for (host, path) in
        all.iter().copied().take(MAX_ROUTES - 1).chain(last.filter(|_| all.len() >= MAX_ROUTES))
    {
        let mut route = Route::default();
        if let Some(host) = host {
            route.matches.push(("host".to_owned(), text(host)));
        }
        if let Some(path) = path {
            route.matches.push(("path".to_owned(), pattern(path)));
        }
        route.forward(upstream);
        let applied = rules.iter().filter(|rule| applies(rule, host, path));
        for (limit, rule) in applied.filter_map(|rule| Some((rule.limit.as_ref()?, rule))) {
            route.limits.push(text(limit).source(&rule.source));
        }
        let name = [host, path].into_iter().flatten().collect::<Vec<_>>().join("-");
        let name = if name.is_empty() { "all" } else { name.as_str() };
        if let Err(message) = sections.route(name, route) {
            marks.report.note(format!("there is no route for {name}: {message}"));
        }
    }
}

fn applies(rule: &Rule, host: Option<&str>, path: Option<&str>) -> bool {
    let fits = |own: &Option<String>, others: &[String], value: Option<&str>| {
        let wanted =
            own.as_ref().is_none_or(|own| value.is_some_and(|value| own == value || matches(own, value)));
        wanted && !value.is_some_and(|value| others.iter().any(|other| other == value))
    };
    !rule.constant && fits(&rule.host, &rule.other_hosts, host) && fits(&rule.path, &rule.other_paths, path)
}

/// A path of a descriptor as a pattern of the gateway.
fn pattern(path: &str) -> Node {
    match path.contains('*') {
        false => text(path.replace('{', "%7B").replace('}', "%7D")),
        true => {
            let parts: Vec<_> = path.split('*').map(escaped).collect();
            map().with("regex", text(parts.join(".*")))
        }
    }
}

fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}
