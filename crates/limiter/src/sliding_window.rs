//! sliding_window: counts of sub-windows; the oldest is weighted by its share that is still inside the window, or, if the
//! limit is strict, counts in full.

use std::cmp::Ordering;

use crate::rate::MAX_SLICES;
use crate::{Algorithm, Charge, QuotaError, Rate, Receipt, Refusal, Span, Time, Usage};

/// Admits while the estimate over the last period, rounded down, has room for the cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    rate: Rate,
    slices: u32,
    strict: bool,
}

/// The counts of the current sub-window and of the `slices` before it, newest first; empty for a new key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slices {
    index: u64,
    counts: Box<[u64]>,
}

/// The largest count of a sub-window, so that the sum of 1,001 fits a double, in which a store computes. A quota admits at most
/// [`MAX_COUNT`](crate::MAX_COUNT): a window that is above it by more than this factor of 4,398 is refused as if it were not.
const MOST: u64 = (1 << 42) - 1;

/// A point in time in units of 1/slices ns, in which the length of a sub-window is a whole number: the nanoseconds of the
/// period.
#[derive(Clone, Copy)]
struct Position {
    index: u64,
    inside: u64,
}

impl SlidingWindow {
    /// `rate` estimated over `slices` sub-windows; 1 is the usual form with two counters.
    ///
    /// # Errors
    /// When `slices` is outside 1 to [`MAX_SLICES`].
    pub fn new(rate: Rate, slices: u32) -> Result<Self, QuotaError> {
        if !(1..=MAX_SLICES).contains(&slices) {
            return Err(QuotaError::Slices(slices));
        }
        Ok(Self { rate, slices, strict: false })
    }

    /// The same, but the oldest sub-window counts in full as long as a part of it is inside the window. Then no window of
    /// one period, wherever it begins, admits more than the count of the rate. A key is free again up to one sub-window
    /// later than by an exact log.
    #[must_use]
    pub const fn strict(self) -> Self {
        Self { strict: true, ..self }
    }

    /// Whether the oldest sub-window counts in full.
    pub const fn is_strict(&self) -> bool {
        self.strict
    }

    /// The state of a key whose newest sub-window has this index since the Unix epoch, with the counts of it and of the
    /// sub-windows before it, newest first.
    pub fn state(&self, index: u64, counts: impl Iterator<Item = u64>) -> Slices {
        let mut all = vec![0; self.slices as usize + 1];
        let mut any = false;
        for (place, count) in all.iter_mut().zip(counts) {
            *place = count.min(MOST);
            any |= count > 0;
        }
        if any { Slices { index, counts: all.into_boxed_slice() } } else { Slices::default() }
    }

    /// The sub-windows of a period.
    pub const fn slices(&self) -> u32 {
        self.slices
    }

    fn period(&self) -> u64 {
        self.rate.period().as_nanos()
    }

    /// The position of `now`, but not before the newest sub-window of the key: the clock may have been set back.
    fn position(&self, state: &Slices, now: Time) -> Position {
        let position = self.position_of(now);
        if !state.counts.is_empty() && state.index > position.index {
            return Position { index: state.index, inside: 0 };
        }
        position
    }

    fn position_of(&self, now: Time) -> Position {
        let scaled = u128::from(now.as_nanos()) * u128::from(self.slices);
        let period = u128::from(self.period());
        Position { index: (scaled / period) as u64, inside: (scaled % period) as u64 }
    }

    /// The time until the sub-window of `now` ends.
    pub fn slice_left(&self, now: Time) -> Span {
        let end = (u128::from(self.position_of(now).index) + 1) * u128::from(self.period());
        let nanos = end.div_ceil(u128::from(self.slices));
        Span::saturating_from(nanos.saturating_sub(u128::from(now.as_nanos())))
    }

    fn same_slices(&self, old: &Self) -> bool {
        old.period() == self.period() && old.slices == self.slices
    }

    /// The count of the sub-window that is `age` before the one at `index`.
    fn count(state: &Slices, index: u64, age: u64) -> u64 {
        // The sub-window index − age, in the state's own numbering.
        (state.index + age)
            .checked_sub(index)
            .and_then(|place| state.counts.get(usize::try_from(place).ok()?))
            .copied()
            .unwrap_or_default()
    }

    /// The sum of the counts at `index` that count in full, and the oldest count, which is weighted.
    fn parts(&self, state: &Slices, index: u64) -> (u64, u64) {
        let whole = (0..u64::from(self.slices)).map(|age| Self::count(state, index, age)).sum();
        (whole, Self::count(state, index, u64::from(self.slices)))
    }

    /// The part of the period for which the oldest sub-window counts, in units of 1/period, at a position of the newest.
    fn weight(&self, inside: u64) -> u64 {
        if self.strict { self.period() } else { self.period() - inside }
    }

