//! Numbers for the host patterns of routes: the host of a request is looked up once, not compared with each route.

use std::collections::HashMap;

use smallvec::SmallVec;

use sluicegate_config::HostPattern;

/// The numbers of all patterns that a host matches.
pub(super) type HostIds = SmallVec<[usize; 4]>;

/// The hosts of a table.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    exact: HashMap<Box<str>, usize>,
    /// Wildcard patterns by the part after `*`.
    below: HashMap<Box<str>, usize>,
    /// The most dots in a wildcard pattern: the number of suffixes of a host that are looked up.
    dots: usize,
}

impl Hosts {
    /// The number of a pattern. Equal patterns have the same number.
    fn number(&mut self, pattern: &HostPattern) -> usize {
        let next = self.exact.len() + self.below.len();
        let (names, name) = match pattern {
            HostPattern::Exact(name) => (&mut self.exact, name),
            HostPattern::Below(name) => {
                self.dots = self.dots.max(name.matches('.').count());
                (&mut self.below, name)
            }
        };
        *names.entry(name.as_str().into()).or_insert(next)
    }

    /// The sorted numbers of these patterns.
    pub(super) fn numbers(&mut self, patterns: &[HostPattern]) -> Box<[usize]> {
        let mut numbers: Vec<usize> = patterns.iter().map(|pattern| self.number(pattern)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_boxed_slice()
    }

    /// The patterns that all subdomains of a name match; `names` begins with a dot.
    pub(super) fn all_below(&self, names: &str) -> HostIds {
        let ends = names.rmatch_indices('.').take(self.dots);
        ends.filter_map(|(at, _)| self.below.get(&names[at..]).copied()).collect()
    }

    /// The patterns that a host (lower case, without port) matches.
    pub(super) fn of(&self, host: &str) -> HostIds {
        let mut ids: HostIds = self.exact.get(host).copied().into_iter().collect();
        if !self.below.is_empty() {
            let ends = host.rmatch_indices('.').take(self.dots).filter(|(at, _)| *at > 0);
            ids.extend(ends.filter_map(|(at, _)| self.below.get(&host[at..]).copied()));
        }
        ids
    }
}
