//! The routes whose limits a path is under although it is written differently.
//!
//! A request goes where its route says. But where that leads to the same upstream as an earlier route whose path reads
//! nearly alike, the upstream may take the one for the other: then the limits of that earlier route are asked too.

use std::borrow::Cow;
use std::collections::HashMap;

use smallvec::SmallVec;

use super::path_variants::{core, is_plain, undo};
use super::tree::Tree;
use sluicegate_config::{
    Action, Params, PathEnd, PathPattern, RouteConfig, Segment, ServerConfig, UpstreamConfig,
};

/// A route whose path a request nearly has.
#[derive(Clone, Debug)]
pub struct LaxMatch<'a> {
    /// The route's index.
    pub route: usize,
    /// The path as the route would have it.
    pub path: String,
    /// The parameters of that path.
    pub params: Params<'a>,
}

/// The routes that guard something, found by what their paths look like.
#[derive(Debug)]
pub(super) struct LaxTable {
    guards: Vec<Guard>,
    /// The guards by the cores of their paths.
    tree: Tree<usize>,
    /// The length of the longest core: no more of a segment is looked up.
    longest: usize,
    /// For each upstream its servers as numbers, in order.
    servers: Vec<Box<[usize]>>,
    /// For each route its upstream; none if no guard of the same servers stands before it.
    reach: Vec<Option<usize>>,
    /// Whether a plain path may be near to another: a guard's path is not plain itself.
    odd: bool,
}

/// One path of a route that has limits or lists.
#[derive(Debug)]
struct Guard {
    route: usize,
    upstream: usize,
    pattern: PathPattern,
    /// For each literal of the pattern what is left of it.
    cores: Vec<Option<String>>,
}

/// A segment of a path.
struct Part<'a> {
    raw: &'a str,
    core: Cow<'a, str>,
    /// Whether some servers drop it.
    droppable: bool,
}

impl LaxTable {
    /// `named` are the numbers of each route's hosts.
    pub(super) fn new(routes: &[RouteConfig], upstreams: &[UpstreamConfig], named: &[Box<[usize]>]) -> Self {
        let mut guards = Vec::new();
        for (route, config) in routes.iter().enumerate() {
            let open =
                config.limits.is_empty() && config.access.deny.is_empty() && config.access.allow.is_empty();
            let Action::Forward { upstream, .. } = config.action else { continue };
            if open || config.matches.exact_spelling {
                continue;
            }
            guards.extend(config.matches.paths.iter().map(|pattern| Guard::new(route, upstream, pattern)));
        }
        let mut tree = Tree::new();
        for (index, guard) in guards.iter().enumerate() {
            tree.insert(guard.cores.iter().map(Option::as_deref), guard.pattern.end(), index);
        }
        tree.sort_by_host(|guard: usize| &named[guards[guard].route]);
        let servers = numbered(upstreams);
        let reach = reach(routes, &guards, &servers);
        let odd = guards.iter().any(|guard| !is_plain(&guard.pattern.bare()));
        let cores = guards.iter().flat_map(|guard| &guard.cores).flatten();
        let longest = cores.map(String::len).max().unwrap_or_default();
        Self { guards, tree, longest, servers, reach, odd }
    }

    /// Whether a request of the route `found` can be near to a guard. `plain` says that its path is.
    pub(super) fn concerns(&self, found: usize, plain: bool) -> bool {
        (self.odd || !plain) && self.reach[found].is_some()
    }

