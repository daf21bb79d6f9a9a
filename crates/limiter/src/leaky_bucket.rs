//! leaky_bucket: a queue of `burst` places that drains one request every W/N. It delays instead of refusing.

use crate::gcra::{carry, scale_up};
use crate::rate::checked_count;
use crate::{
    Algorithm, BucketInMicros, Charge, EmissionRate, QuotaError, Rate, Receipt, Refusal, Span, Tat, Time,
    Usage,
};

/// Admits while the queue has room and holds each request until its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    emission_rate: EmissionRate,
    burst: u64,
    max_delay: Option<Span>,
}

impl LeakyBucket {
    /// A queue of `burst` places, drained at `rate`. A wait above `max_delay` is refused instead.
    ///
    /// # Errors
    /// When `burst` is outside 1 to [`MAX_COUNT`](crate::MAX_COUNT).
    pub fn new(rate: Rate, burst: u64, max_delay: Option<Span>) -> Result<Self, QuotaError> {
        Ok(Self { emission_rate: EmissionRate::of(rate), burst: checked_count(burst)?, max_delay })
    }

    /// The numbers for a request of `cost` in a store that counts microseconds; none if they do not fit there.
    pub fn in_micros(&self, cost: u64) -> Option<BucketInMicros> {
        let room = (cost <= self.burst).then(|| self.allowed_before(cost));
        let full = self.emission_rate.ticks(self.burst);
        BucketInMicros::of(self.emission_rate, self.emission_rate.ticks(cost), room, full, full)
    }

    /// How fast it drains.
    pub const fn emission_rate(&self) -> EmissionRate {
        self.emission_rate
    }

    /// The time that one request of `cost` adds to the wait of those behind it, rounded down to a nanosecond.
    pub fn turn(&self, cost: u64) -> Span {
        self.emission_rate.time_down(self.emission_rate.ticks(cost))
    }

    /// What is left of a wait under `old`, now that requests leave at this rate.
    pub fn carried_wait(&self, old: &Self, wait: Span) -> Span {
        self.emission_rate.time_up(self.scaled(old, old.emission_rate.drained_in(wait)))
    }

    /// Ticks of `old` that are as many requests in ticks of this queue.
    fn scaled(&self, old: &Self, ticks: u128) -> u128 {
        scale_up(ticks, self.emission_rate.ticks(1), old.emission_rate.ticks(1))
    }

    /// The most ticks that may be owed before a request of `cost`.
    fn allowed_before(&self, cost: u64) -> u128 {
        let room = self.emission_rate.ticks(self.burst - cost);
        match self.max_delay {
            Some(longest) => room.min(self.emission_rate.drained_in(longest)),
            None => room,
        }
    }
}

impl Algorithm for LeakyBucket {
    type State = Tat;

    fn check(&self, state: &Tat, now: Time, cost: u64) -> Result<Span, Refusal> {
        if cost > self.burst {
            return Err(Refusal::Never);
        }
        let backlog = state.owed(self.emission_rate, now);
        match backlog.checked_sub(self.allowed_before(cost)) {
            None | Some(0) => Ok(self.emission_rate.time_up(backlog)),
            Some(excess) => Err(Refusal::Until(self.emission_rate.time_up(excess))),
        }
    }

    fn charge(&self, state: &mut Tat, now: Time, cost: u64) -> Receipt {
        state.add(self.emission_rate, now, self.emission_rate.ticks(cost))
    }

    /// A queue is never longer than its places.
    fn settle(&self, state: &mut Tat, now: Time, cost: u64) {
        let backlog = state.owed(self.emission_rate, now);
        let wanted = backlog.saturating_add(self.emission_rate.ticks(cost));
        state.set_owed(
            self.emission_rate,
            now,
            wanted.min(self.emission_rate.ticks(self.burst)).max(backlog),
        );
    }

    fn charged(&self, cost: u64, receipt: Receipt) -> Charge {
        Charge { amount: self.emission_rate.ticks(cost), at: receipt.number() }
    }

    fn take_back<'c>(
        &self,
        state: &mut Tat,
        now: Time,
        charge: Charge,
        others: impl Iterator<Item = &'c mut Charge>,
    ) {
        state.take_back(self.emission_rate, now, charge, others);
    }

    fn carry(&self, old: &Self, state: &Tat, now: Time, charges: &mut [Charge]) {
        let owed = state.owed(old.emission_rate, now);
        carry((old.emission_rate, self.emission_rate), owed, now, charges, |ticks| self.scaled(old, ticks));
    }

    fn usage(&self, state: &Tat, now: Time) -> Usage {
        let backlog = state.owed(self.emission_rate, now);
        // The k-th further request finds k − 1 before it: count those that stay within what is allowed.
        let admitted = |backlog| match self.allowed_before(1).checked_sub(backlog) {
            Some(room) => self.emission_rate.requests(room) + 1,
            None => 0,
        };
        Usage {
            remaining: admitted(backlog),
            capacity: admitted(0),
            reset: self.emission_rate.time_up(backlog),
        }
    }

    fn is_idle(&self, state: &Tat, now: Time) -> bool {
        state.owed(self.emission_rate, now) == 0
    }

    /// Requests in the queue stay as many; they leave at the new rate.
    fn rescale(&self, old: &Self, state: &mut Tat, now: Time) {
        let backlog = state.owed(old.emission_rate, now);
        state.set_owed(self.emission_rate, now, self.scaled(old, backlog));
    }
}
