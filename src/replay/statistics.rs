//! What a replay finds out besides its counts: who was refused when, how close to their limits keys live, and how large a limit
//! would have to be.

mod groups;
mod series;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use sluicegate_limiter::{Quota, Time};

pub use self::groups::{Group, Groups};
pub use self::series::Series;
use super::Demand;
use sluicegate_gateway::limit::Limit;
use sluicegate_observe::top::AsItIs;
use sluicegate_route::keys::{Fingerprint, KeyText};

/// The most keys of a limit about which anything is kept; further ones are counted in sum only.
const MOST_KEYS: usize = 2_000_000;

/// What is known of one key of a limit.
#[derive(Clone, Debug)]
pub struct KeyStatistics {
    /// Requests that the limit admitted.
    pub admitted: u64,
    /// Requests that it refused.
    pub refused: u64,
    /// When it was refused first.
    pub first_refused: Option<Time>,
    /// The key in full.
    pub text: KeyText,
    /// How large the limit would have to be.
    pub demand: Demand,
    /// The count of its own rate.
    pub count: u64,
    /// Whether the limit has its usual numbers for the key.
    pub usual: bool,
}

/// What is known of one limit.
#[derive(Debug, Default)]
pub struct LimitStatistics {
    /// Its keys; only those that were refused something, if not all are wanted.
    pub keys: HashMap<u64, KeyStatistics, BuildHasherDefault<AsItIs>>,
    /// Requests of keys beyond those.
    pub beyond: u64,
    /// Admitted and refused over time.
    pub series: Series<2>,
}

/// What is known of all requests.
#[derive(Debug)]
pub struct Statistics {
    /// By the index of the limit.
    pub limits: Vec<LimitStatistics>,
    /// Requests, refused and unmatched ones over time.
    pub traffic: Series<3>,
    /// By route, plan and consumer.
    pub groups: Groups,
    /// Whether something is kept of every key, and not only of those that were refused something.
    pub all_keys: bool,
}

impl Statistics {
    /// Nothing yet, about so many limits.
    pub fn new(limits: usize, all_keys: bool) -> Self {
        let limits = (0..limits).map(|_| LimitStatistics::default()).collect();
        Self { limits, traffic: Series::default(), groups: Groups::default(), all_keys }
    }
}

impl LimitStatistics {
    /// Counts what `limit` said of a request.
    pub fn add(
        &mut self,
        limit: &Limit,
        (key, text): (Fingerprint, &KeyText),
        (at, cost): (Time, u64),
        refused: bool,
        (usual, all_keys): (bool, bool),
    ) {
        self.series.add(at, usize::from(refused), 1);
        let quota = &limit.counted.quota;
        if self.keys.len() >= MOST_KEYS && !self.keys.contains_key(&key.get()) {
            self.beyond += 1;
            return;
        }
        if !refused && !all_keys {
            return;
        }
        let statistics = self.keys.entry(key.get()).or_insert_with(|| KeyStatistics {
            admitted: 0,
            refused: 0,
            first_refused: None,
            text: text.clone(),
            demand: Demand::new(quota, grows(quota)),
            count: quota.rate().map_or(0, |rate| rate.count()),
            usual,
        });
        match refused {
            true => {
                statistics.refused += 1;
                statistics.first_refused.get_or_insert(at);
            }
            false => statistics.admitted += 1,
        }
        if let Some(rate) = quota.rate().filter(|_| all_keys) {
            statistics.demand.add(at, cost, rate.period());
        }
    }

    /// The keys that were refused, those with the most refusals first.
    pub fn most_refused(&self, most: usize) -> Vec<&KeyStatistics> {
        let mut all: Vec<_> = self.keys.values().filter(|key| key.refused > 0).collect();
        all.sort_unstable_by(|one, other| (other.refused, &one.text).cmp(&(one.refused, &other.text)));
        all.truncate(most);
        all
    }

    /// The keys for which the limit has its usual numbers.
    pub(super) fn usual_keys(&self) -> usize {
        self.keys.values().filter(|key| key.usual).count()
    }

    /// Those of them that were refused something.
    pub fn refused_keys(&self) -> usize {
        self.keys.values().filter(|key| key.usual && key.refused > 0).count()
    }

    /// The smallest count of the rate with which at most this share of the keys is refused anything, by their demand, and how many
    /// are.
    pub(super) fn guess(&self, share: f64) -> Option<Guess> {
        let known = self.keys.values().filter(|key| key.usual && key.demand.is_known());
        let mut demands: Vec<u64> = known.map(|key| key.demand.count().unwrap_or(u64::MAX)).collect();
        demands.sort_unstable_by(|one, other| other.cmp(one));
        let count = *demands.get((demands.len() as f64 * share + 1e-9) as usize)?;
        let refused = demands.iter().take_while(|demand| **demand > count).count();
        (count < u64::MAX).then_some(Guess { count, refused })
    }
}

/// What the demand of the keys says about a rate.
pub(super) struct Guess {
    /// The count.
    pub(super) count: u64,
    /// The keys that are refused something.
    pub(super) refused: usize,
}

/// Whether the burst of a quota is the count of its rate, as it is if the file says nothing.
pub(super) fn grows(quota: &Quota) -> bool {
    quota.rate().is_some_and(|rate| rate.count() == quota.capacity())
}
