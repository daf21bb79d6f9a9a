//! A ban: after so many refusals within some time a key is refused for a while, whatever it then has left.

use std::collections::VecDeque;

use crate::{Algorithm, Charge, Receipt, Refusal, Span, Time, Usage};

/// The most refusals that a ban may wait for: each is remembered until it is out of sight.
pub const MAX_BAN_AFTER: u64 = 1_000;

/// The refusal that is the `after`-th within `within` begins a ban of `span`, which that refusal is part of.
///
/// It stands beside the algorithm of a limit and is one itself, which charges nothing but refusals: `check` says
/// whether the key is banned, and `refused` counts. A refusal is out of sight at exactly `within` after it. A ban
/// begins with a clean sheet, so that what led to one never leads to the next, and what is refused while it lasts is
/// not to be counted: it ends when it was said to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    after: u64,
    within: Span,
    span: Span,
}

/// The ban of a key, or what counts towards one.
///
/// Instants are kept and not counts by window: only they tell whether the last refusals were within the time, and not
/// about so. They are at most as many as begin a ban, less one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strikes {
    /// When the ban ends; in the past where there is none.
    until: Time,
    /// The refusals that are in sight, oldest first.
    at: VecDeque<Time>,
}

impl Ban {
    /// A ban of `span` after `after` refusals within `within`. `None` if `after` is not within 1 to
    /// [`MAX_BAN_AFTER`].
    pub fn new(after: u64, within: Span, span: Span) -> Option<Self> {
        (1..=MAX_BAN_AFTER).contains(&after).then_some(Self { after, within, span })
    }

    /// The refusals that begin it.
    pub const fn after(&self) -> u64 {
        self.after
    }

    /// The time within which they count.
    pub const fn within(&self) -> Span {
        self.within
    }

    /// How long it lasts.
    pub const fn span(&self) -> Span {
        self.span
    }

    /// What is left of the ban of a key; `None` if it is not banned.
    pub fn left(&self, strikes: &Strikes, now: Time) -> Option<Span> {
        Some(strikes.until.since(now)).filter(|left| !left.is_zero())
    }

    fn in_sight(&self, at: Time, now: Time) -> bool {
        now.since(at) < self.within
    }
}

impl Strikes {
    /// Of a key that is banned until then.
    pub fn until(until: Time) -> Self {
        Self { until, at: VecDeque::new() }
    }

    /// As somebody else tells it: banned until then, and so many refusals in sight at `now`. It is good at `now` only.
    pub fn told(until: Time, refusals: u64, now: Time) -> Self {
        Self { until, at: (0..refusals.min(MAX_BAN_AFTER)).map(|_| now).collect() }
    }
}

impl Algorithm for Ban {
    type State = Strikes;

    fn check(&self, state: &Strikes, now: Time, _cost: u64) -> Result<Span, Refusal> {
        self.left(state, now).map_or(Ok(Span::ZERO), |left| Err(Refusal::Banned(left)))
    }

    /// Nothing: who is admitted is nobody's concern here.
    fn charge(&self, _state: &mut Strikes, _now: Time, _cost: u64) -> Receipt {
        Receipt::default()
    }

    fn refused(&self, state: &mut Strikes, now: Time, _cost: u64) {
        if self.left(state, now).is_some() {
            return; // or it would never end for who keeps asking
        }
        while state.at.front().is_some_and(|at| !self.in_sight(*at, now)) {
            state.at.pop_front();
        }
        if state.at.len() as u64 + 1 >= self.after {
            *state = Strikes::until(now.plus(self.span));
        } else {
            // Threads read the clock before they get here: one that comes late counts as the last that was here.
            let last = state.at.back().copied().unwrap_or(now);
            state.at.push_back(last.max(now));
        }
    }

    fn take_back<'c>(
        &self,
        _state: &mut Strikes,
        _now: Time,
        _charge: Charge,
        _others: impl Iterator<Item = &'c mut Charge>,
    ) {
    }

    /// The refusals that are left until the next ban.
    fn usage(&self, state: &Strikes, now: Time) -> Usage {
        let seen = state.at.iter().filter(|at| self.in_sight(**at, now)).count() as u64;
        let capacity = self.after;
        if let Some(left) = self.left(state, now) {
            return Usage { remaining: 0, capacity, reset: left };
        }
        let reset = state.at.back().map_or(Span::ZERO, |last| last.plus(self.within).since(now));
        Usage { remaining: capacity.saturating_sub(seen), capacity, reset }
    }

    fn is_idle(&self, state: &Strikes, now: Time) -> bool {
        self.left(state, now).is_none() && !state.at.back().is_some_and(|last| self.in_sight(*last, now))
    }

    /// A ban that stands ends when it was said to, or earlier if bans are shorter now; refusals that were counted count
    /// on.
    fn rescale(&self, _old: &Self, state: &mut Strikes, now: Time) {
        state.until = state.until.min(now.plus(self.span));
    }
}
