//! Warns about routes that no request reaches because an earlier route matches all their requests.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue, Method};

use super::hosts::{HostIds, Hosts};
use super::tree::Tree;
use sluicegate_config::{At, HostPattern, Match, PathEnd, PathPattern, QueryMatch, QueryValue, Report};

/// Routes that one warning names.
const SHOWN: usize = 5;

/// Warns about routes whose requests all match one earlier route: of each earlier route once. `routes` are names and
/// matches in order.
pub fn warn_of_unreachable(routes: &[(At<String>, Match)], report: &mut Report) {
    let wider = Coverage::new(routes.iter().map(|(_, matches)| matches));
    let mut hidden: BTreeMap<usize, Vec<&At<String>>> = BTreeMap::new();
    for (index, (name, narrow)) in routes.iter().enumerate() {
        if let Some(wide) = wider.first(index, narrow, |wide| covers(&routes[wide].1, narrow)) {
            hidden.entry(wide).or_default().push(name);
        }
    }
    for (wide, hidden) in hidden {
        let wide = &routes[wide].0;
        let (line, first) = (wide.at.line, &wide.value);
        let problem = match hidden.as_slice() {
            [one] => one.problem(format!("no request reaches the route `{}`", one.value)).help(format!(
                "`{first}` on line {line} matches all of them first; put `{}` above it",
                one.value
            )),
            several => {
                let mut names: Vec<String> =
                    several.iter().take(SHOWN).map(|name| format!("`{}`", name.value)).collect();
                if several.len() > SHOWN {
                    names.push(format!("{} more", several.len() - SHOWN));
                }
                let message = format!("no request reaches the routes {}", names.join(", "));
                several[0]
                    .problem(message)
                    .help(format!("`{first}` on line {line} matches all of them first; put it below them"))
            }
        };
        report.warning(problem);
    }
}

/// The routes, indexed by their patterns.
struct Coverage {
    tree: Tree<usize>,
    hosts: Hosts,
}

impl Coverage {
    /// An index of these routes.
    fn new<'m>(routes: impl Iterator<Item = &'m Match>) -> Self {
        let (mut tree, mut hosts, mut named) = (Tree::new(), Hosts::default(), Vec::new());
        for (index, route) in routes.enumerate() {
            for path in &route.paths.patterns {
                tree.insert(path.literals(), path.end(), index);
            }
            if route.paths.is_any() {
                tree.insert(std::iter::empty(), PathEnd::Open, index);
            }
            named.push(hosts.numbers(&route.hosts));
        }
        tree.index_by_host(|route: usize| &named[route]);
        Self { tree, hosts }
    }

    /// The first route before `index` for which `covers` returns true. It is called only for routes with patterns that cover the
    /// first path and the first host of this one.
    fn first(&self, index: usize, narrow: &Match, covers: impl Fn(usize) -> bool) -> Option<usize> {
        let hosts = match narrow.hosts.first() {
            Some(HostPattern::Exact(name)) => self.hosts.of(name),
            Some(HostPattern::Below(names)) => self.hosts.all_below(names),
            Some(HostPattern::Regex(regex)) => self.hosts.of_regex(regex).into_iter().collect(),
            None => HostIds::new(),
        };
        let mut first = index;
        let mut visit = |wide: usize| {
            let is_earlier = wide < first;
            if is_earlier && covers(wide) {
                first = wide;
            }
            wide < first
        };
        let path = narrow.paths.patterns.first();
        let segments: Vec<Option<&str>> = path.into_iter().flat_map(PathPattern::literals).collect();
        self.tree.find_covering(&segments, path.map_or(PathEnd::Open, PathPattern::end), &hosts, &mut visit);
        (first < index).then_some(first)
    }
}

/// Whether `wide` provably matches every request that `narrow` matches.
fn covers(wide: &Match, narrow: &Match) -> bool {
    let subset = |own: bool, others: bool, all: bool| own || (!others && all);
    let methods = |m: &Method| wide.methods.contains(m);
    let hosts = |host: &HostPattern| wide.hosts.iter().any(|own| covers_host(own, host));
    let headers = |(name, value): &(HeaderName, Option<HeaderValue>)| {
        narrow.headers.iter().any(|(other, wanted)| name == other && (value.is_none() || value == wanted))
    };
    let parameter = |wanted: &QueryMatch| {
        let is_any = wanted.value == QueryValue::Any;
        narrow.query.iter().any(|own| own.name == wanted.name && (is_any || own.value == wanted.value))
    };
    let takes_options = |route: &Match| {
        route.methods.is_empty() || route.methods.contains(&Method::OPTIONS) || route.preflight
    };
    (wide.listener.is_none() || wide.listener == narrow.listener)
        && subset(wide.methods.is_empty(), narrow.methods.is_empty(), narrow.methods.iter().all(methods))
        && (takes_options(wide) || !narrow.preflight)
        && wide.paths.cover(&narrow.paths)
        && subset(wide.hosts.is_empty(), narrow.hosts.is_empty(), narrow.hosts.iter().all(hosts))
        && wide.headers.iter().all(headers)
        && wide.query.iter().all(parameter)
}

fn covers_host(wide: &HostPattern, narrow: &HostPattern) -> bool {
    match (wide, narrow) {
        (HostPattern::Below(wide), HostPattern::Below(narrow)) => narrow.ends_with(wide.as_str()),
        (_, HostPattern::Exact(name)) => wide.matches(name),
        (HostPattern::Exact(_), HostPattern::Below(_)) => false,
        (_, HostPattern::Regex(_)) | (HostPattern::Regex(_), HostPattern::Below(_)) => wide == narrow,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fixture;
    use super::*;

    /// Whether it covers the first path, the first host and the methods: a slow reference implementation.
    fn slow(wide: &Match, narrow: &Match) -> bool {
        let host = |narrow: &str| {
            let narrow = narrow.trim_start_matches('*');
            wide.hosts.iter().any(|wide| match wide {
                HostPattern::Exact(name) => name == narrow,
                HostPattern::Below(names) => narrow.ends_with(names.as_str()),
                HostPattern::Regex(_) => false,
            })
        };
        let path = match narrow.paths.patterns.first() {
            Some(narrow) => wide.paths.patterns.iter().any(|wide| wide.covers(narrow)),
            None => wide.paths.patterns.iter().any(|wide| wide.to_string() == "/*"),
        };
        (wide.paths.is_any() || path)
            && (wide.hosts.is_empty() || narrow.hosts.first().is_some_and(|narrow| host(&narrow.to_string())))
            && (wide.methods.is_empty() || wide.methods == narrow.methods)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_first_that_covers_another_is_found(routes in fixture::routes()) {
            let config = fixture::config(&routes);
            let routes: Vec<&Match> = config.routes.iter().map(|route| &route.matches).collect();
            let wider = Coverage::new(routes.iter().copied());
            for (index, narrow) in routes.iter().enumerate() {
                let found = wider.first(index, narrow, |wide| slow(routes[wide], narrow));
                let expected = routes[..index].iter().position(|wide| slow(wide, narrow));
                prop_assert_eq!(found, expected, "{:?}", narrow);
            }
        }
    }
}
