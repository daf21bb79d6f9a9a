//! fixed_window: a count that starts again at whole multiples of the period since the Unix epoch, or when a calendar
//! says so.

use crate::{Algorithm, Calendar, Charge, Rate, Receipt, Refusal, Span, Time, Usage};

/// Admits N in each window. Windows are the same for everybody, so all gateways agree on them.
#[derive(Clone, Copy, Debug)]
pub struct FixedWindow {
    rate: Rate,
    calendar: Option<&'static Calendar>,
}

/// The window that was last spent in, and what was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// How many periods it began after the Unix epoch; with a calendar, how many seconds.
    index: u64,
    used: u64,
}

impl Window {
    /// So much used in a window: that of this index since the Unix epoch or, with a calendar, the one that began in this
    /// second.
    pub const fn new(index: u64, used: u64) -> Self {
        Self { index, used }
    }
}

/// Two windows with calendars are the same if they share one.
impl PartialEq for FixedWindow {
    fn eq(&self, other: &Self) -> bool {
        self.rate == other.rate && self.same_windows(other)
    }
}

impl Eq for FixedWindow {}

impl FixedWindow {
    /// `rate.count()` in each window of `rate.period()`.
    pub const fn new(rate: Rate) -> Self {
        Self { rate, calendar: None }
    }

    /// `rate.count()` in each period of a calendar, whatever the period of the rate.
    pub const fn with_calendar(rate: Rate, calendar: &'static Calendar) -> Self {
        Self { rate, calendar: Some(calendar) }
    }

    /// The calendar, if it has one.
    pub const fn calendar(&self) -> Option<&'static Calendar> {
        self.calendar
    }

    /// The length of the window that `now` is in; the longest if that has no end.
    pub fn length(&self, now: Time) -> Span {
        let Some(calendar) = self.calendar else { return self.rate.period() };
        let start = calendar.start(now);
        calendar.end(start).map_or(calendar.longest(), |end| Span::from_secs(end - start))
    }

    fn period(&self) -> u64 {
        self.rate.period().as_nanos()
    }

    fn same_windows(&self, other: &Self) -> bool {
        match (self.calendar, other.calendar) {
            (None, None) => self.period() == other.period(),
            (Some(own), Some(other)) => std::ptr::eq(own, other),
            _ => false,
        }
    }

    fn index(&self, now: Time) -> u64 {
        self.calendar.map_or_else(|| now.as_nanos() / self.period(), |calendar| calendar.start(now))
    }

    /// When a window begins, in nanoseconds.
    fn start(&self, index: u64) -> u128 {
        let unit = self.calendar.map_or(self.period(), |_| Span::SECOND.as_nanos());
        u128::from(index) * u128::from(unit)
    }

    /// When a window ends, in nanoseconds.
    fn end(&self, index: u64) -> u128 {
        match self.calendar {
            None => (u128::from(index) + 1) * u128::from(self.period()),
            Some(calendar) => calendar.end(index).map_or(u128::MAX, |end| self.start(end)),
        }
    }

    /// The state as of `now`: an older window is over, a later one (the clock stepped back) still counts.
    fn current(&self, state: &Window, now: Time) -> Window {
        let index = self.index(now);
        if state.index >= index { *state } else { Window { index, used: 0 } }
    }

    /// The window that takes over at `now` what was spent in the window `index` of `old`: the current one, or the one
    /// in which that began if the clock has not come back to it yet.
    fn index_of(&self, old: &Self, index: u64, now: Time) -> u64 {
        let begun = u64::try_from(old.start(index)).unwrap_or(u64::MAX);
        self.index(now).max(self.index(Time::from_nanos(begun)))
    }

    fn until_end(&self, window: Window, now: Time) -> Span {
        Span::saturating_from(self.end(window.index).saturating_sub(u128::from(now.as_nanos())))
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
        if self.same_windows(old) {
            return;
        }
        for charge in charges {
            *charge = match u64::try_from(charge.at) {
                Ok(index) if index >= old.index(now) => {
                    Charge { at: self.index_of(old, index, now).into(), ..*charge }
                }
                _ => Charge::NONE,
            };
        }
    }

    fn usage(&self, state: &Window, now: Time) -> Usage {
        let window = self.current(state, now);
        Usage {
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
        if self.same_windows(old) {
            return;
        }
        let window = old.current(state, now);
        *state = Window { index: self.index_of(old, window.index, now), used: window.used };
    }
}
