//! leaky_bucket: a queue of `burst` places that drains one request every W/N. It delays instead of refusing.

use crate::debt::scale_up;
use crate::quota::checked_count;
use crate::{
    Algorithm, BucketInMicros, Debt, Pace, QuotaError, Rate, Receipt, Refusal, Span, Standing, Time,
};

/// Admits while the queue has room and holds each request until its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    pace: Pace,
    burst: u64,
    max_delay: Option<Span>,
}

impl LeakyBucket {
    /// A queue of `burst` places, drained at `rate`. A wait above `max_delay` is refused instead.
    ///
    /// # Errors
    /// When `burst` is outside 1 to [`MAX_COUNT`](crate::MAX_COUNT).
    pub fn new(rate: Rate, burst: u64, max_delay: Option<Span>) -> Result<Self, QuotaError> {
        Ok(Self { pace: Pace::of(rate), burst: checked_count(burst)?, max_delay })
    }

    /// The numbers for a request of `cost` in a store that counts microseconds; none if they do not fit there.
    pub fn in_micros(&self, cost: u64) -> Option<BucketInMicros> {
        let room = (cost <= self.burst).then(|| self.allowed_before(cost));
        BucketInMicros::of(self.pace, cost.min(self.burst), room, self.pace.ticks(self.burst))
    }

    /// How fast it drains.
    pub const fn pace(&self) -> Pace {
        self.pace
    }

    /// The time that one request of `cost` adds to the wait of those behind it, rounded down to a nanosecond.
    pub fn turn(&self, cost: u64) -> Span {
        self.pace.time_down(self.pace.ticks(cost))
    }

    /// What is left of a wait under `old`, now that requests leave at this rate.
    pub fn carry(&self, old: &Self, wait: Span) -> Span {
        let backlog = old.pace.drained_in(wait);
        self.pace.time_up(scale_up(backlog, self.pace.ticks(1), old.pace.ticks(1)))
    }

    /// The receipt of a request of `cost` that is due at `due`. After a reload the one that its charge gave is of
    /// no use, because it is in ticks of the old rate.
    pub fn receipt(&self, due: Time, cost: u64) -> Receipt {
        Receipt::from_number(self.pace.clock(due).saturating_add(self.pace.ticks(cost)))
    }

    /// The most ticks that may be owed before a request of `cost`.
    fn allowed_before(&self, cost: u64) -> u128 {
        let room = self.pace.ticks(self.burst - cost);
        match self.max_delay {
            Some(longest) => room.min(self.pace.drained_in(longest)),
            None => room,
        }
    }
}

impl Algorithm for LeakyBucket {
    type State = Debt;

    fn check(&self, state: &Debt, now: Time, cost: u64) -> Result<Span, Refusal> {
        if cost > self.burst {
            return Err(Refusal::Never);
        }
        let backlog = state.owed(self.pace, now);
        match backlog.checked_sub(self.allowed_before(cost)) {
            None | Some(0) => Ok(self.pace.time_up(backlog)),
            Some(excess) => Err(Refusal::Until(self.pace.time_up(excess))),
        }
    }

    fn charge(&self, state: &mut Debt, now: Time, cost: u64) -> Receipt {
        state.add(self.pace, now, self.pace.ticks(cost))
    }

    fn refund(&self, state: &mut Debt, now: Time, cost: u64, receipt: Receipt) {
        state.take_back(self.pace, now, self.pace.ticks(cost), receipt);
    }

    fn standing(&self, state: &Debt, now: Time) -> Standing {
        let backlog = state.owed(self.pace, now);
        // The k-th further request finds k − 1 before it: count those that stay within what is allowed.
        let admitted = |backlog| match self.allowed_before(1).checked_sub(backlog) {
            Some(room) => self.pace.requests(room) + 1,
            None => 0,
        };
        Standing { remaining: admitted(backlog), capacity: admitted(0), reset: self.pace.time_up(backlog) }
    }

    fn is_idle(&self, state: &Debt, now: Time) -> bool {
        state.owed(self.pace, now) == 0
    }

    /// Requests in the queue stay as many; they leave at the new rate.
    fn rescale(&self, old: &Self, state: &mut Debt, now: Time) {
        let backlog = state.owed(old.pace, now);
        state.set_owed(self.pace, now, scale_up(backlog, self.pace.ticks(1), old.pace.ticks(1)));
    }
}
