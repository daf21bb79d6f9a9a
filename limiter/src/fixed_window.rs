//! fixed_window: a count that starts again at whole multiples of the period since the Unix epoch.

use crate::{Algorithm, Charge, Rate, Receipt, Refusal, Span, Standing, Time};

/// Admits N in each window. Windows are aligned to UTC, so all gateways agree on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    rate: Rate,
}

/// The window that was last spent in, and what was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    index: u64,
    used: u64,
}

impl Window {
    /// So much used in the window of this index since the Unix epoch.
    pub const fn new(index: u64, used: u64) -> Self {
        Self { index, used }
    }
}

impl FixedWindow {
    /// `rate.count()` in each window of `rate.period()`.
    pub const fn new(rate: Rate) -> Self {
        Self { rate }
    }

    fn period(&self) -> u64 {
        self.rate.period().as_nanos()
    }

    /// The state as of `now`: an older window is over, a later one (the clock stepped back) still counts.
    fn current(&self, state: &Window, now: Time) -> Window {
        let index = now.as_nanos() / self.period();
        if state.index >= index { *state } else { Window { index, used: 0 } }
    }

    /// The window that takes over at `now` what was spent in the window `index` of `old`: the current one, or the one
    /// in which that began if the clock has not come back to it yet.
    fn index_of(&self, old: &Self, index: u64, now: Time) -> u64 {
        let begun = u128::from(index) * u128::from(old.period()) / u128::from(self.period());
        (now.as_nanos() / self.period()).max(u64::try_from(begun).unwrap_or(u64::MAX))
    }

    fn until_end(&self, window: Window, now: Time) -> Span {
        let end = u128::from(window.index + 1) * u128::from(self.period());
        Span::saturating_from(end.saturating_sub(u128::from(now.as_nanos())))
    }
}

impl Algorithm for FixedWindow {
    type State = Window;

    fn check(&self, state: &Window, now: Time, cost: u64) -> Result<Span, Refusal> {
        if cost > self.rate.count() {
            return Err(Refusal::Never);
        }
        let window = self.current(state, now);
        if window.used.saturating_add(cost) <= self.rate.count() {
            Ok(Span::ZERO)
        } else {
            Err(Refusal::Until(self.until_end(window, now)))
        }
    }

    fn charge(&self, state: &mut Window, now: Time, cost: u64) -> Receipt {
        *state = self.current(state, now);
        state.used = state.used.saturating_add(cost);
        Receipt::from_number(state.index.into())
    }

    fn take_back<'c>(
        &self,
        state: &mut Window,
        _now: Time,
        charge: Charge,
        _others: impl Iterator<Item = &'c mut Charge>,
    ) {
        if u128::from(state.index) == charge.at {
            state.used = u128::from(state.used).saturating_sub(charge.amount) as u64; // not more than it was
        }
    }

    /// A charge in a window that was over when the quota changed has gone with it.
    fn carry(&self, old: &Self, _state: &Window, now: Time, charges: &mut [Charge]) {
        if old.period() == self.period() {
            return;
        }
        for charge in charges {
            *charge = match u64::try_from(charge.at) {
                Ok(index) if index >= now.as_nanos() / old.period() => {
                    Charge { at: self.index_of(old, index, now).into(), ..*charge }
                }
                _ => Charge::NONE,
            };
        }
    }

    fn standing(&self, state: &Window, now: Time) -> Standing {
        let window = self.current(state, now);
        Standing {
            remaining: self.rate.count().saturating_sub(window.used),
            capacity: self.rate.count(),
            reset: if window.used == 0 { Span::ZERO } else { self.until_end(window, now) },
        }
    }

    fn is_idle(&self, state: &Window, now: Time) -> bool {
        self.current(state, now).used == 0
    }

    /// What was spent in the current window stays spent, in the current window of the new period. A window that
    /// the clock has not come back to yet is not left.
    fn rescale(&self, old: &Self, state: &mut Window, now: Time) {
        if old.period() == self.period() {
            return;
        }
        let window = old.current(state, now);
        *state = Window { index: self.index_of(old, window.index, now), used: window.used };
    }
}
