//! sliding_log: every admitted request holds its places for exactly one period.

use std::collections::VecDeque;

use crate::rate::MAX_LOG_PLACES;
use crate::{Algorithm, Charge, QuotaError, Rate, Receipt, Refusal, Span, Time, Usage};

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
    /// Places that were let go while they were held, as if all were taken at the instant of the newest: see `refused`.
    let_go: Option<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Time,
    cost: u64,
}

impl Log {
    /// A log of these places, in the order in which they were taken.
    pub fn of(places: impl Iterator<Item = (Time, u64)>) -> Self {
        let mut log = Self::default();
        for (at, cost) in places {
            let at = SlidingLog::seen(&log, at);
            SlidingLog::append(&mut log, at, cost);
        }
        log
    }
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

    /// Whether refused requests hold places too.
    pub const fn counts_rejected(&self) -> bool {
        self.count_rejected
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
        if cost == 0 {
            return;
        }
        state.held += cost;
        match state.entries.back_mut() {
            Some(newest) if newest.at == at => newest.cost += cost,
            _ => state.entries.push_back(Entry { at, cost }),
        }
    }

    /// Holds up to `places` of those again that were let go, unless they have become free meanwhile.
    fn hold_again(&self, state: &mut Log, now: Time, places: u64) {
        let Some(hidden) = state.let_go.take().filter(|hidden| self.expiry(hidden) > now) else { return };
        let again = places.min(hidden.cost);
        state.let_go = Some(Entry { cost: hidden.cost - again, ..hidden }).filter(|left| left.cost > 0);
        if again == 0 {
            return;
        }
        state.held += again;
        match state.entries.front_mut().filter(|oldest| oldest.at == hidden.at) {
            Some(oldest) => oldest.cost += again,
            None => state.entries.push_front(Entry { cost: again, ..hidden }),
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

    fn charge(&self, state: &mut Log, now: Time, cost: u64) -> Receipt {
        let now = Self::seen(state, now);
        self.prune(state, now);
        Self::append(state, now, cost);
        Receipt::from_number(now.as_nanos().into())
    }

    fn refused(&self, state: &mut Log, now: Time, cost: u64) {
        if !self.count_rejected || cost > self.rate.count() {
            return;
        }
        self.charge(state, now, cost);
        let now = Self::seen(state, now);
        // While the newest entries fill the log by themselves, an older one decides nothing any more.
        while let Some(oldest) = state.entries.front().filter(|e| state.held - e.cost >= self.rate.count()) {
            let hidden =
                state.let_go.filter(|hidden| self.expiry(hidden) > now).map_or(0, |hidden| hidden.cost);
            state.let_go = Some(Entry { at: oldest.at, cost: hidden.saturating_add(oldest.cost) });
            state.held -= oldest.cost;
            state.entries.pop_front();
        }
    }

    /// No more places than any log has: they fill it for as long as any number of them would.
    fn settle(&self, state: &mut Log, now: Time, cost: u64) {
        self.charge(state, now, cost.min(MAX_LOG_PLACES));
    }

    fn take_back<'c>(
        &self,
        state: &mut Log,
        now: Time,
        charge: Charge,
        _others: impl Iterator<Item = &'c mut Charge>,
    ) {
        let now = Self::seen(state, now);
        self.prune(state, now);
        let found = state.entries.binary_search_by_key(&charge.at, |e| e.at.as_nanos().into());
        let Ok(place) = found else { return };
        let entry = &mut state.entries[place];
        let taken = u64::try_from(charge.amount).unwrap_or(u64::MAX).min(entry.cost);
        entry.cost -= taken;
        state.held -= taken;
        if entry.cost == 0 {
            state.entries.remove(place);
        }
        // Places that were let go decided nothing as long as these were held; now they do again.
        self.hold_again(state, now, taken);
    }

    fn usage(&self, state: &Log, now: Time) -> Usage {
        let seen = Self::seen(state, now);
        let newest = state.entries.back().filter(|e| self.expiry(e) > seen);
        Usage {
            remaining: self.rate.count().saturating_sub(self.held(state, now)),
            capacity: self.rate.count(),
            reset: newest.map_or(Span::ZERO, |e| self.expiry(e).since(now)),
        }
    }

    fn is_idle(&self, state: &Log, now: Time) -> bool {
        self.held(state, now) == 0
    }

    /// Places stay held from the instant they were taken, for the new period. What has become free before stays free.
    /// A log that holds more now holds those again that were let go.
    fn rescale(&self, old: &Self, state: &mut Log, now: Time) {
        let now = Self::seen(state, now);
        old.prune(state, now);
        self.prune(state, now);
        state.let_go = state.let_go.filter(|hidden| old.expiry(hidden) > now);
        self.hold_again(state, now, self.rate.count().saturating_sub(state.held));
    }
}
