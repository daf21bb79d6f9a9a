//! concurrency: at most `max` requests in flight.

use crate::rate::checked_count;
use crate::{Algorithm, Charge, QuotaError, Receipt, Refusal, Span, Time, Usage};

/// Admits while fewer than `max` requests are in flight. A charge takes places, a refund frees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    max: u64,
}

/// The number of taken places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    taken: u64,
}

impl InFlight {
    /// A key with `taken` places.
    pub const fn new(taken: u64) -> Self {
        Self { taken }
    }
}

impl Concurrency {
    /// At most `max` in flight.
    ///
    /// # Errors
    /// When `max` is outside 1 to [`MAX_COUNT`](crate::MAX_COUNT).
    pub fn new(max: u64) -> Result<Self, QuotaError> {
        Ok(Self { max: checked_count(max)? })
    }
}

impl Algorithm for Concurrency {
    type State = InFlight;

    fn check(&self, state: &InFlight, _now: Time, cost: u64) -> Result<Span, Refusal> {
        match state.taken.saturating_add(cost) {
            _ if cost > self.max => Err(Refusal::Never),
            wanted if wanted <= self.max => Ok(Span::ZERO),
            _ => Err(Refusal::Busy),
        }
    }

    fn charge(&self, state: &mut InFlight, _now: Time, cost: u64) -> Receipt {
        state.taken += cost;
        Receipt::default()
    }

    fn take_back(&self, state: &mut InFlight, _now: Time, charge: Charge, _others: &mut [Charge]) {
        state.taken = u128::from(state.taken).saturating_sub(charge.amount) as u64; // not more than it was
    }

    fn usage(&self, state: &InFlight, _now: Time) -> Usage {
        Usage { remaining: self.max.saturating_sub(state.taken), capacity: self.max, reset: Span::ZERO }
    }

    fn is_idle(&self, state: &InFlight, _now: Time) -> bool {
        state.taken == 0
    }

    /// Requests in flight stay in flight.
    fn rescale(&self, _old: &Self, _state: &mut InFlight, _now: Time) {}
}
