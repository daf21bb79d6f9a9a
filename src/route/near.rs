//! The routes whose limits a path is under although it is written differently.
//!
//! A request goes where its route says. But where that leads to the same upstream as an earlier route whose path reads
//! nearly alike, the upstream may take the one for the other: then the limits of that earlier route are asked too.

use std::borrow::Cow;
use std::collections::HashMap;

use smallvec::SmallVec;

use super::spelling::{core, is_plain, undo};
use super::{Asked, Params, PathPattern, pattern::Segment};
use crate::config::{Action, RouteConfig, UpstreamConfig};

/// A route whose path a request nearly has.
#[derive(Clone, Debug)]
pub struct Near<'a> {
    /// The route's index.
    pub route: usize,
    /// The path as the route would have it.
    pub path: String,
    /// The parameters of that path.
    pub params: Params<'a>,
}

/// The routes that guard something, found by what their paths look like.
#[derive(Debug)]
pub(super) struct NearTable {
    guards: Vec<Guard>,
    /// For each first segment the guards that may fit, in order.
    by_first: HashMap<String, Vec<usize>>,
    /// The guards whose first segment is open.
    open: Vec<usize>,
    /// For each route what it shares an upstream with: none, if no guard stands before it.
    reach: Vec<Option<SmallVec<[usize; 2]>>>,
    /// Whether a plain path may be near to another: a guard's path is not plain itself.
    odd: bool,
}

/// One path of a route that has limits or lists.
#[derive(Debug)]
struct Guard {
    route: usize,
    /// The upstreams with a server in common, its own among them.
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

impl NearTable {
    pub(super) fn new(routes: &[RouteConfig], upstreams: &[UpstreamConfig]) -> Self {
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
        let mut by_first: HashMap<String, Vec<usize>> = HashMap::new();
        let mut open = Vec::new();
        for (index, guard) in guards.iter().enumerate() {
            match guard.cores.first() {
                Some(Some(first)) => by_first.entry(first.clone()).or_default().push(index),
                _ => open.push(index),
            }
        }
        let reach = |(index, route): (usize, &RouteConfig)| {
            let Action::Forward { upstream: own, .. } = route.action else { return None };
            let shares = |other: &usize| {
                let servers = |index: usize| upstreams[index].servers.iter().map(|server| &server.authority);
                *other == own || servers(*other).any(|one| servers(own).any(|other| one == other))
            };
            let reached: SmallVec<[usize; 2]> = (0..upstreams.len()).filter(shares).collect();
            let guarded = |guard: &Guard| guard.route < index && reached.contains(&guard.upstream);
            guards.iter().any(guarded).then_some(reached)
        };
        let reach = routes.iter().enumerate().map(reach).collect();
        let odd = guards.iter().any(|guard| !is_plain(&guard.pattern.bare()));
        Self { guards, by_first, open, reach, odd }
    }

    /// The guards before the route `found` that the path is near to, each route once and in order. `plain` says that
    /// the path is.
    pub(super) fn of<'a>(
        &'a self,
        asked: &Asked<'a>,
        found: usize,
        plain: bool,
        takes: impl Fn(usize) -> bool,
    ) -> SmallVec<[Near<'a>; 1]> {
        let mut near = SmallVec::new();
        let Some(reached) = self.reach[found].as_ref().filter(|_| self.odd || !plain) else { return near };
        let parts = parts(asked.path);
        let kept: SmallVec<[&Part<'_>; 8]> = parts.iter().filter(|part| !part.droppable).collect();
        let all: SmallVec<[&Part<'_>; 8]> = parts.iter().collect();
        let mut fits: SmallVec<[usize; 8]> = SmallVec::new();
        for readings in [&all, &kept] {
            fits.extend(readings.first().into_iter().flat_map(|first| self.begin_with(&first.core)));
        }
        fits.extend(self.open.iter().copied());
        fits.sort_unstable();
        fits.dedup();
        for guard in fits.into_iter().map(|index| &self.guards[index]) {
            let known = near.last().is_some_and(|last: &Near<'_>| last.route == guard.route);
            if known || guard.route >= found || !reached.contains(&guard.upstream) || !takes(guard.route) {
                continue;
            }
            near.extend(guard.fit(&all).or_else(|| guard.fit(&kept)));
        }
        near
    }

    /// The guards whose first segment is this one, with or without what stands behind a dot.
    fn begin_with<'a>(&'a self, first: &'a str) -> impl Iterator<Item = usize> {
        let stems =
            first.match_indices('.').map(|(at, _)| first[..at].trim_end_matches(is_mark)).chain([first]);
        stems.filter_map(|stem| self.by_first.get(stem)).flatten().copied()
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
        Self { route, upstream, cores: pattern.segments.iter().map(left).collect(), pattern: pattern.clone() }
    }

    /// What the path is as this guard would have it, if it is near to it.
    fn fit<'a>(&'a self, parts: &[&Part<'a>]) -> Option<Near<'a>> {
        let count = self.cores.len();
        if parts.len() < count || (!self.pattern.open && parts.len() > count) {
            return None;
        }
        let mut near = Near { route: self.route, path: String::new(), params: Params::new() };
        for (index, (segment, core)) in self.pattern.segments.iter().zip(&self.cores).enumerate() {
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
