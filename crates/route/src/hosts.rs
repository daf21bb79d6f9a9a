//! Numbers for the host patterns of routes: the host of a request is looked up once, not compared with each route.

use std::collections::HashMap;

use smallvec::SmallVec;

use sluicegate_config::{HostPattern, MatchRegex};

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
    /// Regular expressions with their numbers.
    regexes: Vec<(MatchRegex, usize)>,
}

impl Hosts {
    /// The number of a pattern. Equal patterns have the same number.
    fn number(&mut self, pattern: &HostPattern) -> usize {
        let next = self.exact.len() + self.below.len() + self.regexes.len();
        let (names, name) = match pattern {
            HostPattern::Regex(regex) => {
                let number = self.of_regex(regex).unwrap_or(next);
                if number == next {
                    self.regexes.push((regex.clone(), number));
                }
                return number;
            }
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

    /// The number of a regular expression.
    pub(super) fn of_regex(&self, regex: &MatchRegex) -> Option<usize> {
        self.regexes.iter().find(|(known, _)| known == regex).map(|(_, number)| *number)
    }

    /// The patterns that a host (lower case, without port) matches.
    pub(super) fn of(&self, host: &str) -> HostIds {
        let mut ids: HostIds = self.exact.get(host).copied().into_iter().collect();
        if !self.below.is_empty() {
            let ends = host.rmatch_indices('.').take(self.dots).filter(|(at, _)| *at > 0);
            ids.extend(ends.filter_map(|(at, _)| self.below.get(&host[at..]).copied()));
        }
        if !self.regexes.is_empty() {
            let matching = self.regexes.iter().filter(|(regex, _)| regex.matches(host.as_bytes()));
            ids.extend(matching.map(|(_, number)| *number));
        }
        ids
    }
}
