//! The routes of a snapshot, indexed by path and host.

use super::hosts::{HostIds, Hosts};
use super::lax_match::{Destinations, LaxTable};
use super::query::RouteQuery;
use super::tree::{FEW, Tree};
use super::{LaxMatch, preflight};
use sluicegate_config::{
    Config, EncodedSlash, ListenerConfig, Match, Params, PathEnd, PathPattern, RouteConfig,
};

/// The routes in the order of the file.
#[derive(Debug)]
pub struct RouteTable {
    routes: Vec<Match>,
    /// What an encoded slash means to each route.
    encoded_slashes: Vec<EncodedSlash>,
    hosts: Hosts,
    /// For each route the sorted numbers of its hosts; empty if it matches all hosts.
    named: Vec<Box<[usize]>>,
    /// Routes with the index of one of their paths, by path; `None` if there are so few that a linear search is cheaper.
    tree: Option<Tree<(usize, usize)>>,
    /// The routes with regular expressions for paths, which are not in the tree.
    regexes: Vec<usize>,
    /// The routes that other spellings of their paths match.
    lax: LaxTable,
    /// For each listener whether it decides for a proxy, which forwards what routes admit.
    is_behind_a_proxy: Vec<bool>,
    /// The same as `lax`, for these listeners; `None` if there are none.
    lax_behind_a_proxy: Option<LaxTable>,
}

impl RouteTable {
    /// A table of the routes of a file.
    pub fn new(config: &Config) -> Self {
        let configs = &config.routes;
        let routes: Vec<Match> = configs.iter().map(|route| route.matches.clone()).collect();
        let mut hosts = Hosts::default();
        let named: Vec<Box<[usize]>> = routes.iter().map(|route| hosts.numbers(&route.hosts)).collect();
        let patterns: usize =
            routes.iter().map(|route| route.paths.patterns.len().max(1) + route.hosts.len()).sum();
        let is_behind_a_proxy: Vec<bool> =
            config.listeners.iter().map(ListenerConfig::decides_by_routes).collect();
        let lax_behind_a_proxy =
            is_behind_a_proxy.contains(&true).then(|| Destinations::behind_a_proxy(configs));
        Self {
            tree: (patterns > FEW).then(|| tree(&routes, &named)),
            regexes: (0..routes.len()).filter(|index| !routes[*index].paths.regexes.is_empty()).collect(),
            lax: LaxTable::new(configs, Destinations::of(configs, &config.upstreams), &named),
            lax_behind_a_proxy: lax_behind_a_proxy.map(|all| LaxTable::new(configs, all, &named)),
            is_behind_a_proxy,
            encoded_slashes: configs.iter().map(RouteConfig::encoded_slash).collect(),
            hosts,
            named,
            routes,
        }
    }

