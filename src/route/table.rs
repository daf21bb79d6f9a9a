//! All routes of a snapshot, found by the first segment of the path.

use std::collections::HashMap;

use http::Method;

use smallvec::SmallVec;

use super::near::NearTable;
use super::{Near, Params, preflight};
use crate::config::{Match, RouteConfig, UpstreamConfig};
use crate::fields::Fields;

/// A table of so many routes is looked through without an index.
const FEW: usize = 8;

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The listener it came in on.
    pub listener: usize,
    /// Its host, lower case and without port.
    pub host: &'a str,
    /// Its method.
    pub method: &'a Method,
    /// Its path in normal form.
    pub path: &'a str,
    /// Its headers.
    pub headers: &'a Fields,
}

/// The routes in the order of the file.
#[derive(Debug)]
pub struct RouteTable {
    routes: Vec<Match>,
    /// Whether there are so few that looking at all of them is cheaper than hashing a segment.
    few: bool,
    /// For each literal first segment the routes that can match, in order; those without one are in every list.
    by_first: HashMap<String, Vec<usize>>,
    /// The routes whose first segment is open.
    open: Vec<usize>,
    /// The routes whose limits other spellings of their paths are under.
    near: NearTable,
}

impl RouteTable {
    /// A table of these routes; answers are indices into them.
    pub fn new(configs: &[RouteConfig], upstreams: &[UpstreamConfig]) -> Self {
        let routes: Vec<Match> = configs.iter().map(|route| route.matches.clone()).collect();
        let first = |route: &Match| -> Option<Vec<String>> {
            route.paths.iter().map(|path| path.first_literal().map(str::to_owned)).collect::<Option<Vec<_>>>()
        };
        let is_open = |route: &Match| first(route).is_none_or(|names| names.is_empty());
        let open: Vec<usize> = (0..routes.len()).filter(|i| is_open(&routes[*i])).collect();
        let mut by_first: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, route) in routes.iter().enumerate().filter(|(_, route)| !is_open(route)) {
            for name in first(route).unwrap_or_default() {
                by_first.entry(name).or_default().push(index);
            }
        }
        for list in by_first.values_mut() {
            list.extend(&open);
            list.sort_unstable();
            list.dedup();
        }
        Self { few: routes.len() <= FEW, routes, by_first, open, near: NearTable::new(configs, upstreams) }
    }

    /// The first route that matches, with the parameters of its path.
    pub fn find<'a>(&'a self, asked: &Asked<'a>) -> Option<(usize, Params<'a>)> {
        let mut params = Params::new();
        let mut fits = |index: &usize| matches(&self.routes[*index], asked, &mut params);
        let found = if self.few {
            (0..self.routes.len()).find(|index| fits(index))
        } else {
            let first = asked.path[1..].split('/').next().unwrap_or_default();
            self.by_first.get(first).unwrap_or(&self.open).iter().copied().find(|index| fits(index))
        };
        found.map(|index| (index, params))
    }

    /// The routes before `found`, the one that matches, whose limits apply as well because the path is nearly one of
    /// theirs and the upstream may take it for that; none if the path is written out in `found`. `plain` says that it
    /// [is](super::is_plain).
    pub fn near<'a>(&'a self, asked: &Asked<'a>, found: usize, plain: bool) -> SmallVec<[Near<'a>; 1]> {
        let near = self.near.of(asked, found, plain, |route| concerns(&self.routes[route], asked));
        let is_meant =
            |path: &super::PathPattern| path.is_literal() && path.matches(asked.path, &mut Params::new());
        if !near.is_empty() && self.routes[found].paths.iter().any(is_meant) {
            return SmallVec::new();
        }
        near
    }
}

fn matches<'a>(route: &'a Match, asked: &Asked<'a>, params: &mut Params<'a>) -> bool {
    (route.paths.is_empty() || route.paths.iter().any(|path| path.matches(asked.path, params)))
        && concerns(route, asked)
}

/// Whether a route is about such requests, whatever their path.
pub(super) fn concerns(route: &Match, asked: &Asked<'_>) -> bool {
    route.listener.is_none_or(|listener| listener == asked.listener)
        && (route.hosts.is_empty() || route.hosts.iter().any(|host| host.matches(asked.host)))
        && (route.methods.is_empty() || route.methods.contains(asked.method) || takes_preflight(route, asked))
        && route.headers.iter().all(|(name, wanted)| match wanted {
            Some(value) => asked.headers.get_all(name).any(|found| found == value.as_bytes()),
            None => asked.headers.contains_key(name),
        })
}

/// Whether it is the question whether the route may be asked.
fn takes_preflight(route: &Match, asked: &Asked<'_>) -> bool {
    let wanted = route.preflight.then(|| preflight(asked.method, asked.headers)).flatten();
    wanted.is_some_and(|wanted| route.methods.iter().any(|method| method.as_str().as_bytes() == wanted))
}
