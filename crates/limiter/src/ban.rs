//! A ban: after a number of refusals within a time, a key is refused for a while, independently of its usage.

use std::collections::VecDeque;

use crate::{Algorithm, Charge, Receipt, Refusal, Span, Time, Usage};

/// The largest `after` of a ban: so many refusals are stored per key.
pub const MAX_BAN_AFTER: u64 = 1_000;

/// The `after`-th refusal within `within` begins a ban of `span`; that refusal is already part of the ban.
///
/// A ban is an algorithm too, which charges refusals only: `check` tells whether the key is banned, and `refused` counts.
/// A refusal expires exactly `within` after it. When a ban begins, the counted refusals are forgotten, so that none counts
/// towards two bans. Refusals during a ban are not counted, so a ban is never extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    after: u64,
    within: Span,
    span: Span,
}

/// The ban of a key, or the refusals that count towards one.
///
/// The instants of refusals are stored instead of counts per window, because `within` is exact. There are at most
/// `after` − 1 of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strikes {
    /// When the ban ends; in the past if there is none.
    until: Time,
    /// The refusals that have not expired, oldest first.
    at: VecDeque<Time>,
}

impl Ban {
    /// A ban of `span` after `after` refusals within `within`. `None` if `after` is not within 1 to
    /// [`MAX_BAN_AFTER`].
    pub fn new(after: u64, within: Span, span: Span) -> Option<Self> {
        (1..=MAX_BAN_AFTER).contains(&after).then_some(Self { after, within, span })
    }

    /// The number of refusals that begins it.
    pub const fn after(&self) -> u64 {
        self.after
    }

    /// The time within which they count.
    pub const fn within(&self) -> Span {
        self.within
    }

    /// The length of the ban.
    pub const fn span(&self) -> Span {
        self.span
    }

    /// What is left of the ban of a key; `None` if it is not banned.
    pub fn left(&self, strikes: &Strikes, now: Time) -> Option<Span> {
        Some(strikes.until.since(now)).filter(|left| !left.is_zero())
    }

    fn counts_at(&self, at: Time, now: Time) -> bool {
        now.since(at) < self.within
    }
}

impl Strikes {
    /// The state of a key that is banned until `until`.
    pub fn until(until: Time) -> Self {
        Self { until, at: VecDeque::new() }
    }

    /// The state as a store returned it: banned until `until`, with `refusals` that count at `now`. It is valid at `now`
    /// only.
    pub fn from_store(until: Time, refusals: u64, now: Time) -> Self {
        Self { until, at: (0..refusals.min(MAX_BAN_AFTER)).map(|_| now).collect() }
    }
}

impl Algorithm for Ban {
    type State = Strikes;

    fn check(&self, state: &Strikes, now: Time, _cost: u64) -> Result<Span, Refusal> {
        self.left(state, now).map_or(Ok(Span::ZERO), |left| Err(Refusal::Banned(left)))
    }

    /// Admitted requests are not counted.
    fn charge(&self, _state: &mut Strikes, _now: Time, _cost: u64) -> Receipt {
        Receipt::default()
    }

    fn refused(&self, state: &mut Strikes, now: Time, _cost: u64) {
        if self.left(state, now).is_some() {
            return; // otherwise it would never end for a client that retries
        }
        while state.at.front().is_some_and(|at| !self.counts_at(*at, now)) {
            state.at.pop_front();
        }
        if state.at.len() as u64 + 1 >= self.after {
            *state = Strikes::until(now.plus(self.span));
        } else {
            // Threads read the clock before they lock the key, so `now` may be earlier than the last refusal.
            let last = state.at.back().copied().unwrap_or(now);
            state.at.push_back(last.max(now));
        }
    }

    fn take_back(&self, _state: &mut Strikes, _now: Time, _charge: Charge, _others: &mut [Charge]) {}

    /// The refusals that are left until the next ban.
    fn usage(&self, state: &Strikes, now: Time) -> Usage {
        let counted = state.at.iter().filter(|at| self.counts_at(**at, now)).count() as u64;
        let capacity = self.after;
        if let Some(left) = self.left(state, now) {
            return Usage { remaining: 0, capacity, reset: left };
        }
        let reset = state.at.back().map_or(Span::ZERO, |last| last.plus(self.within).since(now));
        Usage { remaining: capacity.saturating_sub(counted), capacity, reset }
    }

    fn is_idle(&self, state: &Strikes, now: Time) -> bool {
        self.left(state, now).is_none() && !state.at.back().is_some_and(|last| self.counts_at(*last, now))
    }

    /// A ban ends at its time, or earlier if bans are shorter now. Counted refusals stay counted.
    fn rescale(&self, _old: &Self, state: &mut Strikes, now: Time) {
        state.until = state.until.min(now.plus(self.span));
    }
}
