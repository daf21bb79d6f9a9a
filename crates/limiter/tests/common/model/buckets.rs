//! The buckets, in fractions over a fixed denominator: the nanoseconds of the period.

use sluicegate_limiter::Span;

use super::{Model, first};

/// token_bucket: the level of the bucket after the last event, in tokens times `period`.
pub struct Tokens {
    pub count: u128,
    pub period: u128,
    pub burst: u64,
    pub at: u64,
    pub level: u128,
}

impl Tokens {
    /// Every nanosecond brings count / period tokens, until the bucket is full.
    fn level(&self, at: u64) -> u128 {
        let poured = u128::from(at - self.at) * self.count;
        (self.level + poured).min(u128::from(self.burst) * self.period)
    }
}

impl Model for Tokens {
    fn fits(&self, at: u64, cost: u64) -> bool {
        self.level(at) >= u128::from(cost) * self.period
    }

    fn remaining(&self, at: u64) -> u64 {
        (self.level(at) / self.period) as u64
    }

    fn full(&self, at: u64) -> bool {
        self.level(at) == u128::from(self.burst) * self.period
    }

    fn spend(&mut self, at: u64, cost: u64) {
        self.level = self.level(at) - u128::from(cost) * self.period;
        self.at = at;
    }

    fn capacity(&self) -> u64 {
        self.burst
    }
}

/// leaky_bucket: what is in the queue after the last event, in requests times `period`.
pub struct Queue {
    pub count: u128,
    pub period: u128,
    pub burst: u64,
    pub max_delay: Option<Span>,
    pub at: u64,
    pub backlog: u128,
}

impl Queue {
    /// Every nanosecond drains count / period requests, until the queue is empty.
    fn backlog(&self, at: u64) -> u128 {
        self.backlog.saturating_sub(u128::from(at - self.at) * self.count)
    }

    /// Whether a request of `cost` may join a queue of `backlog`.
    fn joins(&self, backlog: u128, cost: u64) -> bool {
        let has_room = backlog + u128::from(cost) * self.period <= u128::from(self.burst) * self.period;
        // The wait is backlog / count nanoseconds.
        let in_time = self.max_delay.is_none_or(|most| backlog <= u128::from(most.as_nanos()) * self.count);
        has_room && in_time
    }
}

impl Model for Queue {
    fn fits(&self, at: u64, cost: u64) -> bool {
        self.joins(self.backlog(at), cost)
    }

    /// One after another, each behind the ones before it, until one may not join.
    fn remaining(&self, at: u64) -> u64 {
        let backlog = self.backlog(at);
        first(|joined| !self.joins(backlog + u128::from(joined) * self.period, 1))
    }

    fn full(&self, at: u64) -> bool {
        self.backlog(at) == 0
    }

    fn spend(&mut self, at: u64, cost: u64) {
        self.backlog = self.backlog(at) + u128::from(cost) * self.period;
        self.at = at;
    }

    fn capacity(&self) -> u64 {
        self.burst
    }

    fn most(&self) -> u64 {
        first(|joined| !self.joins(u128::from(joined) * self.period, 1))
    }

    fn delay(&self, at: u64) -> u64 {
        self.backlog(at).div_ceil(self.count) as u64
    }
}
