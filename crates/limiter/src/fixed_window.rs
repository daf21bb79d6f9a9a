//! fixed_window: a count that is reset at whole multiples of the period since the Unix epoch, or at the boundaries of a
//! calendar.

use crate::{Algorithm, Calendar, Charge, Rate, Receipt, Refusal, Span, Time, Usage};

/// Admits N in each window. Windows are the same for all keys and all gateways.
#[derive(Clone, Copy, Debug)]
pub struct FixedWindow {
    rate: Rate,
    calendar: Option<&'static Calendar>,
}

/// The window of the last charge, and the sum of its charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The number of periods since the Unix epoch; with a calendar, the second in which the window began.
    index: u64,
    used: u64,
}

impl Window {
    /// `used` in the window with this index since the Unix epoch or, with a calendar, in the window that began in this
    /// second.
    pub const fn new(index: u64, used: u64) -> Self {
        Self { index, used }
    }
}

/// Windows with calendars are equal if they share the calendar.
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

    /// `rate.count()` in each period of a calendar, which replaces the period of the rate.
    pub const fn with_calendar(rate: Rate, calendar: &'static Calendar) -> Self {
        Self { rate, calendar: Some(calendar) }
    }

    /// The calendar, if it has one.
    pub const fn calendar(&self) -> Option<&'static Calendar> {
        self.calendar
    }

    /// The length of the window of `now`; that of the longest window if it has no end.
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

    /// The start of a window, in nanoseconds.
    fn start(&self, index: u64) -> u128 {
        let unit = self.calendar.map_or(self.period(), |_| Span::SECOND.as_nanos());
        u128::from(index) * u128::from(unit)
    }

    /// The end of a window, in nanoseconds.
    fn end(&self, index: u64) -> u128 {
        match self.calendar {
            None => (u128::from(index) + 1) * u128::from(self.period()),
            Some(calendar) => calendar.end(index).map_or(u128::MAX, |end| self.start(end)),
        }
    }

    /// The state at `now`: an older window is over; a later one still counts, because the clock was set back.
    fn window_at(&self, state: &Window, now: Time) -> Window {
        let index = self.index(now);
        if state.index >= index { *state } else { Window { index, used: 0 } }
    }

    /// The window to which the charges in window `index` of `old` are moved at `now`: the current one, or after the clock
    /// was set back the one in which that window began.
    fn index_of(&self, old: &Self, index: u64, now: Time) -> u64 {
        let begun = u64::try_from(old.start(index)).unwrap_or(u64::MAX);
        self.index(now).max(self.index(Time::from_nanos(begun)))
    }

    /// The time until the window of `now` ends.
    pub fn window_left(&self, now: Time) -> Span {
        self.until_end(Window { index: self.index(now), used: 0 }, now)
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
        let window = self.window_at(state, now);
        if window.used.saturating_add(cost) <= self.rate.count() {
            Ok(Span::ZERO)
        } else {
            Err(Refusal::Until(self.until_end(window, now)))
        }
    }

    fn charge(&self, state: &mut Window, now: Time, cost: u64) -> Receipt {
        *state = self.window_at(state, now);
        state.used = state.used.saturating_add(cost);
        Receipt::from_number(state.index.into())
    }

    fn take_back(&self, state: &mut Window, _now: Time, charge: Charge, _others: &mut [Charge]) {
        if u128::from(state.index) == charge.at {
            state.used = u128::from(state.used).saturating_sub(charge.amount) as u64; // not more than it was
        }
    }

    /// A charge in a window that was over when the quota changed is worth nothing.
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
        let window = self.window_at(state, now);
        Usage {
            remaining: self.rate.count().saturating_sub(window.used),
            capacity: self.rate.count(),
            reset: if window.used == 0 { Span::ZERO } else { self.until_end(window, now) },
        }
    }

    fn is_idle(&self, state: &Window, now: Time) -> bool {
        self.window_at(state, now).used == 0
    }

    /// The charges of the current window are moved to the current window of the new period. After the clock was set back,
    /// a later window stays in force.
    fn rescale(&self, old: &Self, state: &mut Window, now: Time) {
        if self.same_windows(old) {
            return;
        }
        let window = old.window_at(state, now);
        *state = Window { index: self.index_of(old, window.index, now), used: window.used };
    }
}
