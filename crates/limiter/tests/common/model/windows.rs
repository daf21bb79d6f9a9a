//! The windows and logs, which count all that ever was from scratch.

use std::collections::HashMap;

use sluicegate_limiter::{Refusal, Span};

use super::{Model, first};

/// fixed_window: what was spent in each window there ever was.
pub struct Windows {
    pub count: u64,
    pub period: u64,
    pub used: HashMap<u64, u64>,
}

impl Windows {
    fn used(&self, at: u64) -> u64 {
        self.used.get(&(at / self.period)).copied().unwrap_or(0)
    }
}

impl Model for Windows {
    fn fits(&self, at: u64, cost: u64) -> bool {
        self.used(at) + cost <= self.count
    }

    fn remaining(&self, at: u64) -> u64 {
        self.count - self.used(at)
    }

    fn full(&self, at: u64) -> bool {
        self.used(at) == 0
    }

    fn spend(&mut self, at: u64, cost: u64) {
        *self.used.entry(at / self.period).or_default() += cost;
    }

    fn capacity(&self) -> u64 {
        self.count
    }
}

/// sliding_log: every admitted request there ever was, and every refused one if they count.
#[derive(Clone)]
pub struct Instants {
    pub places: u64,
    pub period: u128,
    pub count_rejected: bool,
    pub seen: Vec<(u64, u64)>,
}

impl Instants {
    /// A place is held for exactly one period.
    fn held(&self, at: u64) -> u64 {
        let holds = |taken: &u64| u128::from(*taken) + self.period > u128::from(at);
        self.seen.iter().filter(|(taken, _)| holds(taken)).map(|(_, cost)| cost).sum()
    }
}

impl Model for Instants {
    fn fits(&self, at: u64, cost: u64) -> bool {
        self.held(at) + cost <= self.places
    }

    fn remaining(&self, at: u64) -> u64 {
        self.places.saturating_sub(self.held(at))
    }

    fn full(&self, at: u64) -> bool {
        self.held(at) == 0
    }

    fn spend(&mut self, at: u64, cost: u64) {
        self.seen.push((at, cost));
    }

    fn capacity(&self) -> u64 {
        self.places
    }

    /// A cost that can never be admitted takes no places.
    fn reject(&mut self, at: u64, cost: u64) {
        if self.count_rejected && cost <= self.places {
            self.seen.push((at, cost));
        }
    }

    /// The places of the refused request are in its own way.
    fn retry(&self, at: u64, cost: u64) -> Refusal {
        let mut after = self.clone();
        after.reject(at, cost);
        Refusal::Until(Span::from_nanos(first(|wait| after.fits(at + wait, cost))))
    }
}

/// sliding_window: every admitted request there ever was.
pub struct Estimate {
    pub count: u64,
    pub period: u128,
    pub slices: u128,
    pub strict: bool,
    pub seen: Vec<(u64, u64)>,
}

impl Estimate {
    /// How much of the sub-window of an instant lies in the period before `at`, in parts of `period`. The
    /// sub-window that `at` is in counts as a whole. Lengths are in 1/slices ns, so that all are whole
    /// numbers.
    fn share(&self, taken: u64, at: u64) -> u128 {
        let now = u128::from(at) * self.slices;
        let start = u128::from(taken) * self.slices / self.period * self.period;
        let end = start + self.period;
        let window_start = now.saturating_sub(self.period * self.slices);
        match end.saturating_sub(start.max(window_start)) {
            1.. if self.strict => self.period, // a part of it is in the window, so all of it counts
            share => share,
        }
    }

    /// The estimate times `period`.
    fn estimate(&self, at: u64) -> u128 {
        self.seen.iter().map(|(taken, cost)| u128::from(*cost) * self.share(*taken, at)).sum()
    }

    fn used(&self, at: u64) -> u64 {
        (self.estimate(at) / self.period) as u64
    }
}

impl Model for Estimate {
    fn fits(&self, at: u64, cost: u64) -> bool {
        self.used(at) + cost <= self.count
    }

    fn remaining(&self, at: u64) -> u64 {
        self.count - self.used(at)
    }

    /// What is below one request is rounded down, so the allowance is full before all is forgotten.
    fn full(&self, at: u64) -> bool {
        self.used(at) == 0
    }

    fn idle(&self, at: u64) -> bool {
        self.estimate(at) == 0
    }

    fn spend(&mut self, at: u64, cost: u64) {
        self.seen.push((at, cost));
    }

    fn capacity(&self) -> u64 {
        self.count
    }
}
