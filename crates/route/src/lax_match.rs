//! Loose matches: earlier routes whose paths a lenient server could take the path of a request for.
//!
//! A request is forwarded by the route that it matches. If an earlier route with a similar path has the same servers, the
//! upstream may take one path for the other. Then the limits of the earlier route apply too. Where another proxy asks for a
//! decision, it forwards all requests itself, so all routes may lead to the same servers.

use std::borrow::Cow;
use std::collections::HashMap;

use smallvec::SmallVec;

use super::path_variants::{core, decode, is_plain};
use super::regex_guards::{Readings, RegexGuard};
use super::tree::Tree;
use sluicegate_config::{
    Action, Params, PathEnd, PathPattern, RouteConfig, Segment, ServerConfig, UpstreamConfig,
};

/// A route that a request matches loosely.
#[derive(Clone, Debug)]
pub struct LaxMatch<'a> {
    /// The route's index.
    pub route: usize,
    /// The path in the spelling of the route.
    pub path: String,
    /// The parameters of that path.
    pub params: Params<'a>,
}

/// The routes with limits or lists, indexed by the cores of their paths.
#[derive(Debug)]
pub(super) struct LaxTable {
    guards: Vec<Guard>,
    /// The routes among them with regular expressions, in order.
    regexes: Vec<RegexGuard>,
    /// Indices into `guards` by the cores of their paths.
    tree: Tree<usize>,
    /// The length of the longest core: only so much of a segment is looked up.
    longest: usize,
    destinations: Destinations,
    /// For each route whether a guard with one of the same servers precedes it.
    is_reached: Vec<bool>,
    /// Whether a guard has a path that is not plain, or an expression, so that a plain path may match it loosely.
    has_unusual_guard: bool,
}

/// Where the requests of routes go.
#[derive(Debug)]
pub(super) struct Destinations {
    /// For each route the index of its upstream; `None` if its requests stay here.
    upstreams: Vec<Option<usize>>,
    /// For each upstream the sorted numbers of its servers; servers with the same address have the same number.
    servers: Vec<Box<[usize]>>,
}

/// One path of a route that has limits or lists.
#[derive(Debug)]
struct Guard {
    route: usize,
    pattern: PathPattern,
    /// The core of each literal of the pattern.
    cores: Vec<Option<String>>,
}

/// A segment of a path.
struct Part<'a> {
    raw: &'a str,
    core: Cow<'a, str>,
    /// Whether some servers ignore the segment.
    droppable: bool,
}

impl LaxTable {
    /// The table of these routes. `named` are the numbers of the hosts of each route.
    pub(super) fn new(routes: &[RouteConfig], destinations: Destinations, named: &[Box<[usize]>]) -> Self {
        let mut guards = Vec::new();
        let mut regexes = Vec::new();
        for (route, config) in routes.iter().enumerate() {
            let is_unlimited =
                config.limits.is_empty() && config.access.deny.is_empty() && config.access.allow.is_empty();
            if is_unlimited || config.matches.exact_spelling || destinations.upstreams[route].is_none() {
                continue;
            }
            let paths = &config.matches.paths;
            guards.extend(paths.patterns.iter().map(|pattern| Guard::new(route, pattern)));
            regexes.extend(RegexGuard::new(route, paths));
        }
        let mut tree = Tree::new();
        for (index, guard) in guards.iter().enumerate() {
            tree.insert(guard.cores.iter().map(Option::as_deref), guard.pattern.end(), index);
        }
        tree.index_by_host(|guard: usize| &named[guards[guard].route]);
        let guarding = guards.iter().map(|guard| guard.route).chain(regexes.iter().map(|guard| guard.route));
        let is_reached = destinations.reached_after(guarding.collect());
        let has_unusual_guard =
            !regexes.is_empty() || guards.iter().any(|guard| !is_plain(&guard.pattern.bare()));
        let cores = guards.iter().flat_map(|guard| &guard.cores).flatten();
        let longest = cores.map(String::len).max().unwrap_or_default();
        Self { guards, regexes, tree, longest, destinations, is_reached, has_unusual_guard }
    }

    /// Whether a request of the route `found` may match a guard loosely. `plain` says whether its path is plain.
    pub(super) fn concerns(&self, found: usize, plain: bool) -> bool {
        (self.has_unusual_guard || !plain) && self.is_reached[found]
    }

