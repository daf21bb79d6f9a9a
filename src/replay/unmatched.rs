//! Requests that match no route: the reasons, and the most frequent targets.

use std::collections::{BTreeMap, HashMap};

use sluicegate_config::normalize;
use sluicegate_gateway::request::early_reject::EarlyReject;
use sluicegate_gateway::snapshot::Snapshot;
use sluicegate_route::{Misses, RouteQuery, host};
use sluicegate_wire::RequestHead;

/// The number of comparisons with routes that explain why requests match none. It bounds the time of a replay: with many
/// routes, not every request is explained.
const MAX_COMPARISONS: usize = 100_000;
/// The number of targets that are counted at the same time.
const CAPACITY: usize = 512;
/// The bytes of a target that are compared.
const MAX_TARGET: usize = 200;

/// Statistics of requests that match no route.
#[derive(Debug, Default)]
pub struct Unmatched {
    /// Requests that are refused before routes are matched, because of their host, path, method or headers.
    pub malformed: u64,
    /// Requests without a host.
    pub without_host: u64,
    /// Explained requests by the parts in which they differ from the nearest route.
    differences: BTreeMap<Misses, u64>,
    comparisons: usize,
    /// The targets.
    pub targets: Frequent,
    target: String,
}

impl Unmatched {
    pub(super) fn add(
        &mut self,
        snapshot: &Snapshot,
        listener: usize,
        head: &RequestHead,
        why: &EarlyReject,
    ) {
        let host = host(head).unwrap_or_default();
        self.target.clear();
        [head.method.as_str(), " ", &host, head.target.path()].iter().for_each(|text| self.target += text);
        let ends = |end: &usize| self.target.is_char_boundary(*end);
        let end = (0..=self.target.len().min(MAX_TARGET)).rev().find(ends).unwrap_or(0);
        self.targets.add(&self.target[..end]);
        if *why != EarlyReject::NoRoute {
            self.malformed += 1;
            return;
        }
        self.without_host += u64::from(host.is_empty());
        if self.comparisons > MAX_COMPARISONS {
            return;
        }
        let routes = &snapshot.config.routes;
        self.comparisons += routes.len();
        let Ok(path) = normalize(head.target.path()) else { return };
        let (method, headers) = (&head.method, &head.headers);
        let query = head.target.query().unwrap_or_default();
        let query = RouteQuery { listener, host: &host, method, path: &path, headers, query };
        if let Some(misses) = Misses::of_nearest(routes.iter().map(|route| &route.matches), &query) {
            *self.differences.entry(misses).or_default() += 1;
        }
    }

    /// The number of explained requests.
    pub fn explained(&self) -> u64 {
        self.differences.values().sum()
    }

    /// The parts in which requests differ from the nearest route, with the number of requests; the most frequent first.
    pub fn differences(&self) -> Vec<(Misses, u64)> {
        let mut all: Vec<_> = self.differences.iter().map(|(misses, count)| (*misses, *count)).collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all
    }
}

/// The most frequent of any number of texts in bounded memory (Misra and Gries, "Finding repeated elements", 1982): a text
/// that makes up more than one in `CAPACITY` of all is among them.
#[derive(Debug, Default)]
pub struct Frequent {
    counts: HashMap<Box<str>, u64>,
    /// The maximum number of occurrences of each text that were not counted.
    pub lost: u64,
}

impl Frequent {
    fn add(&mut self, text: &str) {
        if let Some(count) = self.counts.get_mut(text) {
            *count += 1;
        } else if self.counts.len() < CAPACITY {
            self.counts.insert(text.into(), 1);
        } else {
            self.counts.retain(|_, count| {
                *count -= 1;
                *count > 0
            });
            self.lost += 1;
        }
    }

    /// The `most` most frequent texts with their counts.
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
    fn the_most_frequent_texts_are_found_among_many() {
        let mut frequent = Frequent::default();
        for round in 0..100_000_u64 {
            frequent.add(&format!("once {round}"));
            if round % 10 == 0 {
                frequent.add("often");
            }
            if round % 20 == 0 {
                frequent.add("less often");
            }
        }
        assert!(frequent.counts.len() <= CAPACITY);
        let top = frequent.top(2);
        assert_eq!((top[0].0, top[1].0), ("often", "less often"));
        assert!(top[0].1 <= 10_000 && top[0].1 + frequent.lost >= 10_000, "{top:?} {}", frequent.lost);
    }
}
