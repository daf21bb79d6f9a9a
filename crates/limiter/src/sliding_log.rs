//! sliding_log: every admitted request holds its places for exactly one period.

use std::collections::VecDeque;

use crate::rate::MAX_LOG_PLACES;
use crate::{Algorithm, Charge, QuotaError, Rate, Receipt, Refusal, Span, Time, Usage};

/// Never admits more than N in any window of length W.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    rate: Rate,
    count_rejected: bool,
}

/// The held places, oldest first, and their sum. Requests of one instant share an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    entries: VecDeque<Entry>,
    held: u64,
    /// Places that were dropped before they expired, all with the instant of the newest of them: see `refused`.
    dropped: Option<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Time,
    cost: u64,
}

impl Log {
    /// A log with these places, in the order in which they were taken.
    pub fn of(places: impl Iterator<Item = (Time, u64)>) -> Self {
        let mut log = Self::default();
        for (at, cost) in places {
            let at = SlidingLog::key_time(&log, at);
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

    /// The time for this key: never before its newest entry.
    fn key_time(state: &Log, now: Time) -> Time {
        state.entries.back().map_or(now, |newest| newest.at.max(now))
    }

    fn expiry(&self, entry: &Entry) -> Time {
        entry.at.plus(self.rate.period())
    }

    fn expired(&self, state: &Log, now: Time) -> impl Iterator<Item = u64> {
        state.entries.iter().take_while(move |e| self.expiry(e) <= now).map(|e| e.cost)
    }

    fn held(&self, state: &Log, now: Time) -> u64 {
        state.held - self.expired(state, Self::key_time(state, now)).sum::<u64>()
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

    /// Restores up to `places` of the dropped places that have not expired meanwhile.
    fn restore(&self, state: &mut Log, now: Time, places: u64) {
        let Some(dropped) = state.dropped.take().filter(|dropped| self.expiry(dropped) > now) else { return };
        let restored = places.min(dropped.cost);
        state.dropped = Some(Entry { cost: dropped.cost - restored, ..dropped }).filter(|left| left.cost > 0);
        if restored == 0 {
            return;
        }
        state.held += restored;
        match state.entries.front_mut().filter(|oldest| oldest.at == dropped.at) {
            Some(oldest) => oldest.cost += restored,
            None => state.entries.push_front(Entry { cost: restored, ..dropped }),
        }
    }

    /// The wait until `cost` fits, if the refused request itself takes `extra` places now.
    fn wait(&self, state: &Log, now: Time, cost: u64, extra: u64) -> Span {
        let free_up = (state.held + extra + cost).saturating_sub(self.rate.count());
        let key_time = Self::key_time(state, now);
        let mut freed = 0;
        for entry in &state.entries {
            freed += entry.cost;
            if freed >= free_up {
                return self.expiry(entry).since(now);
            }
        }
        key_time.plus(self.rate.period()).since(now) // its own places expire last
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
        let now = Self::key_time(state, now);
        self.prune(state, now);
        Self::append(state, now, cost);
        Receipt::from_number(now.as_nanos().into())
    }

    fn refused(&self, state: &mut Log, now: Time, cost: u64) {
        if !self.count_rejected || cost > self.rate.count() {
            return;
        }
        self.charge(state, now, cost);
        let now = Self::key_time(state, now);
        // If the newer entries alone fill the log, the oldest one has no effect.
        while let Some(oldest) = state.entries.front().filter(|e| state.held - e.cost >= self.rate.count()) {
            let dropped =
                state.dropped.filter(|dropped| self.expiry(dropped) > now).map_or(0, |dropped| dropped.cost);
            state.dropped = Some(Entry { at: oldest.at, cost: dropped.saturating_add(oldest.cost) });
            state.held -= oldest.cost;
            state.entries.pop_front();
        }
    }

    /// At most the places of the largest log: more would not fill it for longer.
    fn settle(&self, state: &mut Log, now: Time, cost: u64) {
        self.charge(state, now, cost.min(MAX_LOG_PLACES));
    }

    fn take_back(&self, state: &mut Log, now: Time, charge: Charge, _others: &mut [Charge]) {
        let now = Self::key_time(state, now);
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
        // The dropped places had no effect while these were held; now they have.
        self.restore(state, now, taken);
    }

    fn usage(&self, state: &Log, now: Time) -> Usage {
        let key_time = Self::key_time(state, now);
        let newest = state.entries.back().filter(|e| self.expiry(e) > key_time);
        Usage {
            remaining: self.rate.count().saturating_sub(self.held(state, now)),
            capacity: self.rate.count(),
            reset: newest.map_or(Span::ZERO, |e| self.expiry(e).since(now)),
        }
    }

    fn is_idle(&self, state: &Log, now: Time) -> bool {
        self.held(state, now) == 0
    }

    /// Places stay held from the instant at which they were taken, for the new period. Expired places stay expired. If the
    /// log has room for more places now, dropped ones are restored.
    fn rescale(&self, old: &Self, state: &mut Log, now: Time) {
        let now = Self::key_time(state, now);
        old.prune(state, now);
        self.prune(state, now);
        state.dropped = state.dropped.filter(|dropped| old.expiry(dropped) > now);
        self.restore(state, now, self.rate.count().saturating_sub(state.held));
    }
}
