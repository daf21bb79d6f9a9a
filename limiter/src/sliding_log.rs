//! sliding_log: every admitted request holds its places for exactly one period.

use std::collections::VecDeque;

use crate::quota::MAX_LOG_PLACES;
use crate::{Algorithm, QuotaError, Rate, Refusal, Span, Standing, Time};

/// Admits never more than N in any window of length W.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    rate: Rate,
    count_rejected: bool,
}

/// The places that are held, oldest first, and their sum. Requests of one instant share an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    entries: VecDeque<Entry>,
    held: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Time,
    cost: u64,
}

impl SlidingLog {
    /// `rate.count()` in any window of `rate.period()`; with `count_rejected`, refused requests hold places too.
    ///
    /// # Errors
    /// When the count is above [`MAX_LOG_PLACES`].
    pub fn new(rate: Rate, count_rejected: bool) -> Result<Self, QuotaError> {
        if rate.count() > MAX_LOG_PLACES {
            return Err(QuotaError::LogPlaces(rate.count()));
        }
        Ok(Self { rate, count_rejected })
    }

    /// The time as this key has seen it: never before its newest entry.
    fn seen(state: &Log, now: Time) -> Time {
        state.entries.back().map_or(now, |newest| newest.at.max(now))
    }

    fn expiry(&self, entry: &Entry) -> Time {
        entry.at.plus(self.rate.period())
    }

    fn expired(&self, state: &Log, now: Time) -> impl Iterator<Item = u64> {
        state.entries.iter().take_while(move |e| self.expiry(e) <= now).map(|e| e.cost)
    }

    fn held(&self, state: &Log, now: Time) -> u64 {
        state.held - self.expired(state, Self::seen(state, now)).sum::<u64>()
    }

    fn prune(&self, state: &mut Log, now: Time) {
        while let Some(oldest) = state.entries.front().filter(|e| self.expiry(e) <= now) {
            state.held -= oldest.cost;
            state.entries.pop_front();
        }
    }

    fn append(state: &mut Log, at: Time, cost: u64) {
        state.held += cost;
        match state.entries.back_mut() {
            Some(newest) if newest.at == at => newest.cost += cost,
            _ => state.entries.push_back(Entry { at, cost }),
        }
    }

    /// The wait until `cost` fits, when `extra` places are taken now by the refused request itself.
    fn wait(&self, state: &Log, now: Time, cost: u64, extra: u64) -> Span {
        let free_up = (state.held + extra + cost).saturating_sub(self.rate.count());
        let seen = Self::seen(state, now);
        let mut freed = 0;
        for entry in &state.entries {
            freed += entry.cost;
            if freed >= free_up {
                return self.expiry(entry).since(now);
            }
        }
        seen.plus(self.rate.period()).since(now) // its own places are the last to become free
    }
}

impl Algorithm for SlidingLog {
    type State = Log;

    fn check(&self, state: &Log, now: Time, cost: u64) -> Result<Span, Refusal> {
        if cost > self.rate.count() {
            return Err(Refusal::Never);
        }
        if self.held(state, now) + cost <= self.rate.count() {
            return Ok(Span::ZERO);
        }
        let own = if self.count_rejected { cost } else { 0 };
        Err(Refusal::Until(self.wait(state, now, cost, own)))
    }

    fn charge(&self, state: &mut Log, now: Time, cost: u64) {
        let now = Self::seen(state, now);
        self.prune(state, now);
        Self::append(state, now, cost);
    }

    fn refused(&self, state: &mut Log, now: Time, cost: u64) {
        if !self.count_rejected || cost > self.rate.count() {
            return;
        }
        self.charge(state, now, cost);
        // While the newest entries fill the log by themselves, an older one decides nothing any more.
        while let Some(oldest) = state.entries.front().filter(|e| state.held - e.cost >= self.rate.count()) {
            state.held -= oldest.cost;
            state.entries.pop_front();
        }
    }

    fn refund(&self, state: &mut Log, now: Time, cost: u64) {
        let now = Self::seen(state, now);
        self.prune(state, now);
        let mut left = cost.min(state.held);
        state.held -= left;
        while let Some(newest) = state.entries.back_mut().filter(|_| left > 0) {
            let taken = newest.cost.min(left);
            newest.cost -= taken;
            left -= taken;
            if newest.cost == 0 {
                state.entries.pop_back();
            }
        }
    }

    fn standing(&self, state: &Log, now: Time) -> Standing {
        let seen = Self::seen(state, now);
        let newest = state.entries.back().filter(|e| self.expiry(e) > seen);
        Standing {
            remaining: self.rate.count().saturating_sub(self.held(state, now)),
            capacity: self.rate.count(),
            reset: newest.map_or(Span::ZERO, |e| self.expiry(e).since(now)),
        }
    }

    fn is_idle(&self, state: &Log, now: Time) -> bool {
        self.held(state, now) == 0
    }

    /// Places stay held from the instant they were taken, for the new period.
    fn rescale(&self, old: &Self, state: &mut Log, now: Time) {
        old.prune(state, Self::seen(state, now));
        self.prune(state, Self::seen(state, now));
    }
}
