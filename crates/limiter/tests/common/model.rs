//! Slow and obvious models of the algorithms, written from their definitions and not from the crate's
//! formulas.
//!
//! A model only knows how to tell whether a cost fits at an instant. When a refused request should come back
//! and when all is back, it finds by trying: all of that only ever gets better while nobody spends.

mod buckets;
mod windows;

use std::collections::HashMap;

use sluicegate_limiter::{Refusal, Span, Time, Usage};

use self::buckets::{Queue, Tokens};
use self::windows::{Estimate, Instants, Windows};
use super::{Key, Limit, Plan};

/// The algorithms, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingLog,
    CountingLog,
    SlidingWindow,
    Concurrency,
}

impl Kind {
    pub const ALL: [Self; 7] = [
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::FixedWindow,
        Self::SlidingLog,
        Self::CountingLog,
        Self::SlidingWindow,
        Self::Concurrency,
    ];

    /// A new key of this algorithm, and its model.
    pub fn pair(self, plan: &Plan) -> (Box<dyn Limit>, Box<dyn Model>) {
        let (count, period) = (u128::from(plan.count()), u128::from(plan.period()));
        let places = plan.log_rate().count();
        match self {
            Self::TokenBucket => (
                Key::boxed("token_bucket", Plan::token_bucket, plan),
                Box::new(Tokens {
                    count,
                    period,
                    burst: plan.burst,
                    at: 0,
                    level: u128::from(plan.burst) * period,
                }),
            ),
            Self::LeakyBucket => (
                Key::boxed("leaky_bucket", Plan::leaky_bucket, plan),
                Box::new(Queue {
                    count,
                    period,
                    burst: plan.burst,
                    max_delay: plan.max_delay,
                    at: 0,
                    backlog: 0,
                }),
            ),
            Self::FixedWindow => (
                Key::boxed("fixed_window", Plan::fixed_window, plan),
                Box::new(Windows { count: plan.count(), period: plan.period(), used: HashMap::default() }),
            ),
            Self::SlidingLog => (
                Key::boxed("sliding_log", Plan::sliding_log, plan),
                Box::new(Instants { places, period, count_rejected: false, seen: Vec::new() }),
            ),
            Self::CountingLog => (
                Key::boxed("sliding_log that counts the rejected", Plan::counting_log, plan),
                Box::new(Instants { places, period, count_rejected: true, seen: Vec::new() }),
            ),
            Self::SlidingWindow => (
                Key::boxed("sliding_window", Plan::sliding_window, plan),
                Box::new(Estimate {
                    count: plan.count(),
                    period,
                    slices: u128::from(plan.slices),
                    strict: plan.strict,
                    seen: Vec::new(),
                }),
            ),
            Self::Concurrency => (
                Key::boxed("concurrency", Plan::concurrency, plan),
                Box::new(Counter { max: plan.burst, taken: 0 }),
            ),
        }
    }
}

/// What a limit should answer. Times are nanoseconds since the epoch.
pub trait Model {
    /// Whether `cost` is admitted at `at`, if nothing is spent until then.
    fn fits(&self, at: u64, cost: u64) -> bool;
    /// How many requests of cost 1 are admitted at `at`.
    fn remaining(&self, at: u64) -> u64;
    /// Whether the full allowance is back.
    fn full(&self, at: u64) -> bool;
    fn spend(&mut self, at: u64, cost: u64);
    fn capacity(&self) -> u64;

    /// Whether nothing of what was spent matters any more.
    fn idle(&self, at: u64) -> bool {
        self.full(at)
    }

    /// The most that `remaining` can be.
    fn most(&self) -> u64 {
        self.capacity()
    }

    /// How long an admitted request is held.
    fn delay(&self, _at: u64) -> u64 {
        0
    }

    /// Notes a refusal.
    fn reject(&mut self, _at: u64, _cost: u64) {}

    /// An admitted request of `cost` has ended.
    fn end(&mut self, _cost: u64) {}

    /// The time from `at` after which `cost` is admitted, when it is refused at `at`.
    fn retry(&self, at: u64, cost: u64) -> Refusal {
        Refusal::Until(Span::from_nanos(first(|wait| self.fits(at + wait, cost))))
    }

    /// The whole answer to a request.
    fn check(&self, at: Time, cost: u64) -> Result<Span, Refusal> {
        let at = at.as_nanos();
        if cost > self.capacity() {
            Err(Refusal::Never)
        } else if self.fits(at, cost) {
            Ok(Span::from_nanos(self.delay(at)))
        } else {
            Err(self.retry(at, cost))
        }
    }

    /// The time from `at` until all is back by itself.
    fn reset(&self, at: u64) -> u64 {
        first(|wait| self.full(at + wait))
    }

    fn usage(&self, at: Time) -> Usage {
        let at = at.as_nanos();
        Usage {
            remaining: self.remaining(at),
            capacity: self.most(),
            reset: Span::from_nanos(self.reset(at)),
        }
    }
}

/// The least number for which `good` holds, where it holds for all above it too.
fn first(good: impl Fn(u64) -> bool) -> u64 {
    if good(0) {
        return 0;
    }
    let (mut bad, mut known) = (0, 1);
    while !good(known) {
        (bad, known) = (known, known * 2);
    }
    while known - bad > 1 {
        let middle = bad + (known - bad) / 2;
        if good(middle) {
            known = middle;
        } else {
            bad = middle;
        }
    }
    known
}

/// concurrency: how many are in flight.
struct Counter {
    max: u64,
    taken: u64,
}

impl Model for Counter {
    fn fits(&self, _at: u64, cost: u64) -> bool {
        self.taken + cost <= self.max
    }

    fn remaining(&self, _at: u64) -> u64 {
        self.max - self.taken
    }

    fn full(&self, _at: u64) -> bool {
        self.taken == 0
    }

    /// Nothing comes back by waiting.
    fn reset(&self, _at: u64) -> u64 {
        0
    }

    fn spend(&mut self, _at: u64, cost: u64) {
        self.taken += cost;
    }

    fn capacity(&self) -> u64 {
        self.max
    }

    fn end(&mut self, cost: u64) {
        self.taken -= cost;
    }

    fn retry(&self, _at: u64, _cost: u64) -> Refusal {
        Refusal::Busy
    }
}
