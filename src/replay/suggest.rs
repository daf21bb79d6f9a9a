//! Suggested rates. Where the demand of the keys does not decide alone, each rate is replayed before it is suggested.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluicegate_config::{Cost, LimitConfig};
use sluicegate_limiter::{MAX_COUNT, Quota, Span, Time};

use super::Replay;
use super::limit_count::LimitCount;
use super::recording::Recording;
use super::statistics::LimitStatistics;
use sluicegate_gateway::snapshot::{Opened, SnapshotBuilder};

/// The shares of clients that may be refused, for which rates are suggested.
const SHARES: [f64; 3] = [0.001, 0.01, 0.05];
/// The most rates that are tried for one limit.
const MOST_TRIES: usize = 64;

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

/// The search for the rates of one limit.
struct Search<'r, 's> {
    replay: &'r Replay<'s>,
    /// The index of the limit.
    limit: usize,
    /// Counts, with the number of keys that they refuse something.
    known: BTreeMap<u64, usize>,
}

/// The rates that are suggested for each limit, by its index, after a replay that knows the statistics of all keys; or why there are
/// none. `tried` is called before each rate is tried.
pub fn suggestions(replay: &Replay<'_>, tried: &dyn Fn()) -> Vec<Result<Vec<Suggestion>, String>> {
    let statistics = replay.statistics.as_ref().filter(|statistics| statistics.all_keys);
    let limits = statistics.map_or(&[][..], |statistics| &statistics.limits);
    limits.iter().enumerate().map(|(limit, found)| of_limit(replay, limit, found, tried)).collect()
}

fn of_limit(
    replay: &Replay<'_>,
    limit: usize,
    found: &LimitStatistics,
    tried: &dyn Fn(),
) -> Result<Vec<Suggestion>, String> {
    let config = &replay.snapshot().limits[limit].config;
    let Some(own) = config.quota.rate().filter(|_| can_be_suggested(config, found)) else {
        return Ok(Vec::new());
    };
    let clients = found.usual_keys();
    let proved = is_decided_by_demand(config, &replay.count(limit));
    if let Some(why) = replay.recording.as_ref().and_then(Recording::why_not).filter(|_| !proved) {
        return Err(format!("no rate is suggested for this limit, because {why}"));
    }
    let mut search = Search { replay, limit, known: BTreeMap::from([(own.count(), found.refused_keys())]) };
    let of_share = |share: f64| {
        let guess = found.guess(share)?;
        if proved {
            return Some(Suggestion { share, count: guess.count, refused: guess.refused, clients });
        }
        let most = (clients as f64 * share + 1e-9) as usize;
        let (count, refused) = search.smallest(guess.count.clamp(1, MAX_COUNT), most, tried)?;
        Some(Suggestion { share, count, refused, clients })
    };
    let all: Vec<Suggestion> = SHARES.into_iter().filter_map(of_share).collect();
    match all.is_empty() {
        true => Err("no rate of this limit refuses so few keys, because its burst or its delay is too small"
            .to_owned()),
        false => Ok(all),
    }
}

impl Search<'_, '_> {
    /// About the smallest count that refuses at most so many keys something, and how many it does: it is tried, and one that is a
    /// hundredth smaller refuses more. `None` if no count is found.
    fn smallest(&mut self, guess: u64, most: usize, tried: &dyn Fn()) -> Option<(u64, usize)> {
        let mut next = Some(guess);
        while let Some(count) = next.filter(|_| self.known.len() < MOST_TRIES) {
            if !self.known.contains_key(&count) {
                tried();
                let refused = self.refused_with(count);
                self.known.insert(count, refused);
            }
            next = next_try(&self.known, guess, most);
        }
        let (_, holds) = range(&self.known, most);
        holds.and_then(|count| Some((count, *self.known.get(&count)?)))
    }

    /// How many keys a limit with this count refuses something. What it cannot have is as if it refused all.
    fn refused_with(&self, count: u64) -> usize {
        let decided = || {
            let mut config = self.replay.snapshot().config.clone();
            let changed = Arc::make_mut(&mut config.config).limits.get_mut(self.limit)?;
            changed.quota = changed.with_rate(&rate(count, changed.quota.rate()?.period())).ok()?;
            let snapshot = SnapshotBuilder::default().build(config, Opened::default(), None, Time::EPOCH);
            self.replay.recording.as_ref()?.refused_keys(&snapshot, self.limit)
        };
        decided().unwrap_or(usize::MAX)
    }
}

/// The largest count that refuses more than so many keys, and the smallest above it that does not.
fn range(known: &BTreeMap<u64, usize>, most: usize) -> (u64, Option<u64>) {
    let fails = known.iter().rev().find(|(_, refused)| **refused > most).map_or(0, |(count, _)| *count);
    let holds = known.range(fails + 1..).find(|(_, refused)| **refused <= most);
    (fails, holds.map(|(count, _)| *count))
}

/// The count to be tried next; `None` if the search is over.
fn next_try(known: &BTreeMap<u64, usize>, guess: u64, most: usize) -> Option<u64> {
    let (fails, holds) = range(known, most);
    let next = match holds {
        None if fails >= MAX_COUNT => return None,
        None => fails.max(1).saturating_mul(if fails < guess { 2 } else { 4 }).min(MAX_COUNT),
        Some(holds) if holds - fails <= (holds / 100).max(1) => return None,
        // The guess is often right, and then the one below it refuses more.
        Some(holds) if holds == guess => guess - 1,
        Some(holds) if fails == 0 => holds / 2,
        Some(holds) => fails + (holds - fails) / 2,
    };
    (!known.contains_key(&next)).then_some(next)
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

    #[test]
    fn a_count_is_suggested_only_if_it_holds() {
        // The guess is right, too low, far too low, too high; the limit as it is suffices; nothing holds.
        for (guess, own, needed) in [
            (44, 10, 44),
            (44, 10, 60),
            (7, 5, 1_000_000),
            (700, 5, 41),
            (7, 5, 5),
            (7, 5, 1),
            (1, 1, 3),
            (1_002_507, 20_000, 900_000_000),
        ] {
            let refuses = |count: u64| if count >= needed { 0 } else { 90 };
            let mut known = BTreeMap::from([(own, refuses(own)), (guess, refuses(guess))]);
            while let Some(next) = next_try(&known, guess, 0) {
                known.insert(next, refuses(next));
                assert!(known.len() < MOST_TRIES, "{guess} {own} {needed}");
            }
            let found = range(&known, 0).1.unwrap();
            assert!(found >= needed && found <= needed + needed / 50, "{guess} {own} {needed}: {found}");
        }
        let known = BTreeMap::from([(5, 1), (10, 1), (MAX_COUNT, 1)]);
        assert_eq!((next_try(&known, 10, 0), range(&known, 0)), (None, (MAX_COUNT, None)));
    }
}