    /// The guards before the route `found` that the path matches loosely: each route once, in order. `hosts` are the hosts that
    /// the request matches; `takes` says whether a route matches the request apart from path and host.
    pub(super) fn find<'a>(
        &'a self,
        path: &'a str,
        found: usize,
        hosts: &[usize],
        takes: impl Fn(usize) -> bool,
    ) -> Vec<LaxMatch<'a>> {
        let mut matches = Vec::new();
        if !self.is_reached[found] {
            return matches;
        }
        let parts = parts(path);
        let all: SmallVec<[&Part<'_>; 8]> = parts.iter().collect();
        let kept: SmallVec<[&Part<'_>; 8]> = parts.iter().filter(|part| !part.droppable).collect();
        let mut fits: SmallVec<[usize; 8]> = SmallVec::new();
        let mut visit = |guard: usize| {
            let route = self.guards[guard].route;
            if route < found && self.destinations.are_shared(found, route) {
                fits.push(guard);
            }
            route < found
        };
        let stems = |core: &str, stem: &mut dyn FnMut(&str)| stems(core, self.longest, stem);
        for parts in [&all, &kept] {
            let cores: SmallVec<[&str; 8]> = parts.iter().map(|part| &*part.core).collect();
            self.tree.find_loose(&cores, &stems, hosts, &mut visit);
            if kept.len() == all.len() {
                break; // they are equal
            }
        }
        fits.sort_unstable();
        fits.dedup();
        for guard in fits.into_iter().map(|index| &self.guards[index]) {
            let is_known = matches.last().is_some_and(|last: &LaxMatch<'_>| last.route == guard.route);
            if !is_known && takes(guard.route) {
                matches.extend(guard.matches(&all).or_else(|| guard.matches(&kept)));
            }
        }
        if !self.regexes.is_empty() {
            let cores =
                |parts: &[&Part<'_>]| parts.iter().flat_map(|part| ["/", &*part.core]).collect::<String>();
            let mut readings = None;
            for guard in self.regexes.iter().take_while(|guard| guard.route < found) {
                let is_known = matches.iter().any(|known: &LaxMatch<'_>| known.route == guard.route);
                if !is_known && self.destinations.are_shared(found, guard.route) && takes(guard.route) {
                    let readings =
                        readings.get_or_insert_with(|| Readings::of(path, [cores(&all), cores(&kept)]));
                    let path = guard.matches(readings);
                    matches.extend(path.map(|path| LaxMatch {
                        route: guard.route,
                        path,
                        params: Params::new(),
                    }));
                }
            }
            matches.sort_by_key(|one| one.route);
        }
        matches
    }
}

impl Destinations {
    /// Of routes whose requests this gateway forwards.
    pub(super) fn of(routes: &[RouteConfig], upstreams: &[UpstreamConfig]) -> Self {
        let upstream = |route: &RouteConfig| match &route.action {
            Action::Forward { upstream, .. } => Some(upstream.index),
            Action::Usage | Action::Respond { .. } | Action::Redirect { .. } => None,
        };
        let mut known = HashMap::new();
        let mut numbers = |upstream: &UpstreamConfig| {
            let number = |server: &ServerConfig| {
                let next = known.len();
                *known.entry(server.authority.clone()).or_insert(next)
            };
            let mut servers: Vec<usize> = upstream.servers.iter().map(number).collect();
            servers.sort_unstable();
            servers.into_boxed_slice()
        };
        Self {
            upstreams: routes.iter().map(upstream).collect(),
            servers: upstreams.iter().map(&mut numbers).collect(),
        }
    }

    /// Of routes whose requests another proxy forwards: it may have one upstream for all.
    pub(super) fn behind_a_proxy(routes: &[RouteConfig]) -> Self {
        Self { upstreams: vec![Some(0); routes.len()], servers: vec![Box::new([0])] }
    }

    /// Whether the requests of two routes may reach the same server.
    fn are_shared(&self, one: usize, other: usize) -> bool {
        let (Some(one), Some(other)) = (self.upstreams[one], self.upstreams[other]) else { return false };
        let others = &self.servers[other];
        one == other || self.servers[one].iter().any(|server| others.binary_search(server).is_ok())
    }

    /// For each route whether one of the guarding routes with one of the same servers precedes it.
    fn reached_after(&self, mut guarding: Vec<usize>) -> Vec<bool> {
        let servers =
            |route: usize| self.upstreams[route].map(|upstream| &*self.servers[upstream]).unwrap_or_default();
        let count = self.servers.iter().flatten().max().map_or(0, |last| last + 1);
        let mut guarded = vec![false; count];
        guarding.sort_unstable();
        let mut guarding = guarding.into_iter().peekable();
        let mut is_reached = |route: usize| {
            while let Some(guard) = guarding.next_if(|guard| *guard < route) {
                servers(guard).iter().for_each(|server| guarded[*server] = true);
            }
            servers(route).iter().any(|server| guarded[*server])
        };
        (0..self.upstreams.len()).map(&mut is_reached).collect()
    }
}

/// Calls `stem` with each prefix of a core that is followed by a file extension and not longer than `longest`: for `a.b.json`
/// with `a.b` and `a`.
fn stems(core: &str, longest: usize, stem: &mut dyn FnMut(&str)) {
    let mut is_extension = false;
    for (at, c) in core.char_indices().rev() {
        is_extension = c == '.' || (is_extension && is_mark(c));
        if is_extension && at <= longest {
            stem(&core[..at]);
        }
    }
}

impl Guard {
    fn new(route: usize, pattern: &PathPattern) -> Self {
        let core_of = |segment: &Segment| match segment {
            Segment::Literal(name) => {
                Some(core(name).map_or_else(|| name.to_ascii_lowercase(), Cow::into_owned))
            }
            Segment::Param(_) => None,
        };
        Self { route, cores: pattern.segments().iter().map(core_of).collect(), pattern: pattern.clone() }
    }

    /// The path in the spelling of this guard, if it matches loosely.
    fn matches<'a>(&'a self, parts: &[&Part<'a>]) -> Option<LaxMatch<'a>> {
        let count = self.cores.len();
        if parts.len() < count || (self.pattern.end() != PathEnd::Open && parts.len() > count) {
            return None;
        }
        let mut lax = LaxMatch { route: self.route, path: String::new(), params: Params::new() };
        for (index, (segment, core)) in self.pattern.segments().iter().zip(&self.cores).enumerate() {
            let part = parts[index];
            lax.path.push('/');
            match (segment, core) {
                (Segment::Literal(name), Some(core)) => {
                    let rest = part.core.strip_prefix(core.as_str())?;
                    // Only the last segment may have a file extension: /items.json.
                    let is_extension = begins_with_dot(rest) && index + 1 == parts.len();
                    if !rest.is_empty() && !is_extension {
                        return None;
                    }
                    lax.path += name;
                }
                (Segment::Param(name), _) => {
                    lax.params.push((name, part.raw));
                    lax.path += part.raw;
                }
                (Segment::Literal(_), None) => return None, // literals have cores
            }
        }
        for part in &parts[count..] {
            lax.path.push('/');
            lax.path += part.raw;
        }
        if lax.path.is_empty() {
            lax.path.push('/');
        }
        Some(lax)
    }
}

/// Whether a character is neither a letter nor a digit.
fn is_mark(c: char) -> bool {
    !c.is_alphanumeric()
}

/// Whether there is a dot before the first letter, such as in `.json` and ` .json`.
fn begins_with_dot(text: &str) -> bool {
    text.chars().take_while(|c| is_mark(*c)).any(|c| c == '.')
}

/// The segments of a path in normal form.
fn parts(path: &str) -> SmallVec<[Part<'_>; 8]> {
    let mut parts: SmallVec<[Part<'_>; 8]> = SmallVec::new();
    for raw in path.split('/').filter(|raw| !raw.is_empty()) {
        let core = core(raw);
        let droppable = core.is_none();
        parts.push(Part { raw, core: core.unwrap_or_else(|| raw.to_ascii_lowercase().into()), droppable });
    }
    if let Some(last) = parts.last_mut() {
        // A file extension without a name: /items/.json
        last.droppable |= begins_with_dot(decode(last.raw).as_deref().unwrap_or(last.raw));
    }
    parts
}

#[cfg(test)]
mod tests;
