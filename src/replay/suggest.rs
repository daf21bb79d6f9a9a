//! Suggested rates. Where the demand of the keys does not decide alone, each rate is replayed before it is suggested.

use sluicegate_config::{Cost, LimitConfig};
use sluicegate_limiter::{MAX_COUNT, Quota, Span};

use super::Replay;
use super::run::LimitCount;
use super::statistics::LimitStatistics;
use crate::resources::LoadedConfig;
use crate::snapshot::Snapshot;

/// The shares of clients that may be refused, for which rates are suggested.
const SHARES: [f64; 3] = [0.001, 0.01, 0.05];
/// The most passes over the logs. Each narrows a range to a quarter, so that these are enough for most.
const MOST_PASSES: usize = 16;
/// The most rates that are replayed in one pass.
const AT_ONCE: usize = 24;

/// A rate that is suggested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suggestion {
    /// The share of keys that may be refused.
    pub share: f64,
    /// The count of the rate.
    pub count: u64,
    /// The keys that are refused something.
    pub refused: usize,
    /// All keys.
    pub clients: usize,
}

/// The search for the rates of all limits.
pub struct Search<'s> {
    snapshot: &'s Snapshot,
    sought: Vec<Sought>,
    passes: usize,
}

/// The search for one rate.
#[derive(Debug)]
struct Sought {
    /// The index of the limit.
    limit: usize,
    share: f64,
    /// The keys, and how many of them may be refused something.
    clients: usize,
    most: usize,
    /// What the demand of the keys says.
    guess: u64,
    /// Counts, with the number of keys that they refuse something.
    known: Vec<(u64, usize)>,
    /// Whether that is proved without a replay.
    proved: bool,
}

impl Sought {
    /// The largest count that refuses too many keys, and the smallest above it that does not.
    fn range(&self) -> (u64, Option<u64>) {
        let fails = self.known.iter().filter(|(_, refused)| *refused > self.most).map(|(count, _)| *count);
        let fails = fails.max().unwrap_or(0);
        let holds = self.known.iter().filter(|(count, refused)| *count > fails && *refused <= self.most);
        (fails, holds.map(|(count, _)| *count).min())
    }

    /// The counts to be tried next; none if the search is over.
    fn next(&self) -> Vec<u64> {
        let is_new = |count: &u64| !self.known.iter().any(|(known, _)| known == count);
        let (fails, holds) = self.range();
        let all: Vec<u64> = match holds {
            _ if self.proved => Vec::new(),
            None if is_new(&self.guess) && self.guess > fails => {
                vec![self.guess, self.guess.saturating_mul(2)]
            }
            None => [8, 64, 512].map(|factor| fails.max(1).saturating_mul(factor)).into(),
            Some(holds) if (fails + 1..holds).contains(&self.guess) && is_new(&self.guess) => {
                vec![self.guess, self.guess - 1]
            }
            Some(holds) if holds - fails <= (holds / 100).max(1) => Vec::new(),
            Some(holds) => (1..4).map(|part| fails + (holds - fails) * part / 4).collect(),
        };
        let is_possible = |count: &u64| *count > fails && *count <= MAX_COUNT && is_new(count);
        let mut all: Vec<u64> = all.into_iter().filter(is_possible).collect();
        all.dedup();
        all
    }

    fn found(&self) -> Option<Suggestion> {
        let (_, holds) = self.range();
        let (count, refused) = *self.known.iter().find(|(count, _)| Some(*count) == holds)?;
        Some(Suggestion { share: self.share, count, refused, clients: self.clients })
    }
}

impl<'s> Search<'s> {
    /// Begins with what a replay has found, which knows the statistics of all keys.
    pub fn new(replay: &Replay<'s>) -> Self {
        let snapshot = replay.snapshot();
        let mut sought = Vec::new();
        let statistics = replay.statistics.as_ref().filter(|statistics| statistics.all_keys);
        let found = statistics.map_or(&[][..], |statistics| &statistics.limits);
        for (limit, of_limit) in found.iter().enumerate() {
            let config = &snapshot.limits[limit].config;
            let Some(own) = config.quota.rate().filter(|_| can_be_suggested(config, of_limit)) else {
                continue;
            };
            let proved = is_decided_by_demand(config, &replay.count(limit));
            for share in SHARES {
                let Some(guess) = of_limit.guess(share) else { continue };
                let clients = of_limit.usual_keys();
                let mut known = vec![(own.count(), of_limit.refused_keys())];
                if proved {
                    known = vec![(guess.count, guess.refused)];
                }
                let most = (clients as f64 * share + 1e-9) as usize;
                sought.push(Sought {
                    limit,
                    share,
                    clients,
                    most,
                    guess: guess.count.clamp(1, MAX_COUNT),
                    known,
                    proved,
                });
            }
        }
        Self { snapshot, sought, passes: 0 }
    }