    fn estimate(&self, state: &Slices, at: Position) -> u64 {
        let (whole, oldest) = self.parts(state, at.index);
        let share = u128::from(oldest) * u128::from(self.weight(at.inside)) / u128::from(self.period());
        whole + share as u64
    }

    /// The time from `now` to the first instant at which the estimate is at most `target`.
    fn wait(&self, state: &Slices, now: Time, target: u64) -> Span {
        let at = self.position(state, now);
        let period = u128::from(self.period());
        let (mut whole, mut oldest) = self.parts(state, at.index);
        for ahead in 0..=u64::from(self.slices) + 1 {
            if let Some(room) = target.checked_sub(whole) {
                let inside = match () {
                    () if oldest <= room => 0,
                    () if self.strict => period, // the oldest sub-window counts until the next one begins
                    // floor(oldest · (period − inside) / period) ≤ room holds from this point of the sub-window on.
                    () => period - ((u128::from(room) + 1) * period - 1) / u128::from(oldest),
                };
                let scaled = u128::from(at.index + ahead) * period + inside;
                let nanos = scaled.div_ceil(u128::from(self.slices));
                return Span::saturating_from(nanos.saturating_sub(u128::from(now.as_nanos())));
            }
            oldest = Self::count(state, at.index + ahead, u64::from(self.slices) - 1);
            whole -= oldest;
        }
        Span::MAX // unreachable: after slices + 1 sub-windows all counts are zero
    }

    /// Shifts the counts so that the current sub-window is the newest.
    fn advance(&self, state: &mut Slices, now: Time) {
        let index = self.position(state, now).index;
        let size = self.slices as usize + 1;
        if state.counts.len() != size {
            *state = Slices { index, counts: vec![0; size].into_boxed_slice() };
            return;
        }
        let steps = usize::try_from(index - state.index).unwrap_or(size).min(size);
        state.counts.rotate_right(steps);
        state.counts[..steps].fill(0);
        state.index = index;
    }
}

impl Algorithm for SlidingWindow {
    type State = Slices;

    fn check(&self, state: &Slices, now: Time, cost: u64) -> Result<Span, Refusal> {
        let Some(target) = self.rate.count().checked_sub(cost) else {
            return Err(Refusal::Never);
        };
        if self.estimate(state, self.position(state, now)) <= target {
            Ok(Span::ZERO)
        } else {
            Err(Refusal::Until(self.wait(state, now, target)))
        }
    }

    fn charge(&self, state: &mut Slices, now: Time, cost: u64) -> Receipt {
        self.advance(state, now);
        state.counts[0] = state.counts[0].saturating_add(cost).min(MOST);
        Receipt::from_number(state.index.into())
    }

    fn take_back(&self, state: &mut Slices, _now: Time, charge: Charge, _others: &mut [Charge]) {
        let age = u128::from(state.index).checked_sub(charge.at);
        let place = age.and_then(|age| usize::try_from(age).ok());
        if let Some(count) = place.and_then(|place| state.counts.get_mut(place)) {
            *count = u128::from(*count).saturating_sub(charge.amount) as u64; // not more than it was
        }
    }

    /// If the sub-windows change, the estimate is moved to the current one. A charge in the oldest sub-window is then worth
    /// the share that still counted, rounded down.
    fn carry(&self, old: &Self, _state: &Slices, now: Time, charges: &mut [Charge]) {
        if self.same_slices(old) {
            return;
        }
        let (then, at) = (old.position_of(now), self.position_of(now).index.into());
        for charge in charges {
            let age = u128::from(then.index).saturating_sub(charge.at);
            let share = match age.cmp(&u128::from(old.slices)) {
                Ordering::Less => old.period(),
                Ordering::Equal => old.weight(then.inside),
                Ordering::Greater => 0,
            };
            let amount = charge.amount * u128::from(share) / u128::from(old.period());
            *charge = Charge { amount, at };
        }
    }

    fn usage(&self, state: &Slices, now: Time) -> Usage {
        let at = self.position(state, now);
        Usage {
            remaining: self.rate.count().saturating_sub(self.estimate(state, at)),
            capacity: self.rate.count(),
            reset: self.wait(state, now, 0),
        }
    }

    fn is_idle(&self, state: &Slices, now: Time) -> bool {
        let (whole, oldest) = self.parts(state, self.position(state, now).index);
        whole + oldest == 0
    }

    /// If the sub-windows stay the same, so do the counts; otherwise the estimate is moved to the current sub-window.
    fn rescale(&self, old: &Self, state: &mut Slices, now: Time) {
        if state.counts.is_empty() || self.same_slices(old) {
            return;
        }
        let used = old.estimate(state, old.position(state, now));
        *state = Slices::default();
        self.charge(state, now, used);
    }
}
