//! Patterns of paths as a tree over their segments: a path leads to those that match it, however many there are.

use std::collections::HashMap;

use sluicegate_config::PathEnd;

/// So many things are looked through one by one.
pub(super) const FEW: usize = 8;

/// The patterns with what they stand for, which is ordered as it is put in.
#[derive(Debug)]
pub(super) struct Tree<T> {
    /// The root is the first.
    nodes: Vec<Node<T>>,
}

#[derive(Debug)]
struct Node<T> {
    literals: Literals,
    param: Option<usize>,
    ends: Vec<(PathEnd, Things<T>)>,
}

/// The nodes behind literal segments.
#[derive(Debug)]
enum Literals {
    Few(Vec<(Box<str>, usize)>),
    Many(HashMap<Box<str>, usize>),
}

/// What stands at one place of the tree, each part of it in order.
#[derive(Debug)]
enum Things<T> {
    Few(Vec<T>),
    ByHost {
        /// What is about all hosts.
        any: Vec<T>,
        /// The rest by numbers of hosts.
        named: Vec<(usize, T)>,
    },
}

impl<T: Copy + Ord> Tree<T> {
    pub(super) fn new() -> Self {
        Self { nodes: vec![Node::new()] }
    }

    /// Adds a pattern: its segments, `None` for a parameter.
    pub(super) fn insert<'s>(
        &mut self,
        segments: impl Iterator<Item = Option<&'s str>>,
        end: PathEnd,
        thing: T,
    ) {
        let mut at = 0;
        for segment in segments {
            let next = self.nodes.len();
            let node = &mut self.nodes[at];
            at = match segment {
                Some(name) => node.literals.get_or_insert(name, next),
                None => *node.param.get_or_insert(next),
            };
            if at == next {
                self.nodes.push(Node::new());
            }
        }
        let ends = &mut self.nodes[at].ends;
        match ends.iter_mut().find(|(other, _)| *other == end) {
            Some((_, Things::Few(things))) => things.push(thing),
            _ => ends.push((end, Things::Few(vec![thing]))),
        }
    }

    /// Sorts by host what stands at one place, where that is much. `hosts` are the hosts of a thing, none for all.
    pub(super) fn sort_by_host<'s>(&mut self, hosts: impl Fn(T) -> &'s [usize]) {
        for (_, things) in self.nodes.iter_mut().flat_map(|node| &mut node.ends) {
            let Things::Few(all) = things else { continue };
            all.sort_unstable();
            if all.len() > FEW && all.iter().any(|thing| !hosts(*thing).is_empty()) {
                let any = all.iter().copied().filter(|thing| hosts(*thing).is_empty()).collect();
                let of = |thing: &T| hosts(*thing).iter().map(|host| (*host, *thing)).collect::<Vec<_>>();
                let mut named: Vec<(usize, T)> = all.iter().flat_map(of).collect();
                named.sort_unstable();
                *things = Things::ByHost { any, named };
            }
        }
    }

    /// Shows `see` all whose patterns match the path (in normal form) and that may be about one of the hosts. At each
    /// place that is done in order, and only for as long as it asks for more.
    pub(super) fn find(&self, path: &str, hosts: &[usize], see: &mut impl FnMut(T) -> bool) {
        self.find_below(0, path, hosts, see);
    }

    fn find_below(&self, at: usize, path: &str, hosts: &[usize], see: &mut impl FnMut(T) -> bool) {
        let (mut node, mut rest) = (&self.nodes[at], path);
        loop {
            for (end, things) in &node.ends {
                let ends_here = match end {
                    PathEnd::Open => true,
                    PathEnd::Closed => rest.is_empty(),
                    PathEnd::Directory => rest == "/",
                };
                if ends_here {
                    things.show(hosts, see);
                }
            }
            let Some(behind) = rest.strip_prefix('/') else { return };
            let end = behind.bytes().position(|b| b == b'/').unwrap_or(behind.len());
            let (segment, below) = behind.split_at(end);
            if let Some(param) = node.param.filter(|_| !segment.is_empty()) {
                self.find_below(param, below, hosts, see);
            }
            let Some(next) = node.literals.get(segment) else { return };
            (node, rest) = (&self.nodes[next], below);
        }
    }

    /// The same for all paths that a pattern of these segments matches, as far as the patterns tell.
    pub(super) fn find_covering(
        &self,
        segments: &[Option<&str>],
        end: PathEnd,
        hosts: &[usize],
        see: &mut impl FnMut(T) -> bool,
    ) {
        self.find_covering_below(0, segments, end, hosts, see);
    }

    fn find_covering_below(
        &self,
        at: usize,
        segments: &[Option<&str>],
        end: PathEnd,
        hosts: &[usize],
        see: &mut impl FnMut(T) -> bool,
    ) {
        let node = &self.nodes[at];
        let covers = |other: PathEnd| other == PathEnd::Open || (segments.is_empty() && other == end);
        for (_, things) in node.ends.iter().filter(|(other, _)| covers(*other)) {
            things.show(hosts, see);
        }
        let Some((segment, behind)) = segments.split_first() else { return };
        let literal = segment.and_then(|name| node.literals.get(name));
        for next in [node.param, literal].into_iter().flatten() {
            self.find_covering_below(next, behind, end, hosts, see);
        }
    }

    /// The same for a path that is nearly one that matches: its segments are `cores`, and the last may have more behind
    /// it, which `stems` takes off in all ways.
    pub(super) fn find_near<S>(
        &self,
        cores: &[&str],
        stems: &S,
        hosts: &[usize],
        see: &mut impl FnMut(T) -> bool,
    ) where
        S: Fn(&str, &mut dyn FnMut(&str)),
    {
        self.find_near_below(0, cores, stems, hosts, see);
    }

    fn find_near_below<S>(
        &self,
        at: usize,
        cores: &[&str],
        stems: &S,
        hosts: &[usize],
        see: &mut impl FnMut(T) -> bool,
    ) where
        S: Fn(&str, &mut dyn FnMut(&str)),
    {
        let node = &self.nodes[at];
        for (_, things) in node.ends.iter().filter(|(end, _)| *end == PathEnd::Open || cores.is_empty()) {
            things.show(hosts, see);
        }
        let Some((core, behind)) = cores.split_first() else { return };
        let mut enter = |name: &str| {
            if let Some(next) = node.literals.get(name) {
                self.find_near_below(next, behind, stems, hosts, see);
            }
        };
        enter(core);
        if behind.is_empty() {
            stems(core, &mut enter);
        }
        if let Some(param) = node.param {
            self.find_near_below(param, behind, stems, hosts, see);
        }
    }
}

