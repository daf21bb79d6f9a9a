//! fixed_window: a count that starts again at whole multiples of the period since the Unix epoch.

use crate::{Algorithm, Rate, Receipt, Refusal, Span, Standing, Time};

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
        if window.used + cost <= self.rate.count() {
            Ok(Span::ZERO)
        } else {
            Err(Refusal::Until(self.until_end(window, now)))
        }
    }

    fn charge(&self, state: &mut Window, now: Time, cost: u64) -> Receipt {
        *state = self.current(state, now);
        state.used += cost;
        Receipt::from_number(state.index.into())
    }

    fn refund(&self, state: &mut Window, _now: Time, cost: u64, receipt: Receipt) {
        if u128::from(state.index) == receipt.number() {
            state.used = state.used.saturating_sub(cost);
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
        let begun = u128::from(window.index) * u128::from(old.period()) / u128::from(self.period());
        let index = (now.as_nanos() / self.period()).max(u64::try_from(begun).unwrap_or(u64::MAX));
        *state = Window { index, used: window.used };
    }
}
