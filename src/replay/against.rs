//! What other rules would have decided about the same requests: who is newly refused, who is freed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use sluicegate_limiter::Time;

use super::{Row, Series};
use sluicegate_observe::access_log::Outcome;
use sluicegate_route::keys::KeyText;

/// The most keys that are counted; further ones are counted in sum only.
const MOST_KEYS: usize = 100_000;

/// Requests about which two configurations decide differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Refused now, and not before.
    pub newly_refused: u64,
    /// Refused before, and not now.
    pub freed: u64,
}

/// The differences between two configurations.
#[derive(Debug, Default)]
pub struct Against {
    /// All of them.
    pub all: Differences,
    /// By the limit that refuses.
    pub limits: BTreeMap<String, Differences>,
    /// By the key under that limit.
    pub keys: HashMap<KeyText, Differences>,
    /// Newly refused and freed over time.
    pub series: Series<2>,
    /// The clients of newly refused requests, and of freed ones.
    pub clients: [HashSet<IpAddr>; 2],
}

impl Differences {
    fn count(&mut self, newly_refused: bool) {
        *(if newly_refused { &mut self.newly_refused } else { &mut self.freed }) += 1;
    }
}

impl Against {
    /// Compares what the old and the new configuration decide about a request.
    pub fn add(&mut self, old: &Row<'_>, new: &Row<'_>, at: Time) {
        let newly_refused = match (old.outcome == Outcome::Refused, new.outcome == Outcome::Refused) {
            (false, true) => true,
            (true, false) => false,
            _ => return,
        };
        let refuses = if newly_refused { new } else { old };
        let clients = &mut self.clients[usize::from(!newly_refused)];
        if clients.len() < MOST_KEYS {
            clients.insert(refuses.client);
        }
        self.all.count(newly_refused);
        self.series.add(at, usize::from(!newly_refused), 1);
        if let Some(limit) = refuses.limit {
            self.limits.entry(limit.to_owned()).or_default().count(newly_refused);
        }
        if self.keys.len() < MOST_KEYS || self.keys.contains_key(&refuses.key) {
            self.keys.entry(refuses.key.clone()).or_default().count(newly_refused);
        }
    }

    /// The keys with the most differences.
    pub fn top(&self, most: usize) -> Vec<(&KeyText, Differences)> {
        let mut all: Vec<_> = self.keys.iter().map(|(key, differences)| (key, *differences)).collect();
        let count = |differences: &Differences| differences.newly_refused + differences.freed;
        all.sort_unstable_by(|one, other| (count(&other.1), one.0).cmp(&(count(&one.1), other.0)));
        all.truncate(most);
        all
    }
}