    /// The guards before the route `found` that the path is near to, each route once and in order. `hosts` are those
    /// that the request's host matches; `takes` says whether a route is about such requests.
    pub(super) fn of<'a>(
        &'a self,
        path: &'a str,
        found: usize,
        hosts: &[usize],
        takes: impl Fn(usize) -> bool,
    ) -> SmallVec<[LaxMatch<'a>; 1]> {
        let mut near = SmallVec::new();
        let Some(own) = self.reach[found] else { return near };
        let parts = parts(path);
        let all: SmallVec<[&Part<'_>; 8]> = parts.iter().collect();
        let kept: SmallVec<[&Part<'_>; 8]> = parts.iter().filter(|part| !part.droppable).collect();
        let mut fits: SmallVec<[usize; 8]> = SmallVec::new();
        let mut see = |guard: usize| {
            let Guard { route, upstream, .. } = self.guards[guard];
            if route < found && self.shares(own, upstream) {
                fits.push(guard);
            }
            route < found
        };
        let stems = |core: &str, stem: &mut dyn FnMut(&str)| stems(core, self.longest, stem);
        for readings in [&all, &kept] {
            let cores: SmallVec<[&str; 8]> = readings.iter().map(|part| &*part.core).collect();
            self.tree.find_near(&cores, &stems, hosts, &mut see);
            if kept.len() == all.len() {
                break; // they are one
            }
        }
        fits.sort_unstable();
        fits.dedup();
        for guard in fits.into_iter().map(|index| &self.guards[index]) {
            let known = near.last().is_some_and(|last: &LaxMatch<'_>| last.route == guard.route);
            if !known && takes(guard.route) {
                near.extend(guard.fit(&all).or_else(|| guard.fit(&kept)));
            }
        }
        near
    }

    /// Whether two upstreams are one, or have a server in common.
    fn shares(&self, one: usize, other: usize) -> bool {
        let others = &self.servers[other];
        one == other || self.servers[one].iter().any(|server| others.binary_search(server).is_ok())
    }
}

/// For each upstream the numbers of its servers, in order: the same for the same address.
fn numbered(upstreams: &[UpstreamConfig]) -> Vec<Box<[usize]>> {
    let mut known = HashMap::new();
    let mut numbers = Vec::with_capacity(upstreams.len());
    for upstream in upstreams {
        let number = |server: &'_ ServerConfig| {
            let next = known.len();
            *known.entry(server.authority.clone()).or_insert(next)
        };
        let mut servers: Vec<usize> = upstream.servers.iter().map(number).collect();
        servers.sort_unstable();
        numbers.push(servers.into_boxed_slice());
    }
    numbers
}

/// For each route its upstream, if a guard of the same servers stands before it.
fn reach(routes: &[RouteConfig], guards: &[Guard], servers: &[Box<[usize]>]) -> Vec<Option<usize>> {
    let count = servers.iter().flatten().max().map_or(0, |last| last + 1);
    let mut guarded = vec![false; count];
    let mut guards = guards.iter().peekable();
    let mut reach = Vec::with_capacity(routes.len());
    for (index, route) in routes.iter().enumerate() {
        while let Some(guard) = guards.next_if(|guard| guard.route < index) {
            servers[guard.upstream].iter().for_each(|server| guarded[*server] = true);
        }
        reach.push(match route.action {
            Action::Forward { upstream, .. } => {
                servers[upstream].iter().any(|server| guarded[*server]).then_some(upstream)
            }
            Action::Usage | Action::Respond { .. } | Action::Redirect { .. } => None,
        });
    }
    reach
}

/// Shows `stem` what stands before a format, in all ways to read one: of `a.b.json` that is `a.b` and `a`. None is longer
/// than `longest`.
fn stems(core: &str, longest: usize, stem: &mut dyn FnMut(&str)) {
    let mut is_format = false;
    for (at, c) in core.char_indices().rev() {
        is_format = c == '.' || (is_format && is_mark(c));
        if is_format && at <= longest {
            stem(&core[..at]);
        }
    }
}

impl Guard {
    fn new(route: usize, upstream: usize, pattern: &PathPattern) -> Self {
        let left = |segment: &Segment| match segment {
            Segment::Literal(name) => {
                Some(core(name).map_or_else(|| name.to_ascii_lowercase(), Cow::into_owned))
            }
            Segment::Param(_) => None,
        };
        Self {
            route,
            upstream,
            cores: pattern.segments().iter().map(left).collect(),
            pattern: pattern.clone(),
        }
    }

    /// What the path is as this guard would have it, if it is near to it.
    fn fit<'a>(&'a self, parts: &[&Part<'a>]) -> Option<LaxMatch<'a>> {
        let count = self.cores.len();
        if parts.len() < count || (self.pattern.end() != PathEnd::Open && parts.len() > count) {
            return None;
        }
        let mut near = LaxMatch { route: self.route, path: String::new(), params: Params::new() };
        for (index, (segment, core)) in self.pattern.segments().iter().zip(&self.cores).enumerate() {
            let part = parts[index];
            near.path.push('/');
            match (segment, core) {
                (Segment::Literal(name), Some(core)) => {
                    let rest = part.core.strip_prefix(core.as_str())?;
                    // Only what a path ends in has a format: /items.json.
                    let is_format = begins_with_dot(rest) && index + 1 == parts.len();
                    if !rest.is_empty() && !is_format {
                        return None;
                    }
                    near.path += name;
                }
                (Segment::Param(name), _) => {
                    near.params.push((name, part.raw));
                    near.path += part.raw;
                }
                (Segment::Literal(_), None) => return None, // literals have cores
            }
        }
        for part in &parts[count..] {
            near.path.push('/');
            near.path += part.raw;
        }
        if near.path.is_empty() {
            near.path.push('/');
        }
        Some(near)
    }
}

/// What is no part of a name.
fn is_mark(c: char) -> bool {
    !c.is_alphanumeric()
}

/// Whether there is a dot before the first letter, perhaps behind blanks: `.json`, ` .json`.
fn begins_with_dot(text: &str) -> bool {
    text.chars().take_while(|c| is_mark(*c)).any(|c| c == '.')
}

/// The segments of a path in normal form.
fn parts(path: &str) -> SmallVec<[Part<'_>; 8]> {
    let mut parts: SmallVec<[Part<'_>; 8]> = SmallVec::new();
    for raw in path.split('/').filter(|raw| !raw.is_empty()) {
        let left = core(raw);
        let droppable = left.is_none();
        parts.push(Part { raw, core: left.unwrap_or_else(|| raw.to_ascii_lowercase().into()), droppable });
    }
    if let Some(last) = parts.last_mut() {
        // A format without a name: /items/.json
        last.droppable |= begins_with_dot(undo(last.raw).as_deref().unwrap_or(last.raw));
    }
    parts
}

#[cfg(test)]
mod tests;
