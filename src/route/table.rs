//! All routes of a snapshot, found by path and host.

use http::Method;

use smallvec::SmallVec;

use super::hosts::{HostIds, Hosts};
use super::lax_match::LaxTable;
use super::tree::{FEW, Tree};
use super::{LaxMatch, preflight};
use sluicegate_config::{Match, Params, PathEnd, PathPattern, RouteConfig, UpstreamConfig};
use sluicegate_wire::Headers;

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
    pub headers: &'a Headers,
}

/// The routes in the order of the file.
#[derive(Debug)]
pub struct RouteTable {
    routes: Vec<Match>,
    hosts: Hosts,
    /// For each route the numbers of its hosts, in order; none if it is about all.
    named: Vec<Box<[usize]>>,
    /// The routes and which of their paths, by path; `None` if there are so few that looking at all of them is cheaper.
    tree: Option<Tree<(usize, usize)>>,
    /// The routes whose limits other spellings of their paths are under.
    near: LaxTable,
}

impl RouteTable {
    /// A table of these routes; answers are indices into them.
    pub fn new(configs: &[RouteConfig], upstreams: &[UpstreamConfig]) -> Self {
        let routes: Vec<Match> = configs.iter().map(|route| route.matches.clone()).collect();
        let mut hosts = Hosts::default();
        let named: Vec<Box<[usize]>> = routes.iter().map(|route| hosts.numbers(&route.hosts)).collect();
        let looks: usize = routes.iter().map(|route| route.paths.len().max(1) + route.hosts.len()).sum();
        Self {
            tree: (looks > FEW).then(|| tree(&routes, &named)),
            near: LaxTable::new(configs, upstreams, &named),
            hosts,
            named,
            routes,
        }
    }

    /// The first route that matches, with the parameters of its path.
    #[inline]
    pub fn find<'a>(&'a self, asked: &Asked<'a>) -> Option<(usize, Params<'a>)> {
        let mut params = Params::new();
        let Some(tree) = &self.tree else {
            let found = self.routes.iter().position(|route| matches(route, asked, &mut params));
            return found.map(|index| (index, params));
        };
        let hosts = self.hosts.of(asked.host);
        let mut first: Option<(usize, usize)> = None;
        tree.find(asked.path, &hosts, &mut |place| {
            if first.is_some_and(|first| first <= place) {
                return false;
            }
            let fits = self.is_at(place.0, &hosts) && concerns(&self.routes[place.0], asked);
            if fits {
                first = Some(place);
            }
            !fits
        });
        let (index, path) = first?;
        if let Some(path) = self.routes[index].paths.get(path) {
            path.matches(asked.path, &mut params);
        }
        Some((index, params))
    }

    /// The routes before `found`, the one that matches, whose limits apply as well because the path is nearly one of
    /// theirs and the upstream may take it for that; none if the path is written out in `found`. `plain` says that it
    /// [is](super::is_plain).
    pub fn near<'a>(&'a self, asked: &Asked<'a>, found: usize, plain: bool) -> SmallVec<[LaxMatch<'a>; 1]> {
        if !self.near.concerns(found, plain) {
            return SmallVec::new();
        }
        let hosts = self.hosts.of(asked.host);
        let takes = |route: usize| self.is_at(route, &hosts) && concerns(&self.routes[route], asked);
        let near = self.near.of(asked.path, found, &hosts, takes);
        let is_meant = |path: &PathPattern| path.is_literal() && path.matches(asked.path, &mut Params::new());
        if !near.is_empty() && self.routes[found].paths.iter().any(is_meant) {
            return SmallVec::new();
        }
        near
    }

    /// Whether a route is about one of these hosts.
    fn is_at(&self, route: usize, hosts: &HostIds) -> bool {
        let named = &self.named[route];
        named.is_empty() || hosts.iter().any(|host| named.binary_search(host).is_ok())
    }
}

fn tree(routes: &[Match], named: &[Box<[usize]>]) -> Tree<(usize, usize)> {
    let mut tree = Tree::new();
    for (index, route) in routes.iter().enumerate() {
        for (at, path) in route.paths.iter().enumerate() {
            tree.insert(path.literals(), path.end(), (index, at));
        }
        if route.paths.is_empty() {
            tree.insert(std::iter::empty(), PathEnd::Open, (index, usize::MAX)); // which is no path of it
        }
    }
    tree.sort_by_host(|(index, _)| &named[index]);
    tree
}

/// Whether a route takes a request.
pub(super) fn matches<'a>(route: &'a Match, asked: &Asked<'a>, params: &mut Params<'a>) -> bool {
    params.clear();
    (route.paths.is_empty() || route.paths.iter().any(|path| path.matches(asked.path, params)))
        && (route.hosts.is_empty() || route.hosts.iter().any(|host| host.matches(asked.host)))
        && concerns(route, asked)
}

/// Whether a route is about such requests, whatever their path and host.
fn concerns(route: &Match, asked: &Asked<'_>) -> bool {
    at_listener(route, asked) && takes_method(route, asked) && has_headers(route, asked)
}

#[inline]
pub(super) fn at_listener(route: &Match, asked: &Asked<'_>) -> bool {
    route.listener.is_none_or(|listener| listener == asked.listener)
}

#[inline]
pub(super) fn takes_method(route: &Match, asked: &Asked<'_>) -> bool {
    route.methods.is_empty() || route.methods.contains(asked.method) || takes_preflight(route, asked)
}

#[inline]
pub(super) fn has_headers(route: &Match, asked: &Asked<'_>) -> bool {
    route.headers.iter().all(|(name, wanted)| match wanted {
        Some(value) => asked.headers.get_all(name).any(|found| found == value.as_bytes()),
        None => asked.headers.contains_key(name),
    })
}

/// Whether it is the question whether the route may be asked.
fn takes_preflight(route: &Match, asked: &Asked<'_>) -> bool {
    let wanted = route.preflight.then(|| preflight(asked.method, asked.headers)).flatten();
    wanted.is_some_and(|wanted| route.methods.iter().any(|method| method.as_str().as_bytes() == wanted))
}

#[cfg(test)]
mod tests;
