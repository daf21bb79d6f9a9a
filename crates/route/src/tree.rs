//! A tree of path patterns by their segments. The cost of a search does not depend on the number of patterns.

use std::collections::HashMap;

use sluicegate_config::PathEnd;

/// Up to this number of entries, a linear search is used.
pub(super) const FEW: usize = 8;

/// Path patterns with their entries.
#[derive(Debug)]
pub(super) struct Tree<T> {
    /// The root is the first.
    nodes: Vec<Node<T>>,
}

#[derive(Debug)]
struct Node<T> {
    literals: Literals,
    param: Option<usize>,
    ends: Vec<(PathEnd, Entries<T>)>,
}

/// The nodes behind literal segments.
#[derive(Debug)]
enum Literals {
    Few(Vec<(Box<str>, usize)>),
    Many(HashMap<Box<str>, usize>),
}

/// The sorted entries of one pattern.
#[derive(Debug)]
enum Entries<T> {
    Few(Vec<T>),
    ByHost {
        /// Entries for all hosts.
        any: Vec<T>,
        /// Other entries, by the number of the host.
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
        entry: T,
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
            Some((_, Entries::Few(entries))) => entries.push(entry),
            _ => ends.push((end, Entries::Few(vec![entry]))),
        }
    }

    /// Indexes the entries of each pattern by host, if there are many. `hosts` returns the hosts of an entry; none means all.
    pub(super) fn index_by_host<'s>(&mut self, hosts: impl Fn(T) -> &'s [usize]) {
        for (_, entries) in self.nodes.iter_mut().flat_map(|node| &mut node.ends) {
            let Entries::Few(all) = entries else { continue };
            all.sort_unstable();
            if all.len() > FEW && all.iter().any(|entry| !hosts(*entry).is_empty()) {
                let any = all.iter().copied().filter(|entry| hosts(*entry).is_empty()).collect();
                let of = |entry: &T| hosts(*entry).iter().map(|host| (*host, *entry)).collect::<Vec<_>>();
                let mut named: Vec<(usize, T)> = all.iter().flat_map(of).collect();
                named.sort_unstable();
                *entries = Entries::ByHost { any, named };
            }
        }
    }

    /// Calls `visit` with the entries of all patterns that match the path, which is in normal form, and that may match one of the
    /// hosts. The entries of one pattern are visited in order, until `visit` returns false.
    pub(super) fn find(&self, path: &str, hosts: &[usize], visit: &mut impl FnMut(T) -> bool) {
        self.find_below(0, path, hosts, visit);
    }

    fn find_below(&self, at: usize, path: &str, hosts: &[usize], visit: &mut impl FnMut(T) -> bool) {
        let (mut node, mut rest) = (&self.nodes[at], path);
        loop {
            for (end, entries) in &node.ends {
                let ends_here = match end {
                    PathEnd::Open => true,
                    PathEnd::Closed => rest.is_empty(),
                    PathEnd::Directory => rest == "/",
                };
                if ends_here {
                    entries.visit(hosts, visit);
                }
            }
            let Some(behind) = rest.strip_prefix('/') else { return };
            let end = behind.bytes().position(|b| b == b'/').unwrap_or(behind.len());
            let (segment, below) = behind.split_at(end);
            if let Some(param) = node.param.filter(|_| !segment.is_empty()) {
                self.find_below(param, below, hosts, visit);
            }
            let Some(next) = node.literals.get(segment) else { return };
            (node, rest) = (&self.nodes[next], below);
        }
    }

    /// Like [`find`](Self::find), for the patterns that match all paths that a pattern of these segments matches.
    pub(super) fn find_covering(
        &self,
        segments: &[Option<&str>],
        end: PathEnd,
        hosts: &[usize],
        visit: &mut impl FnMut(T) -> bool,
    ) {
        self.find_covering_below(0, segments, end, hosts, visit);
    }

    fn find_covering_below(
        &self,
        at: usize,
        segments: &[Option<&str>],
        end: PathEnd,
        hosts: &[usize],
        visit: &mut impl FnMut(T) -> bool,
    ) {
        let node = &self.nodes[at];
        let covers = |other: PathEnd| other == PathEnd::Open || (segments.is_empty() && other == end);
        for (_, entries) in node.ends.iter().filter(|(other, _)| covers(*other)) {
            entries.visit(hosts, visit);
        }
        let Some((segment, behind)) = segments.split_first() else { return };
        let literal = segment.and_then(|name| node.literals.get(name));
        for next in [node.param, literal].into_iter().flatten() {
            self.find_covering_below(next, behind, end, hosts, visit);
        }
    }

    /// Like [`find`](Self::find), for patterns that match loosely. `cores` are the cores of the segments of the path; `stems`
    /// calls a function with the last one without its file extensions.
    pub(super) fn find_loose<S>(
        &self,
        cores: &[&str],
        stems: &S,
        hosts: &[usize],
        visit: &mut impl FnMut(T) -> bool,
    ) where
        S: Fn(&str, &mut dyn FnMut(&str)),
    {
        self.find_loose_below(0, cores, stems, hosts, visit);
    }

    fn find_loose_below<S>(
        &self,
        at: usize,
        cores: &[&str],
        stems: &S,
        hosts: &[usize],
        visit: &mut impl FnMut(T) -> bool,
    ) where
        S: Fn(&str, &mut dyn FnMut(&str)),
    {
        let node = &self.nodes[at];
        for (_, entries) in node.ends.iter().filter(|(end, _)| *end == PathEnd::Open || cores.is_empty()) {
            entries.visit(hosts, visit);
        }
        let Some((core, behind)) = cores.split_first() else { return };
        let mut enter = |name: &str| {
            if let Some(next) = node.literals.get(name) {
                self.find_loose_below(next, behind, stems, hosts, visit);
            }
        };
        enter(core);
        if behind.is_empty() {
            stems(core, &mut enter);
        }
        if let Some(param) = node.param {
            self.find_loose_below(param, behind, stems, hosts, visit);
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

impl<T: Copy> Entries<T> {
    fn visit(&self, hosts: &[usize], visit: &mut impl FnMut(T) -> bool) {
        // The results say only whether all entries of a list were visited.
        match self {
            Self::Few(all) => _ = all.iter().all(|entry| visit(*entry)),
            Self::ByHost { any, named } => {
                let _ = any.iter().all(|entry| visit(*entry));
                for host in hosts {
                    let begin = named.partition_point(|(other, _)| other < host);
                    let of_host = named[begin..].iter().take_while(|(other, _)| other == host);
                    let _ = of_host.map(|(_, entry)| *entry).all(&mut *visit);
                }
            }
        }
    }
}
