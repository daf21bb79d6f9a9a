//! Requests that no route takes: why, and which are the most frequent.

use std::collections::HashMap;

use crate::request::early_reject::EarlyReject;
use crate::route::{Asked, Misses, host};
use crate::snapshot::Snapshot;
use sluicegate_config::normalize;
use sluicegate_wire::RequestHead;

/// Routes are looked at so often in all to say why requests match none: with many routes not every request is
/// explained, and a replay takes no longer.
const LOOKS: usize = 100_000;
/// Targets that are counted at once.
const PLACES: usize = 512;
/// The bytes of a target that are looked at.
const LONGEST: usize = 200;

/// What is known of the requests that no route takes.
#[derive(Debug, Default)]
pub struct Unmatched {
    /// Requests that are refused before a route is looked for: by their host, path, method or headers.
    pub malformed: u64,
    /// Requests that name no host.
    pub nameless: u64,
    /// Requests that were explained, by the set of the parts which the nearest route misses.
    missed: [u64; Misses::SETS],
    looks: usize,
    /// The targets.
    pub targets: Frequent,
    target: String,
}

impl Unmatched {
    pub(super) fn note(
        &mut self,
        snapshot: &Snapshot,
        listener: usize,
        parts: &RequestHead,
        why: &EarlyReject,
    ) {
        let host = host(parts).unwrap_or_default();
        self.target.clear();
        [parts.method.as_str(), " ", &host, parts.target.path()].iter().for_each(|text| self.target += text);
        let ends = |end: &usize| self.target.is_char_boundary(*end);
        let end = (0..=self.target.len().min(LONGEST)).rev().find(ends).unwrap_or(0);
        self.targets.note(&self.target[..end]);
        if *why != EarlyReject::NoRoute {
            self.malformed += 1;
            return;
        }
        self.nameless += u64::from(host.is_empty());
        if self.looks > LOOKS {
            return;
        }
        let routes = &snapshot.config.routes;
        self.looks += routes.len();
        let Ok(path) = normalize(parts.target.path()) else { return };
        let (method, headers) = (&parts.method, &parts.headers);
        let asked = Asked { listener, host: &host, method, path: &path, headers };
        if let Some(misses) = Misses::of_nearest(routes.iter().map(|route| &route.matches), &asked) {
            self.missed[misses.index()] += 1;
        }
    }

    /// How many requests were explained.
    pub fn explained(&self) -> u64 {
        self.missed.iter().sum()
    }

    /// The sets of parts which the nearest routes miss, and of how many requests; the most frequent first.
    pub fn missed(&self) -> Vec<(Misses, u64)> {
        let all = self.missed.iter().enumerate().map(|(index, count)| (Misses::at(index), *count));
        let mut all: Vec<_> = all.filter(|(_, count)| *count > 0).collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all
    }
}

/// The most frequent of any number of texts, in a bounded place (Misra and Gries, "Finding repeated elements", 1982):
/// each that makes up more than one in `PLACES` of all is there.
#[derive(Debug, Default)]
pub struct Frequent {
    counts: HashMap<Box<str>, u64>,
    /// How many occurrences of each text may not have been counted.
    pub lost: u64,
}

impl Frequent {
    fn note(&mut self, text: &str) {
        if let Some(count) = self.counts.get_mut(text) {
            *count += 1;
        } else if self.counts.len() < PLACES {
            self.counts.insert(text.into(), 1);
        } else {
            self.counts.retain(|_, count| {
                *count -= 1;
                *count > 0
            });
            self.lost += 1;
        }
    }

    /// The `most` that are the most frequent, with their counts.
    pub fn top(&self, most: usize) -> Vec<(&str, u64)> {
        let mut all: Vec<(&str, u64)> = self.counts.iter().map(|(text, count)| (&**text, *count)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        all.truncate(most);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_is_found_among_many() {
        let mut frequent = Frequent::default();
        for round in 0..100_000_u64 {
            frequent.note(&format!("once {round}"));
            if round % 10 == 0 {
                frequent.note("often");
            }
            if round % 20 == 0 {
                frequent.note("less often");
            }
        }
        assert!(frequent.counts.len() <= PLACES);
        let top = frequent.top(2);
        assert_eq!((top[0].0, top[1].0), ("often", "less often"));
        assert!(top[0].1 <= 10_000 && top[0].1 + frequent.lost >= 10_000, "{top:?} {}", frequent.lost);
    }
}
