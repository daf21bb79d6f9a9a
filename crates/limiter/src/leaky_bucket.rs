//! leaky_bucket: a queue of `burst` places from which one request leaves every W/N. It delays requests instead of
//! refusing them.

use crate::arithmetic::scale_up;
use crate::gcra::Bucket;
use crate::rate::checked_count;
use crate::{BucketInMicros, EmissionRate, QuotaError, Rate, Refusal, Span, Usage};

/// Admits while the queue has room, and delays each request until its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    emission_rate: EmissionRate,
    burst: u64,
    max_delay: Option<Span>,
}

impl LeakyBucket {
    /// A queue of `burst` places, drained at `rate`. A request that would wait longer than `max_delay` is refused.
    ///
    /// # Errors
    /// When `burst` is outside 1 to [`MAX_COUNT`](crate::MAX_COUNT).
    pub fn new(rate: Rate, burst: u64, max_delay: Option<Span>) -> Result<Self, QuotaError> {
        Ok(Self { emission_rate: EmissionRate::of(rate), burst: checked_count(burst)?, max_delay })
    }

    /// The numbers for a request of `cost` in a store that counts microseconds; `None` if they do not fit there.
    pub fn in_micros(&self, cost: u64) -> Option<BucketInMicros> {
        let room = (cost <= self.burst).then(|| self.allowed_before(cost));
        let cost = self.emission_rate.ticks(cost);
        BucketInMicros::of(self.emission_rate, cost, room, self.most(), self.most())
    }

    /// The places of the queue: no request has a larger cost.
    pub const fn places(&self) -> u64 {
        self.burst
    }

    /// The longest wait.
    pub const fn max_delay(&self) -> Option<Span> {
        self.max_delay
    }

    /// The rate at which it drains.
    pub const fn emission_rate(&self) -> EmissionRate {
        self.emission_rate
    }

    /// The time that one request of `cost` adds to the wait of those behind it, rounded down to a nanosecond.
    pub fn turn(&self, cost: u64) -> Span {
        self.emission_rate.time_down(self.emission_rate.ticks(cost))
    }

    /// The rest of a wait under `old`, now that requests leave at this rate.
    pub fn carried_wait(&self, old: &Self, wait: Span) -> Span {
        self.emission_rate.time_up(self.scaled(old, old.emission_rate.drained_in(wait)))
    }

    /// The largest backlog, in ticks, with which a request of `cost` is admitted.
    fn allowed_before(&self, cost: u64) -> u128 {
        let room = self.emission_rate.ticks(self.burst - cost);
        match self.max_delay {
            Some(longest) => room.min(self.emission_rate.drained_in(longest)),
            None => room,
        }
    }
}

impl Bucket for LeakyBucket {
    fn emission_rate(&self) -> EmissionRate {
        self.emission_rate
    }

    /// A queue is never longer than its places.
    fn most(&self) -> u128 {
        self.emission_rate.ticks(self.burst)
    }

    fn check_owed(&self, backlog: u128, cost: u64) -> Result<Span, Refusal> {
        if cost > self.burst {
            return Err(Refusal::Never);
        }
        match backlog.checked_sub(self.allowed_before(cost)) {
            None | Some(0) => Ok(self.emission_rate.time_up(backlog)),
            Some(excess) => Err(Refusal::Until(self.emission_rate.time_up(excess))),
        }
    }

    fn usage_of(&self, backlog: u128) -> Usage {
        // The k-th further request finds k − 1 before it: count those that stay within the allowed backlog.
        let admitted = |backlog| match self.allowed_before(1).checked_sub(backlog) {
            Some(room) => self.emission_rate.requests(room) + 1,
            None => 0,
        };
        let reset = self.emission_rate.time_up(backlog);
        Usage { remaining: admitted(backlog), capacity: admitted(0), reset }
    }

    fn requests_owed(&self, backlog: u128) -> u64 {
        let Usage { remaining, capacity, .. } = self.usage_of(backlog);
        capacity.saturating_sub(remaining)
    }

    /// As many requests stay in the queue; they leave at the new rate.
    fn scaled(&self, old: &Self, ticks: u128) -> u128 {
        scale_up(ticks, self.emission_rate.ticks(1), old.emission_rate.ticks(1))
    }
}