    /// The index of the first route that matches, with the parameters of its path.
    pub fn find<'a>(&'a self, query: &RouteQuery<'a>) -> Option<(usize, Params<'a>)> {
        let mut params = Params::new();
        self.find_into(query, &mut params).map(|index| (index, params))
    }

    /// The index of the first route that matches. The parameters of its path are added to `params`.
    #[inline]
    pub fn find_into<'a>(&'a self, query: &RouteQuery<'a>, params: &mut Params<'a>) -> Option<usize> {
        let Some(tree) = &self.tree else {
            return self.routes.iter().position(|route| matches(route, query, params));
        };
        let hosts = self.hosts.of(query.host);
        let mut first: Option<(usize, usize)> = None;
        tree.find(query.path, &hosts, &mut |place| {
            if first.is_some_and(|first| first <= place) {
                return false;
            }
            let fits = self.is_at(place.0, &hosts) && concerns(&self.routes[place.0], query);
            if fits {
                first = Some(place);
            }
            !fits
        });
        let earlier = self.regexes.iter().take_while(|route| first.is_none_or(|(first, _)| **route < first));
        let takes = |route: usize| {
            let one = &self.routes[route];
            self.is_at(route, &hosts) && concerns(one, query) && one.paths.match_regexes(query.path)
        };
        if let Some(route) = earlier.copied().find(|route| takes(*route)) {
            return Some(route);
        }
        let (index, path) = first?;
        if let Some(path) = self.routes[index].paths.patterns.get(path) {
            path.matches(query.path, params);
        }
        Some(index)
    }

    /// The routes before `found` that match loosely, and whose limits therefore apply too; none if the path is a literal one of
    /// `found`. `plain` says whether the path is [plain](super::is_plain).
    pub fn lax_matches<'a>(&'a self, query: &RouteQuery<'a>, found: usize, plain: bool) -> Vec<LaxMatch<'a>> {
        let lax = match &self.lax_behind_a_proxy {
            Some(lax) if self.is_behind_a_proxy.get(query.listener) == Some(&true) => lax,
            _ => &self.lax,
        };
        if !lax.concerns(found, plain) {
            return Vec::new();
        }
        let hosts = self.hosts.of(query.host);
        let takes = |route: usize| self.is_at(route, &hosts) && concerns(&self.routes[route], query);
        let matches = lax.find(query.path, found, &hosts, takes);
        let is_exact = |path: &PathPattern| path.is_literal() && path.matches(query.path, &mut Params::new());
        if !matches.is_empty() && self.routes[found].paths.patterns.iter().any(is_exact) {
            return Vec::new();
        }
        matches
    }

    /// Adds the routes before `found` that match another form of the path loosely.
    pub fn add_lax_matches<'a>(
        &'a self,
        matches: &mut Vec<LaxMatch<'a>>,
        query: &RouteQuery<'a>,
        found: usize,
    ) {
        let others = self.lax_matches(query, found, false);
        matches.retain(|one| others.iter().all(|other| other.route != one.route));
        matches.extend(others);
        matches.sort_by_key(|one| one.route);
    }

    /// What an encoded slash in the path of a request means to a route.
    pub(super) fn encoded_slash(&self, route: usize) -> EncodedSlash {
        self.encoded_slashes[route]
    }

    /// Whether a route matches one of these hosts.
    fn is_at(&self, route: usize, hosts: &HostIds) -> bool {
        let named = &self.named[route];
        named.is_empty() || hosts.iter().any(|host| named.binary_search(host).is_ok())
    }
}

fn tree(routes: &[Match], named: &[Box<[usize]>]) -> Tree<(usize, usize)> {
    let mut tree = Tree::new();
    for (index, route) in routes.iter().enumerate() {
        for (at, path) in route.paths.patterns.iter().enumerate() {
            tree.insert(path.literals(), path.end(), (index, at));
        }
        if route.paths.is_any() {
            tree.insert(std::iter::empty(), PathEnd::Open, (index, usize::MAX)); // not the index of a path
        }
    }
    tree.index_by_host(|(index, _)| &named[index]);
    tree
}

/// Whether a route matches a request.
pub(super) fn matches<'a>(route: &'a Match, query: &RouteQuery<'a>, params: &mut Params<'a>) -> bool {
    params.clear();
    let by_pattern = route.paths.match_patterns(query.path, params);
    (by_pattern || !route.paths.regexes.is_empty())
        && (route.hosts.is_empty() || route.hosts.iter().any(|host| host.matches(query.host)))
        && concerns(route, query)
        && (by_pattern || {
            params.clear(); // of a pattern that matched in part
            route.paths.match_regexes(query.path)
        })
}

/// Whether a route matches a request, apart from path and host.
fn concerns(route: &Match, query: &RouteQuery<'_>) -> bool {
    at_listener(route, query)
        && takes_method(route, query)
        && has_headers(route, query)
        && has_query(route, query)
}

#[inline]
pub(super) fn at_listener(route: &Match, query: &RouteQuery<'_>) -> bool {
    route.listener.as_ref().is_none_or(|listener| listener.index == query.listener)
}

#[inline]
pub(super) fn takes_method(route: &Match, query: &RouteQuery<'_>) -> bool {
    route.methods.is_empty() || route.methods.contains(query.method) || takes_preflight(route, query)
}

#[inline]
pub(super) fn has_headers(route: &Match, query: &RouteQuery<'_>) -> bool {
    route.headers.iter().all(|(name, wanted)| match wanted {
        Some(value) => query.headers.get_all(name).any(|found| found == value.as_bytes()),
        None => query.headers.contains_key(name),
    })
}

#[inline]
pub(super) fn has_query(route: &Match, query: &RouteQuery<'_>) -> bool {
    route.query.iter().all(|wanted| wanted.matches(query.query))
}

/// Whether the request is a preflight request for a method of the route.
fn takes_preflight(route: &Match, query: &RouteQuery<'_>) -> bool {
    let wanted = route.preflight.then(|| preflight(query.method, query.headers)).flatten();
    wanted.is_some_and(|wanted| route.methods.iter().any(|method| method.as_str().as_bytes() == wanted))
}

#[cfg(test)]
mod tests;