    /// The limits, by their indices, and the counts that the next pass over the logs has to decide by; none if the search is over.
    pub fn next_pass(&mut self) -> Vec<(usize, u64)> {
        self.passes += 1;
        if self.passes > MOST_PASSES {
            return Vec::new();
        }
        let mut all: Vec<(usize, u64)> = self
            .sought
            .iter()
            .flat_map(|sought| sought.next().into_iter().map(|count| (sought.limit, count)))
            .collect();
        all.sort_unstable();
        all.dedup();
        all.truncate(AT_ONCE);
        all
    }

    /// The configuration with another rate of one limit; `None` if the limit cannot have it.
    pub fn with_rate(&self, limit: usize, count: u64) -> Option<LoadedConfig> {
        let mut config = self.snapshot.config.clone();
        let changed = config.config.limits.get_mut(limit)?;
        let period = changed.quota.rate()?.period();
        changed.quota = changed.with_rate(&rate(count, period)).ok()?;
        Some(config)
    }

    /// Notes how many keys a limit with this count refuses something; `None` if it cannot have that.
    pub fn learn(&mut self, limit: usize, count: u64, refused: Option<usize>) {
        for sought in self.sought.iter_mut().filter(|sought| sought.limit == limit) {
            // What is impossible is as if it refused all.
            sought.known.push((count, refused.unwrap_or(usize::MAX)));
        }
    }

    /// What is suggested for each limit, by its index.
    pub fn found(&self) -> Vec<Vec<Suggestion>> {
        let mut all = vec![Vec::new(); self.snapshot.limits.len()];
        for sought in &self.sought {
            all[sought.limit].extend(sought.found());
        }
        all
    }
}

/// Whether a count can be found at all.
fn can_be_suggested(config: &LimitConfig, found: &LimitStatistics) -> bool {
    !matches!(config.quota, Quota::Concurrency(..)) && found.beyond == 0 && !found.keys.is_empty()
}

/// Whether the demand of the keys alone says whom the limit refuses: each request costs what it is said to, nobody waits, and no
/// other limit refuses what this one would have counted.
fn is_decided_by_demand(config: &LimitConfig, count: &LimitCount) -> bool {
    let known_at_once = match &config.cost {
        Cost::Detailed(cost) => !cost.settles() && cost.reserve.is_none(),
        _ => true,
    };
    let waits = match &config.quota {
        Quota::LeakyBucket(bucket, ..) => bucket.max_delay().is_some(),
        quota => !matches!(
            quota,
            Quota::TokenBucket(..)
                | Quota::SlidingWindow(..)
                | Quota::SlidingLog(..)
                | Quota::FixedWindow(..)
        ),
    };
    let alone = config.plans.is_empty()
        && config.identity_rate.is_none()
        && config.ban.is_none()
        && config.penalty.is_none()
        && config.fair.is_none();
    known_at_once && !waits && alone && count.beside == 0
}

/// A rate as the file writes it.
pub(super) fn rate(count: u64, period: Span) -> String {
    let unit = match period.as_nanos() {
        1_000_000_000 => "s".to_owned(),
        60_000_000_000 => "min".to_owned(),
        3_600_000_000_000 => "h".to_owned(),
        86_400_000_000_000 => "day".to_owned(),
        _ => period.to_string(),
    };
    format!("{count}/{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches for the smallest count that refuses at most so many, where `refuses` says how many a count refuses.
    fn search(guess: u64, own: u64, most: usize, refuses: impl Fn(u64) -> usize) -> (Option<u64>, usize) {
        let known = vec![(own, refuses(own))];
        let mut sought = Sought { limit: 0, share: 0.0, clients: 100, most, guess, known, proved: false };
        for pass in 0..MOST_PASSES {
            let next = sought.next();
            if next.is_empty() {
                return (sought.found().map(|found| found.count), pass);
            }
            sought.known.extend(next.into_iter().map(|count| (count, refuses(count))));
        }
        (sought.found().map(|found| found.count), MOST_PASSES)
    }

    #[test]
    fn a_count_is_suggested_only_if_it_holds() {
        // The guess is right, too low, far too low, too high; the limit as it is suffices.
        for (guess, own, needed) in
            [(44, 10, 44), (44, 10, 60), (7, 5, 1_000_000), (700, 5, 41), (7, 5, 5), (7, 5, 1), (1, 1, 3)]
        {
            let refuses = |count| if count >= needed { 0 } else { 90 };
            let (found, passes) = search(guess, own, 0, refuses);
            let found = found.unwrap();
            assert!(found >= needed && found <= needed + needed / 50, "{guess} {own} {needed}: {found}");
            assert!(passes < MOST_PASSES, "{guess} {own} {needed}: {passes} passes");
        }
        assert_eq!(search(10, 5, 0, |_| 1).0, None, "no count holds");
    }
}