impl<T> Node<T> {
    fn new() -> Self {
        Self { literals: Literals::Few(Vec::new()), param: None, ends: Vec::new() }
    }
}

impl Literals {
    fn get(&self, name: &str) -> Option<usize> {
        match self {
            Self::Few(few) => few.iter().find(|(known, _)| **known == *name).map(|(_, node)| *node),
            Self::Many(many) => many.get(name).copied(),
        }
    }

    fn get_or_insert(&mut self, name: &str, node: usize) -> usize {
        if let Some(known) = self.get(name) {
            return known;
        }
        if let Self::Few(few) = self
            && few.len() == FEW
        {
            *self = Self::Many(few.drain(..).collect());
        }
        match self {
            Self::Few(few) => few.push((name.into(), node)),
            Self::Many(many) => {
                many.insert(name.into(), node);
            }
        }
        node
    }
}

impl<T: Copy> Things<T> {
    fn show(&self, hosts: &[usize], see: &mut impl FnMut(T) -> bool) {
        // Whether all were seen is nothing to anybody: each list ends where `see` has enough of it.
        match self {
            Self::Few(all) => _ = all.iter().all(|thing| see(*thing)),
            Self::ByHost { any, named } => {
                let _ = any.iter().all(|thing| see(*thing));
                for host in hosts {
                    let begin = named.partition_point(|(other, _)| other < host);
                    let of_host = named[begin..].iter().take_while(|(other, _)| other == host);
                    let _ = of_host.map(|(_, thing)| *thing).all(&mut *see);
                }
            }
        }
    }
}
